"""murmur2, by which Kafka's producers choose the partition of a key.

The hash is 32-bit; all arithmetic here is 64-bit and cut to 32 after every multiplication.
"""

from tidelog.kernels.memory import int32_at, little_u32, load_u8, put_int32
from tidelog.kernels.runtime import inner, kernel

__all__ = ["murmur2_at", "partitions_of"]

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_WORD = 0xFFFFFFFF


@inner
def murmur2_at(address: int, size: int) -> int:
    """The hash of `size` bytes, as an unsigned number."""
    value = _SEED ^ size
    end = address + size
    while end - address >= 4:
        word = little_u32(address) * _FACTOR & _WORD
        word = (word ^ word >> 24) * _FACTOR & _WORD
        value = value * _FACTOR & _WORD ^ word
        address += 4
    left = end - address
    if left > 0:
        for index in range(left):
            value ^= load_u8(address + index) << 8 * index
        value = value * _FACTOR & _WORD
    value = (value ^ value >> 13) * _FACTOR & _WORD
    return value ^ value >> 15


@kernel("int64(int64, int64, int64, int64, int64, int64, int64)")
def partitions_of(
    offsets: int, data: int, validity: int, first_bit: int, rows: int, partitions: int, target: int
) -> int:
    """The partition of each key into int32s; -1 for a null key, which any partition may take. How many are null."""
    nulls = 0
    for row in range(rows):
        bit = first_bit + row
        if validity and load_u8(validity + (bit >> 3)) >> (bit & 7) & 1 == 0:
            put_int32(target, row, -1)
            nulls += 1
        else:
            start = int32_at(offsets, row)
            value = murmur2_at(data + start, int32_at(offsets, row + 1) - start)
            put_int32(target, row, (value & 0x7FFFFFFF) % partitions)
    return nulls
