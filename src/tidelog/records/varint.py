"""Variable-length integers, as record batches use them.

An unsigned varint holds seven bits per byte, least significant group first; the high bit says that more bytes follow.
Signed numbers are folded first ("zigzag"), so that small negatives stay short: 0, -1, 1, -2 become 0, 1, 2, 3.
A varint carries 32 bits in at most 5 bytes, a varlong 64 bits in at most 10.

Readers accept encodings that are longer than needed and, like Kafka's, silently drop the bits of the last byte that
do not fit; what they refuse is a last byte that announces yet another. Every reader takes the end of what it may
touch and gives back the value and the position behind it.

>>> out = bytearray()
>>> write_varint(out, -65)
>>> out.hex(" ")
'81 01'
>>> read_varint(out, 0, len(out))
(-65, 2)

Kafka: org.apache.kafka.common.utils.ByteUtils.
"""

from tidelog.errors import InvalidRecordError

__all__ = [
    "read_unsigned_varint",
    "read_varint",
    "read_varlong",
    "size_of_unsigned_varint",
    "size_of_varint",
    "size_of_varlong",
    "write_unsigned_varint",
    "write_varint",
    "write_varlong",
]

Buffer = bytes | bytearray | memoryview

_MAX_VARINT_SHIFT = 28  # the fifth byte
_MAX_VARLONG_SHIFT = 63  # the tenth byte


def _read_groups(buffer: Buffer, position: int, end: int, last_shift: int) -> tuple[int, int]:
    value = shift = 0
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        if shift == last_shift:
            raise InvalidRecordError(f"position {position - 1}: a variable-length integer does not end in time")
        shift += 7
    raise InvalidRecordError(f"position {position}: the bytes end inside a variable-length integer")


def read_unsigned_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read 32 unsigned bits."""
    value, position = _read_groups(buffer, position, end, _MAX_VARINT_SHIFT)
    return value & 0xFFFFFFFF, position


def read_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a signed 32-bit number."""
    value, position = _read_groups(buffer, position, end, _MAX_VARINT_SHIFT)
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), position


def read_varlong(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a signed 64-bit number."""
    value, position = _read_groups(buffer, position, end, _MAX_VARLONG_SHIFT)
    value &= 0xFFFFFFFFFFFFFFFF
    return (value >> 1) ^ -(value & 1), position


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append `value`, of which the low 32 bits count: -1 is written as 2**32 - 1."""
    _write_groups(out, value & 0xFFFFFFFF)


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed 32-bit number."""
    _write_groups(out, _zigzag(value, 31))


def write_varlong(out: bytearray, value: int) -> None:
    """Append a signed 64-bit number."""
    _write_groups(out, _zigzag(value, 63))


def _zigzag(value: int, sign_bit: int) -> int:
    return (value << 1) ^ (value >> sign_bit)


def _write_groups(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def size_of_unsigned_varint(value: int) -> int:
    """Bytes that `write_unsigned_varint` emits."""
    return _groups(value & 0xFFFFFFFF)


def size_of_varint(value: int) -> int:
    """Bytes that `write_varint` emits: 1 for -64 … 63, 2 for -8192 … 8191, at most 5."""
    return _groups(_zigzag(value, 31))


def size_of_varlong(value: int) -> int:
    """Bytes that `write_varlong` emits, at most 10."""
    return _groups(_zigzag(value, 63))


def _groups(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
