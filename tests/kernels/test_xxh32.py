"""xxh32 in kernels against the readable form and the xxhash package."""

import random

import pytest
import xxhash

from tidelog.kernels.buffers import address_of
from tidelog.kernels.runtime import kernel
from tidelog.kernels.xxh32 import xxh32_at
from tidelog.records.xxh32 import xxh32


@kernel("int64(int64, int64)")
def hash_of(address: int, size: int) -> int:
    """A door for Python to the inner function."""
    return xxh32_at(address, size)


@pytest.mark.parametrize("size", [*range(70), 1000, 65_536, 65_537])
def test_the_hash_is_that_of_the_readable_form(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert hash_of(*address_of(data)) == xxh32(data) == xxhash.xxh32_intdigest(data)


def test_high_bits_do_not_leak_into_the_hash() -> None:
    data = b"\xff" * 1021
    assert hash_of(*address_of(data)) == xxhash.xxh32_intdigest(data)
