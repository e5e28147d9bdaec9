import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tidelog.records.xxh32 import xxh32


def test_xxh32_agrees_with_the_reference_at_every_length_around_the_stripes() -> None:
    data = bytes(range(256))
    for size in [*range(66), 127, 128, 129, 255, 256]:
        assert xxh32(data[:size]) == xxhash.xxh32_intdigest(data[:size])


@given(st.binary(max_size=500), st.integers(0, 2**32 - 1))
def test_xxh32_agrees_with_the_reference_on_any_bytes_and_seed(data: bytes, seed: int) -> None:
    assert xxh32(data, seed) == xxhash.xxh32_intdigest(data, seed)


def test_xxh32_takes_any_bytes_like_object() -> None:
    data = b"0123456789abcdefghij"
    assert xxh32(bytearray(data)) == xxh32(memoryview(data)) == xxh32(data)
