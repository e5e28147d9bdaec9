"""CRC-32C by each of the ways to sum it, whichever of them this processor's kernels use."""

import random
from collections.abc import Callable
from typing import Any

import crc32c as judge
import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernels import crc32c as sums
from tidelog.kernels.buffers import address_of
from tidelog.kernels.crc32c_blocks import BLOCK
from tidelog.kernels.crc32c_instructions import POLYNOMIAL, over, power_of_x

Sum = Callable[[int, int], int]

RANDOM = np.random.default_rng(11).integers(0, 256, 70_000, np.uint8).tobytes()

BY_INSTRUCTION = pytest.param(
    "_crc32c_by_instruction",
    id="by instruction",
    marks=pytest.mark.skipif(not sums.has_crc_instruction(), reason="the target has no such instruction"),
)
BY_BLOCKS = pytest.param(
    "_crc32c_by_blocks",
    id="by blocks",
    marks=pytest.mark.skipif(not sums.has_wide_multiplication(), reason="the target has no such instruction"),
)


@pytest.fixture(scope="module", params=[BY_INSTRUCTION, BY_BLOCKS])
def way(request: Any) -> Sum:
    """One way to sum, compiled for itself."""
    inner = getattr(sums, request.param)

    def call(address: int, size: int) -> int:
        result: int = inner(address, size)
        return result

    compiled: Sum = numba.njit("int64(int64, int64)", nogil=True, error_model="numpy")(call)
    return compiled


def test_every_size_at_any_address_has_the_sum_that_tables_give(way: Sum) -> None:
    start, _ = address_of(RANDOM)
    places = random.Random(5)
    for size in range(5001):
        address = start + places.randrange(4096)
        assert way(address, size) == sums.crc32c_portable(address, size), size


@pytest.mark.parametrize("blocks", [1, 2, 3, 28, 100])
def test_sizes_around_whole_blocks(way: Sum, blocks: int) -> None:
    start, _ = address_of(RANDOM)
    for size in range(blocks * BLOCK - 9, blocks * BLOCK + 10):
        for shift in (0, 1, 31):
            assert way(start + shift, size) == judge.crc32c(RANDOM[shift : shift + size])


def test_one_bit_anywhere_in_a_block_counts(way: Sum) -> None:
    for size in (BLOCK, 3 * BLOCK):
        data = bytearray(size)
        start, _ = address_of(data)
        seen = {way(start, size)}
        for bit in range(0, 8 * size, 5):
            data[bit // 8] ^= 1 << bit % 8
            seen.add(way(start, size))
            data[bit // 8] ^= 1 << bit % 8
        assert len(seen) == 1 + len(range(0, 8 * size, 5))


@given(data=st.binary(max_size=300), times=st.integers(1, 40), shift=st.integers(0, 64))
def test_any_bytes_have_the_sum_that_the_package_gives(way: Sum, data: bytes, times: int, shift: int) -> None:
    whole = bytes(shift) + data * times
    start, _ = address_of(whole)
    assert way(start + shift, len(whole) - shift) == judge.crc32c(data * times)


def test_what_stands_around_the_bytes_does_not_count(way: Sum) -> None:
    for size in (0, 1, 119, 120, BLOCK - 1, BLOCK, BLOCK + 1, 2000):
        sums_seen = set()
        for around in (b"\x00", b"\xff"):
            buffer = around * 100 + RANDOM[:size] + around * 100
            start, _ = address_of(buffer)
            sums_seen.add(way(start + 100, size))
        assert sums_seen == {judge.crc32c(RANDOM[:size])}


def test_the_best_way_that_the_target_has_is_used() -> None:
    if sums.has_wide_multiplication():
        assert sums.crc32c_at is sums._crc32c_by_blocks
    elif sums.has_crc_instruction():
        assert sums.crc32c_at is sums._crc32c_by_instruction
    else:
        assert sums.crc32c_at is sums._crc32c_by_tables


@pytest.mark.parametrize(
    ("triple", "features", "has_instruction", "has_wide"),
    [
        ("x86_64-unknown-linux-gnu", "+avx2,+pclmul,+sse4.2,+vpclmulqdq", True, True),
        ("x86_64-unknown-linux-gnu", "+avx2,+pclmul,+sse4.2,-vpclmulqdq", True, False),
        ("x86_64-unknown-linux-gnu", "-avx2,+pclmul,+sse4.2,+vpclmulqdq", True, False),
        ("x86_64-unknown-linux-gnu", "+avx2,-pclmul,+sse4.2,+vpclmulqdq", False, False),
        ("x86_64-unknown-linux-gnu", "", False, False),
        ("aarch64-unknown-linux-gnu", "+crc", False, False),
    ],
)
def test_what_a_target_has_is_told_by_its_features(
    monkeypatch: pytest.MonkeyPatch, triple: str, features: str, has_instruction: bool, has_wide: bool
) -> None:
    codegen = type(sums.cpu_target.target_context.codegen())
    monkeypatch.setattr(codegen, "magic_tuple", lambda self: (triple, "some", features))
    assert sums.has_crc_instruction() is has_instruction
    assert sums.has_wide_multiplication() is has_wide


def test_powers_of_x_are_remainders() -> None:
    assert power_of_x(0) == 1 << 31
    assert power_of_x(31) == 1
    assert power_of_x(32) == POLYNOMIAL
    assert over(8) == 1  # the instruction moves a checksum over eight bytes by itself
