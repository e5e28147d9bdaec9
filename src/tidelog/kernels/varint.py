"""Variable-length integers in kernels. See `tidelog.records.varint` for what they are.

A reader gives back the value and the address behind it. Where the bytes end, or the number does not, the address is
BROKEN: larger than any end, so that every "is there as much left" answers no. One and two bytes, nearly all there
are, are decided without a call.

Two pairs of readers: `read_varint` asks how much is left, and may be called again where the last one was broken.
`varint_at` reads first: it is for where enough may be read in any case, and its caller compares the address behind
with the end before going on.
"""

from tidelog.kernels.memory import little_u16, load_u8, store_8
from tidelog.kernels.runtime import inlined, inner

__all__ = [
    "BROKEN",
    "fold",
    "put_folded",
    "read_varint",
    "read_varlong",
    "size_of_folded",
    "varint_at",
    "varlong_at",
]

BROKEN = 1 << 62
_MAX_VARINT_SHIFT = 28
_MAX_VARLONG_SHIFT = 63


@inner
def _read_long(address: int, end: int, last_shift: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while address < end:
        byte = load_u8(address)
        address += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if last_shift == _MAX_VARINT_SHIFT:
                value &= 0xFFFFFFFF
            # The shift must not drag the sign of a full 64-bit number along.
            return value >> 1 & 0x7FFFFFFFFFFFFFFF ^ -(value & 1), address
        if shift == last_shift:
            break
        shift += 7
    return 0, BROKEN


@inlined
def _read_at(address: int, last_shift: int, end: int) -> tuple[int, int]:
    """One or two bytes, both of which may be read, or more of them up to `end`."""
    pair = little_u16(address)
    if pair & 0x80 == 0:
        return (pair & 0x7F) >> 1 ^ -(pair & 1), address + 1
    if pair & 0x8000 == 0:
        return (pair & 0x7E | pair >> 8 << 7) >> 1 ^ -(pair & 1), address + 2
    return _read_long(address, end, last_shift)


@inlined
def varint_at(address: int) -> tuple[int, int]:
    """Read a signed 32-bit number where five bytes may be read, whether or not they belong to it."""
    return _read_at(address, _MAX_VARINT_SHIFT, address + 5)


@inlined
def varlong_at(address: int) -> tuple[int, int]:
    """Read a signed 64-bit number where ten bytes may be read, whether or not they belong to it."""
    return _read_at(address, _MAX_VARLONG_SHIFT, address + 10)


@inlined
def read_varint(address: int, end: int) -> tuple[int, int]:
    """Read a signed 32-bit number before `end`."""
    if end - address >= 2:
        return _read_at(address, _MAX_VARINT_SHIFT, end)
    return _read_long(address, end, _MAX_VARINT_SHIFT)


@inlined
def read_varlong(address: int, end: int) -> tuple[int, int]:
    """Read a signed 64-bit number before `end`."""
    if end - address >= 2:
        return _read_at(address, _MAX_VARLONG_SHIFT, end)
    return _read_long(address, end, _MAX_VARLONG_SHIFT)


@inlined
def fold(value: int) -> int:
    """Fold a signed number, so that small negatives stay small."""
    return value << 1 ^ value >> 63


@inlined
def size_of_folded(value: int) -> int:
    """Bytes of a folded value. Those below 128 are decided first."""
    size = 1
    value = value >> 7 & 0x01FFFFFFFFFFFFFF
    while value != 0:
        value >>= 7
        size += 1
    return size


@inlined
def put_folded(address: int, value: int) -> int:
    """Write a folded value; give back the address behind it."""
    while value & ~0x7F != 0:
        store_8(address, value & 0x7F | 0x80)
        value = value >> 7 & 0x01FFFFFFFFFFFFFF
        address += 1
    store_8(address, value)
    return address + 1
