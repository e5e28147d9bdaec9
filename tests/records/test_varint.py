from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.behaviours import behaviour
from tidelog.errors import InvalidRecordError
from tidelog.records.varint import (
    Buffer,
    read_unsigned_varint,
    read_varint,
    read_varlong,
    size_of_unsigned_varint,
    size_of_varint,
    size_of_varlong,
    write_unsigned_varint,
    write_varint,
    write_varlong,
)


class Kind(NamedTuple):
    """A number of variable length: its three functions, and its limits."""

    read: Callable[[Buffer, int, int], tuple[int, int]]
    write: Callable[[bytearray, int], None]
    size_of: Callable[[int], int]
    lowest: int
    highest: int
    longest: int  # bytes


UNSIGNED = Kind(read_unsigned_varint, write_unsigned_varint, size_of_unsigned_varint, 0, 2**32 - 1, 5)
VARINT = Kind(read_varint, write_varint, size_of_varint, -(2**31), 2**31 - 1, 5)
VARLONG = Kind(read_varlong, write_varlong, size_of_varlong, -(2**63), 2**63 - 1, 10)
KINDS = pytest.mark.parametrize("kind", [UNSIGNED, VARINT, VARLONG], ids=["unsigned", "varint", "varlong"])


class Case(NamedTuple):
    kind: Kind
    value: int
    hex: str


CASES = {
    "unsigned": [
        Case(UNSIGNED, 0, "00"),
        Case(UNSIGNED, 63, "3f"),
        Case(UNSIGNED, 64, "40"),
        Case(UNSIGNED, 127, "7f"),
        Case(UNSIGNED, 128, "80 01"),
        Case(UNSIGNED, 8191, "ff 3f"),
        Case(UNSIGNED, 8192, "80 40"),
        Case(UNSIGNED, 1048576, "80 80 40"),
        Case(UNSIGNED, 2147483647, "ff ff ff ff 07"),
        Case(UNSIGNED, 2**31, "80 80 80 80 08"),
        Case(UNSIGNED, 2**32 - 1, "ff ff ff ff 0f"),
    ],
    "varint": [
        Case(VARINT, 0, "00"),
        Case(VARINT, -1, "01"),
        Case(VARINT, 1, "02"),
        Case(VARINT, 63, "7e"),
        Case(VARINT, -64, "7f"),
        Case(VARINT, 64, "80 01"),
        Case(VARINT, -65, "81 01"),
        Case(VARINT, 8191, "fe 7f"),
        Case(VARINT, -8192, "ff 7f"),
        Case(VARINT, 8192, "80 80 01"),
        Case(VARINT, -8193, "81 80 01"),
        Case(VARINT, 1048575, "fe ff 7f"),
        Case(VARINT, 1048576, "80 80 80 01"),
        Case(VARINT, 134217727, "fe ff ff 7f"),
        Case(VARINT, 134217728, "80 80 80 80 01"),
        Case(VARINT, 2147483647, "fe ff ff ff 0f"),
        Case(VARINT, -2147483648, "ff ff ff ff 0f"),
    ],
    "varlong": [
        Case(VARLONG, 0, "00"),
        Case(VARLONG, -1, "01"),
        Case(VARLONG, 63, "7e"),
        Case(VARLONG, -65, "81 01"),
        Case(VARLONG, 2147483647, "fe ff ff ff 0f"),
        Case(VARLONG, -2147483648, "ff ff ff ff 0f"),
        Case(VARLONG, 17179869183, "fe ff ff ff 7f"),
        Case(VARLONG, 17179869184, "80 80 80 80 80 01"),
        Case(VARLONG, -17179869185, "81 80 80 80 80 01"),
        Case(VARLONG, 4611686018427387903, "fe ff ff ff ff ff ff ff 7f"),
        Case(VARLONG, 4611686018427387904, "80 80 80 80 80 80 80 80 80 01"),
        Case(VARLONG, 9223372036854775807, "fe ff ff ff ff ff ff ff ff 01"),
        Case(VARLONG, -9223372036854775808, "ff ff ff ff ff ff ff ff ff 01"),
    ],
}
ALL_CASES = pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{name} {case.value}") for name, cases in CASES.items() for case in cases]
)


def written(kind: Kind, value: int) -> bytes:
    out = bytearray()
    kind.write(out, value)
    return bytes(out)


@behaviour("REC-001", "REC-003", "REC-004", "REC-005")
@ALL_CASES
def test_a_value_is_written_as_its_bytes(case: Case) -> None:
    out = bytearray(b"before")
    case.kind.write(out, case.value)
    assert out == b"before" + bytes.fromhex(case.hex)


