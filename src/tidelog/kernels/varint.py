"""Variable-length integers in kernels. See `tidelog.records.varint` for what they are.

A reader gives back the folded value, still unsigned, and the address behind it. Where the bytes end, or the number
does not, the address is BROKEN: larger than any end, so that whatever is read from there is broken as well and every
"is there as much left" answers no. A walk over fields therefore needs one look at the end, not one per field.
One and two bytes, nearly all there are, are decided without a call.
"""

from tidelog.kernels.memory import little_u16, load_u8, store_8
from tidelog.kernels.runtime import inner

__all__ = ["put_unsigned", "read_unsigned_32", "read_unsigned_64", "size_of_unsigned", "unfold", "unfold_32"]

BROKEN = 1 << 62
_MAX_VARINT_SHIFT = 28
_MAX_VARLONG_SHIFT = 63


@inner
def _read_groups(address: int, end: int, last_shift: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while address < end:
        byte = load_u8(address)
        address += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, address
        if shift == last_shift:
            return 0, BROKEN
        shift += 7
    return 0, BROKEN


@inner
def _read_long_32(address: int, end: int) -> tuple[int, int]:
    value, address = _read_groups(address, end, _MAX_VARINT_SHIFT)
    return value & 0xFFFFFFFF, address


@inner
def _read_long_64(address: int, end: int) -> tuple[int, int]:
    return _read_groups(address, end, _MAX_VARLONG_SHIFT)


@inner
def read_unsigned_32(address: int, end: int) -> tuple[int, int]:
    """Read the folded value of a varint."""
    if end - address >= 2:
        pair = little_u16(address)
        if pair & 0x80 == 0:
            return pair & 0x7F, address + 1
        if pair & 0x8000 == 0:
            return pair & 0x7F | pair >> 8 << 7, address + 2
    return _read_long_32(address, end)


@inner
def read_unsigned_64(address: int, end: int) -> tuple[int, int]:
    """Read the folded value of a varlong, of which the top bit is the sign of an int64."""
    if end - address >= 2:
        pair = little_u16(address)
        if pair & 0x80 == 0:
            return pair & 0x7F, address + 1
        if pair & 0x8000 == 0:
            return pair & 0x7F | pair >> 8 << 7, address + 2
    return _read_long_64(address, end)


@inner
def unfold_32(folded: int) -> int:
    """The signed number of a folded one below 2**32."""
    return folded >> 1 ^ -(folded & 1)


@inner
def unfold(folded: int) -> int:
    """The signed number of a folded one that fills 64 bits: the shift must not drag the sign along."""
    return folded >> 1 & 0x7FFFFFFFFFFFFFFF ^ -(folded & 1)


@inner
def fold(value: int) -> int:
    """Fold a signed number, so that small negatives stay small."""
    return value << 1 ^ value >> 63


@inner
def size_of_unsigned(value: int) -> int:
    """Bytes of a folded value. Those below 128 are decided first."""
    size = 1
    value = value >> 7 & 0x01FFFFFFFFFFFFFF
    while value != 0:
        value >>= 7
        size += 1
    return size


@inner
def put_unsigned(address: int, value: int) -> int:
    """Write a folded value; give back the address behind it."""
    while value & ~0x7F != 0:
        store_8(address, value & 0x7F | 0x80)
        value = value >> 7 & 0x01FFFFFFFFFFFFFF
        address += 1
    store_8(address, value)
    return address + 1
