"""xxHash32 in kernels. See `tidelog.records.xxh32` for what it is.

Numbers are 64 bits wide here and only their low 32 count: a sum or a product may run over, the low half stays right.
A number is cut to 32 bits before it is shifted to the right, where the high half would come down.
"""

from tidelog.kernels.memory import little_u32, load_u8
from tidelog.kernels.runtime import inlined, inner

__all__ = ["xxh32_at"]

_MASK = 0xFFFFFFFF
_PRIME_1 = 0x9E3779B1
_PRIME_2 = 0x85EBCA77
_PRIME_3 = 0xC2B2AE3D
_PRIME_4 = 0x27D4EB2F
_PRIME_5 = 0x165667B1


@inlined
def _rotate(value: int, bits: int) -> int:
    return value << bits | (value & _MASK) >> (32 - bits)


@inner
def xxh32_at(address: int, size: int) -> int:
    """The hash of `size` bytes at `address`, with seed 0."""
    end = address + size
    value = _PRIME_5
    if size >= 16:
        a, b, c, d = _PRIME_1 + _PRIME_2, _PRIME_2, 0, -_PRIME_1
        while end - address >= 16:
            a = _rotate(a + little_u32(address) * _PRIME_2, 13) * _PRIME_1
            b = _rotate(b + little_u32(address + 4) * _PRIME_2, 13) * _PRIME_1
            c = _rotate(c + little_u32(address + 8) * _PRIME_2, 13) * _PRIME_1
            d = _rotate(d + little_u32(address + 12) * _PRIME_2, 13) * _PRIME_1
            address += 16
        value = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
    value += size
    while end - address >= 4:
        value = _rotate(value + little_u32(address) * _PRIME_3, 17) * _PRIME_4
        address += 4
    while address < end:
        value = _rotate(value + load_u8(address) * _PRIME_5, 11) * _PRIME_1
        address += 1
    value &= _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16
