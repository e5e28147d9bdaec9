"""Numbers and text that kernels write are those that Java prints."""

import random
from itertools import product

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.guard_pages import Guarded
from tidelog.kernels.line_templates import ROOM_BEHIND, ROOM_OF_DECIMAL
from tidelog.kernels.memory import SLACK
from tidelog.kernels.text import LARGEST_GROWTH, put_decimal, put_utf8
from tidelog.records.java import decode_utf8

# Bytes at which the rules of UTF-8 change, and their neighbours.
EDGES = bytes.fromhex("00 41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")


@numba.njit("int64(int64, int64)")
def write_decimal(address: int, value: int) -> int:
    """The writer, for Python."""
    return put_decimal(address, value) - address


@numba.njit("int64(int64, int64, int64)")
def write_utf8(target: int, source: int, size: int) -> int:
    """The writer, for Python."""
    return put_utf8(target, source, size) - target


def decimal(value: int) -> str:
    room = np.zeros(ROOM_OF_DECIMAL, np.uint8)
    return bytes(room[: write_decimal(room.ctypes.data, value)]).decode()


class Writer:
    """Writes text between guard pages, with exactly the room that it is promised."""

    def __init__(self, size: int) -> None:
        self._source = Guarded(size + SLACK)
        self._target = Guarded(LARGEST_GROWTH * size + SLACK)

    def text(self, data: bytes) -> bytes:
        source = self._source.put(data + bytes([0xC3]) * SLACK)  # what follows the text must not matter
        target = self._target.array(LARGEST_GROWTH * len(data) + SLACK, np.uint8)
        size = write_utf8(target.ctypes.data, self._source.end - len(source), len(data))
        return bytes(target[:size])


WRITER = Writer(4096)


def test_the_room_that_tables_leave_is_the_room_that_copies_take() -> None:
    assert ROOM_BEHIND == SLACK


@pytest.mark.parametrize("digits", range(20))
def test_numbers_around_each_power_of_ten(digits: int) -> None:
    around = [10**digits + step for step in range(-12, 13)]
    values = [value for value in around + [-value for value in around] if -(2**63) <= value < 2**63]
    assert [decimal(value) for value in values] == [str(value) for value in values]


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 1 - 2**63, 2**63 - 1, 2**31, -1, 0])))
def test_a_number_is_what_python_writes(value: int) -> None:
    assert decimal(value) == str(value)


def test_every_number_below_a_hundred_thousand_and_many_others() -> None:
    rng = random.Random(3)
    values = [*range(100_000), *(rng.getrandbits(rng.randrange(1, 63)) for _ in range(50_000))]
    assert [decimal(value) for value in values] == list(map(str, values))


@pytest.mark.parametrize("padding", [0, 1, 6, 7, 8, 31, 32, 40, 63])
def test_any_two_or_three_bytes_at_an_edge_of_the_rules(padding: int) -> None:
    for size in (2, 3):
        for chosen in product(EDGES, repeat=size):
            data = b"x" * padding + bytes(chosen)
            assert WRITER.text(data) == decode_utf8(data).encode(), data


def test_any_four_bytes_that_begin_like_a_long_character() -> None:
    for lead, *rest in product(b"\xed\xf0\xf1\xf4", EDGES, b"\x20\x80\xbf\xc2", b"\x20\x80\xbf\xf0"):
        data = bytes((lead, *rest)) + b"y"
        assert WRITER.text(data) == decode_utf8(data).encode(), data


@given(
    st.one_of(
        st.binary(max_size=200), st.text(max_size=80).map(str.encode), st.text("ab", max_size=300).map(str.encode)
    )
)
def test_text_is_what_java_makes_of_it(data: bytes) -> None:
    assert WRITER.text(data) == decode_utf8(data).encode()


@given(st.text(max_size=40), st.integers(0, 200), st.binary(max_size=3))
def test_text_that_is_cut_or_begins_late(text: str, before: int, broken: bytes) -> None:
    data = b"-" * before + broken + text.encode()
    for end in {len(data), len(data) - 1, len(data) - 2, before} - {-1, -2}:
        assert WRITER.text(data[:end]) == decode_utf8(data[:end]).encode()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 31, 32, 33, 100, 1000, 1024])
def test_nothing_but_broken_bytes_takes_three_times_the_room(size: int) -> None:
    assert WRITER.text(b"\xff" * size) == b"\xef\xbf\xbd" * size