@behaviour("REC-001", "REC-003", "REC-004", "REC-005")
@ALL_CASES
def test_bytes_are_read_as_their_value_and_what_follows_is_left_alone(case: Case) -> None:
    data = bytes.fromhex(case.hex)
    size = len(data)
    assert case.kind.read(data, 0, size) == (case.value, size)
    assert case.kind.read(data + b"\xff\xff", 0, size + 2) == (case.value, size)
    assert case.kind.read(b"\xff" + data + b"\x00", 1, 1 + size) == (case.value, 1 + size)
    assert case.kind.read(memoryview(bytearray(data)), 0, size) == (case.value, size)


@ALL_CASES
def test_a_value_cut_off_at_any_length_is_invalid(case: Case) -> None:
    data = bytes.fromhex(case.hex)
    for size in range(len(data)):
        with pytest.raises(InvalidRecordError, match=f"position {size}: the bytes end inside"):
            case.kind.read(data[:size], 0, size)
        with pytest.raises(InvalidRecordError, match="the bytes end inside"):  # the bytes are there, but not ours
            case.kind.read(data, 0, size)


@behaviour("REC-002")
@pytest.mark.parametrize(("value", "pattern"), [(-1, "ff ff ff ff 0f"), (-2147483648, "80 80 80 80 08")])
def test_an_unsigned_varint_is_written_from_the_raw_32_bits(value: int, pattern: str) -> None:
    data = bytes.fromhex(pattern)
    assert written(UNSIGNED, value) == data
    assert size_of_unsigned_varint(value) == len(data)
    assert read_unsigned_varint(data, 0, 5) == (value % 2**32, 5)


@behaviour("REC-006", "REC-007")
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        pytest.param(UNSIGNED, "ff ff ff ff ff 01", id="unsigned"),
        pytest.param(VARINT, "ff ff ff ff ff 01", id="varint"),
        pytest.param(VARINT, "80 80 80 80 80", id="a fifth byte that says zero and goes on"),
        pytest.param(VARLONG, "ff ff ff ff ff ff ff ff ff ff 01", id="varlong"),
        pytest.param(VARLONG, "80 80 80 80 80 80 80 80 80 80", id="a tenth byte that says zero and goes on"),
    ],
)
def test_a_last_byte_that_announces_another_is_invalid(kind: Kind, data: str) -> None:
    with pytest.raises(InvalidRecordError, match=f"position {kind.longest - 1}: .* does not end in time"):
        kind.read(bytes.fromhex(data), 0, len(bytes.fromhex(data)))


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (UNSIGNED, "80 00", 0),
        (UNSIGNED, "81 80 80 80 00", 1),
        (VARINT, "80 80 80 80 00", 0),
        (VARINT, "81 00", -1),
        (VARLONG, "ff 80 80 80 80 80 80 80 80 00", -64),
    ],
)
def test_an_encoding_longer_than_needed_is_read(kind: Kind, data: str, value: int) -> None:
    assert kind.read(bytes.fromhex(data), 0, kind.longest) == (value, len(bytes.fromhex(data)))


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (UNSIGNED, "ff ff ff ff 7f", 2**32 - 1),
        (UNSIGNED, "80 80 80 80 10", 0),
        (VARINT, "fe ff ff ff 7f", 2**31 - 1),
        (VARLONG, "fe ff ff ff ff ff ff ff ff 7f", 2**63 - 1),
        (VARLONG, "80 80 80 80 80 80 80 80 80 02", 0),
    ],
)
def test_bits_of_the_last_byte_that_do_not_fit_are_dropped(kind: Kind, data: str, value: int) -> None:
    assert kind.read(bytes.fromhex(data), 0, kind.longest) == (value, kind.longest)


def around_powers_of_two(kind: Kind) -> Iterator[int]:
    for exponent in range(65):
        for value in (2**exponent, -(2**exponent)):
            yield from (value + by for by in (-1, 0, 1) if kind.lowest <= value + by <= kind.highest)


@behaviour("REC-008")
@KINDS
def test_the_size_told_is_the_size_written_and_read_at_every_power_of_two(kind: Kind) -> None:
    sizes = set()
    for value in [0, kind.lowest, kind.highest, *around_powers_of_two(kind)]:
        data = written(kind, value)
        assert len(data) == kind.size_of(value), value
        assert kind.read(data, 0, len(data)) == (value, len(data))
        sizes.add(len(data))
    assert sizes == set(range(1, kind.longest + 1))


@pytest.mark.parametrize(
    ("value", "size"),
    [(0, 1), (-1, 1), (1, 1), (63, 1), (-64, 1), (64, 2), (8191, 2), (8192, 3), (2**31 - 1, 5), (-(2**31), 5)],
)
def test_sizes_are_those_of_the_specification(value: int, size: int) -> None:
    assert size_of_varint(value) == size_of_varlong(value) == size
