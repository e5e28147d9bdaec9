"""xxHash32, the checksum inside LZ4 frames.

The input is cut into stripes of 16 bytes. Four lanes each take one little-endian word of every stripe; at the end
the lanes are folded into one number, the rest of the input is added word by word and byte by byte, and the bits are
stirred. Inputs shorter than one stripe skip the lanes. All arithmetic is modulo 2^32.

This is the readable form, a few MB/s. A frame written by Kafka needs it for two bytes only; block checksums, which
Kafka never writes but other producers may, are read at this speed.

>>> hex(xxh32(b"")), hex(xxh32(b"abc"))
('0x2cc5d05', '0x32d153ff')

Format: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, "XXH32 algorithm description".
"""

import struct

from tidelog.records.varint import Buffer

__all__ = ["xxh32"]

_MASK = 0xFFFFFFFF
_PRIME_1 = 0x9E3779B1
_PRIME_2 = 0x85EBCA77
_PRIME_3 = 0xC2B2AE3D
_PRIME_4 = 0x27D4EB2F
_PRIME_5 = 0x165667B1

_STRIPE = struct.Struct("<4I")
_WORD = struct.Struct("<I")


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK


def _fold_stripes(stripes: memoryview, seed: int) -> int:
    a, b, c, d = seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2, seed, seed - _PRIME_1
    for word_a, word_b, word_c, word_d in _STRIPE.iter_unpack(stripes):
        a = _rotate(a + word_a * _PRIME_2, 13) * _PRIME_1
        b = _rotate(b + word_b * _PRIME_2, 13) * _PRIME_1
        c = _rotate(c + word_c * _PRIME_2, 13) * _PRIME_1
        d = _rotate(d + word_d * _PRIME_2, 13) * _PRIME_1
    return _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)


def _stir(value: int) -> int:
    value &= _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16


def xxh32(data: Buffer, seed: int = 0) -> int:
    """The 32-bit hash of `data` as an unsigned number."""
    view = memoryview(data)
    size = len(view)
    stripes_end, words_end = size - size % 16, size - size % 4
    value = _fold_stripes(view[:stripes_end], seed) if stripes_end else seed + _PRIME_5
    value += size
    for (word,) in _WORD.iter_unpack(view[stripes_end:words_end]):
        value = _rotate(value + word * _PRIME_3, 17) * _PRIME_4
    for byte in view[words_end:]:
        value = _rotate(value + byte * _PRIME_5, 11) * _PRIME_1
    return _stir(value)
