"""Small text files as Java reads them: line ends, fields, numbers."""

import pytest

from tidelog.errors import CheckpointError
from tidelog.log.text_files import read_lines, split_fields, to_number
from tidelog.testing.disk import SimulatedFileSystem


def disk_with(data: bytes) -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    disk.make_directory("/r")
    file = disk.open_write("/r/f")
    file.write_at(0, data)
    file.close()
    return disk


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"0", ["0"]),
        (b"0\n", ["0"]),
        (b"0\n\n", ["0", ""]),
        (b"0\r\n1\r2\n", ["0", "1", "2"]),
        (b"\n", [""]),
    ],
)
def test_every_line_end_of_java_ends_a_line_and_the_last_one_begins_none(data: bytes, lines: list[str]) -> None:
    assert read_lines(disk_with(data), "/r/f") == lines


def test_bytes_that_are_not_utf_8_are_an_error_with_their_position() -> None:
    with pytest.raises(CheckpointError, match="^/r/f: not UTF-8 at position 2$"):
        read_lines(disk_with(b"0\n\xff"), "/r/f")


def test_white_space_at_the_end_of_a_line_is_no_field_but_at_the_beginning_it_is() -> None:
    assert split_fields("orders\t0  7 ") == ["orders", "0", "7"]
    assert split_fields(" orders") == ["", "orders"]
    assert split_fields("") == []


def test_digits_of_other_scripts_are_numbers_to_java() -> None:
    assert (to_number("٣", 32), to_number("-٣", 64)) == (3, -3)


@pytest.mark.parametrize("text", ["", "+", "1_0", " 1", "\U0001d7db", "1.0", "2147483648", "-2147483649", "9" * 256])
def test_what_no_java_int_holds_is_no_number(text: str) -> None:
    assert to_number(text, 32) is None


def test_a_number_may_have_a_sign_and_leading_zeros() -> None:
    assert [to_number(text, 32) for text in ("+7", "-7", "007", "2147483647", "-2147483648")] == [
        7, -7, 7, 2**31 - 1, -(2**31),
    ]  # fmt: skip
