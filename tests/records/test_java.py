import pytest

from tests.behaviours import behaviour
from tidelog.records.java import decode_utf8, decrement_sequence, increment_sequence, wrap_int32, wrap_int64

MAX_32, MAX_64 = 2**31 - 1, 2**63 - 1


@pytest.mark.parametrize(
    ("value", "held"),
    [
        (0, 0),
        (-1, -1),
        (MAX_32, MAX_32),
        (MAX_32 + 1, -(2**31)),
        (-(2**31), -(2**31)),
        (-(2**31) - 1, MAX_32),
        (2**32, 0),
    ],
)
def test_an_int_holds_32_bits(value: int, held: int) -> None:
    assert wrap_int32(value) == held


@pytest.mark.parametrize(
    ("value", "held"),
    [
        (0, 0),
        (-1, -1),
        (MAX_64, MAX_64),
        (MAX_64 + 1, -(2**63)),
        (-(2**63), -(2**63)),
        (-(2**63) - 1, MAX_64),
        (2**64, 0),
    ],
)
def test_a_long_holds_64_bits(value: int, held: int) -> None:
    assert wrap_int64(value) == held


# sequence, records, the sequence that many records later
STEPS = [
    (5, 5, 10),
    (MAX_32, 1, 0),
    (MAX_32 - 5, 10, 4),
    (0, 0, 0),
    (0, MAX_32, MAX_32),
    (MAX_32, 0, MAX_32),
    (1, MAX_32, 0),
    (MAX_32, MAX_32, MAX_32 - 1),
]


@behaviour("REC-017")
@pytest.mark.parametrize(("sequence", "by", "later"), STEPS)
def test_sequences_count_up_and_begin_again_at_zero(sequence: int, by: int, later: int) -> None:
    assert increment_sequence(sequence, by) == later


@behaviour("REC-018")
@pytest.mark.parametrize(("sequence", "by", "later"), [*STEPS, (0, 5, 5), (MAX_32, 1, 0)])
def test_sequences_count_down_and_end_at_the_highest(sequence: int, by: int, later: int) -> None:
    assert decrement_sequence(later, by) == sequence


def in_java(sequence: int, increment: int) -> int:
    """`DefaultRecordBatch.incrementSequence`, line by line, every operation in 32 bits."""
    if sequence > wrap_int32(MAX_32 - increment):
        return wrap_int32(wrap_int32(increment - wrap_int32(MAX_32 - sequence)) - 1)
    return wrap_int32(sequence + increment)


@pytest.mark.parametrize("by", [0, 1, 2, 1000, MAX_32, -1, -2, -1000, -MAX_32, -(2**31)])
@pytest.mark.parametrize("sequence", [0, 1, 5, 999, MAX_32 - 1, MAX_32])
def test_damaged_deltas_give_the_sequence_that_java_gives(sequence: int, by: int) -> None:
    assert increment_sequence(sequence, by) == in_java(sequence, by)


# Bytes, and the text that `new String(bytes, UTF_8)` of Java 17 gives for them.
TEXTS = [
    (b"", ""),
    (b"plain", "plain"),
    ("ключ 鍵 🌊".encode(), "ключ 鍵 🌊"),
    (b"\x00", "\x00"),
    (b"a\xffb", "a�b"),
    (b"\x80\x80", "��"),
    (b"\xc3", "�"),
    (b"\xc0\x80", "��"),  # an overlong zero, as Java's own modified UTF-8 has it
    (b"\xe2\x82", "�"),
    (b"\xe2\x82x", "�x"),
    (b"\xe0\x80\x80", "���"),
    (b"\xed\xa0\x80", "�"),  # an encoded surrogate
    (b"\xed\xa0\x80\xed\xb0\x80!", "��!"),
    (b"\xed\xa0", "�"),
    (b"\xf0\x9f\x8c", "�"),
    (b"\xf0\x9fx", "�x"),
    (b"\xf4\x90\x80\x80", "����"),  # beyond the last code point
    (b"\xf8\x88\x80\x80\x80", "�����"),
]


@pytest.mark.parametrize(("data", "text"), TEXTS, ids=[data.hex(" ") or "nothing" for data, _ in TEXTS])
def test_header_names_are_decoded_with_javas_replacement_characters(data: bytes, text: str) -> None:
    assert decode_utf8(data) == text
