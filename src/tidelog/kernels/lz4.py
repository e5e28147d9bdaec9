"""LZ4 frames, a run of them in one call. `tidelog.records.lz4_frame` tells the format, and which streams are refused.

Streams are rows of a table, 24 bytes each: the first address, the end, and the end of readable memory. They are
decoded one behind the other into one target, and a second table of the same shape says where each came to lie.

Invariants:

- nothing is read outside a stream, except that a wide copy may look on up to the stream's `limit`;
- nothing is written outside the target and the SLACK behind it. A packed block gives at most its frame's block size,
  and at most 255 bytes for one of its own. A block begins only where the smaller of the two fits, so its sequences
  need not look at the target's end; they look at the end that the format's own rules speak of;
- a stream that does not fit is given up and the call ends: FULL. The caller takes a larger target and goes on there;
- a stream that is refused, or grows beyond `max_size`, ends the call too: BROKEN. Why is for `tidelog.records` to say.
"""

from tidelog.kernels.memory import (
    SLACK,
    copy_16,
    copy_bytes,
    copy_wide,
    little_u16,
    little_u32,
    load_i64,
    load_u8,
    store_8,
    store_16,
    store_64,
)
from tidelog.kernels.runtime import inlined, inner, kernel
from tidelog.kernels.xxh32 import xxh32_at

__all__ = ["BROKEN", "FULL", "LARGEST_BLOCK", "STREAM_SIZE", "copy_match", "decompress_lz4"]

STREAM_SIZE = 24  # a row of the tables: first address, end, end of readable memory

# What a decoder gives back in place of an address.
FULL = -1
BROKEN = -2

LARGEST_BLOCK = 4 * 1024 * 1024  # plain bytes

_MAGIC = 0x184D2204
_DENSEST = 255  # plain bytes from one packed byte: one that adds to the size of a match


@inlined
def copy_match(target: int, offset: int, size: int) -> None:
    """Repeat `size` bytes from `offset` before the target; up to 15 more are written behind them.

    A step of 16 bytes needs its source 16 bytes before its target. Until then each step makes as many right bytes as
    the distance is, and so doubles the distance to the first source.
    """
    end = target + size
    source = target - offset
    while target - source < 16 and target < end:
        copy_16(target, source)
        target += target - source
    while target < end:
        copy_16(target, source)
        target += 16
        source += 16


@inner
def _decode_block(source: int, end: int, limit: int, target: int, target_end: int) -> int:
    """Decode a block: the address behind its plain bytes, or BROKEN.

    The numbers are those of the rules in `lz4_frame`. They leave at least one byte of the block in front of each
    token and two in front of each offset, which are therefore read without a look at the end.
    """
    first = target
    while True:
        token = load_u8(source)
        source += 1
        size = token >> 4
        is_short = size < 15 and end - source >= 17 and target_end - target >= 32
        if is_short:
            copy_16(target, source)
        else:
            if size == 15:
                byte = 255
                while byte == 255:
                    if end - source < 16:
                        return BROKEN
                    byte = load_u8(source)
                    source += 1
                    size += byte
            if end - source - size < 8 or target_end - target - size < 12:
                if end - source != size or target_end - target < size:
                    return BROKEN
                copy_bytes(target, source, size)
                return target + size
            copy_wide(target, source, size, limit)
        source += size
        target += size
        offset = little_u16(source)
        source += 2
        if offset > target - first:
            return BROKEN
        size = token & 15
        if size == 15:
            is_short = False
            byte = 255
            while byte == 255:
                if end - source < 5:
                    return BROKEN
                byte = load_u8(source)
                source += 1
                size += byte
        size += 4
        if is_short and offset >= 16:
            # Most matches: at most 18 bytes, for which there is room behind short literals. The last two are read
            # after the others were written, which they may repeat.
            copy_16(target, target - offset)
            store_16(target + 16, little_u16(target + 16 - offset))
        else:
            if target_end - target - size < 5 and not (is_short and offset >= 8):
                return BROKEN
            if offset == 0:  # stands for zeros: the first is written, the others repeat it
                store_8(target, 0)
                copy_match(target + 1, 1, size - 1)
            else:
                copy_match(target, offset, size)
        target += size


@inner
def _decode_frame(
    source: int, end: int, limit: int, target: int, target_end: int, max_size: int, check_descriptor: int
) -> int:
    """Decode a frame to `target`: the address behind, FULL or BROKEN."""
    if end - source < 7 or little_u32(source) != _MAGIC:
        return BROKEN
    flags = load_u8(source + 4)
    block_code = load_u8(source + 5)
    # Version 1, independent blocks, nothing reserved; a block size code of 4 to 7, nothing reserved.
    if flags & 0xE3 != 0x60 or block_code & 0xCF != 0x40:
        return BROKEN
    block_size = 1 << 2 * (block_code >> 4) + 8
    checksum_size = flags >> 2 & 4
    descriptor_size = 2 + (flags & 8)
    if end - source < 5 + descriptor_size:
        return BROKEN
    if check_descriptor and xxh32_at(source + 4, descriptor_size) >> 8 & 0xFF != load_u8(source + 4 + descriptor_size):
        return BROKEN
    source += 5 + descriptor_size
    first = target
    while end - source >= 4:
        word = little_u32(source)
        size = word & 0x7FFFFFFF
        source += 4
        if size == 0:
            return target if end - source >= (flags & 4) else BROKEN
        if size > block_size or end - source < size + checksum_size:
            return BROKEN
        if checksum_size and xxh32_at(source, size) != little_u32(source + size):
            return BROKEN
        if word != size:
            if target_end - target < size:
                return FULL
            copy_bytes(target, source, size)
            target += size
        else:
            if target_end - target < min(block_size, _DENSEST * size):
                return FULL
            target = _decode_block(source, source + size, limit, target, target + block_size)
            if target == BROKEN:
                return BROKEN
        if target - first > max_size:
            return BROKEN
        source += size + checksum_size
    return BROKEN


@kernel("UniTuple(int64, 2)(int64, int64, int64, int64, int64, int64, int64)")
def decompress_lz4(
    streams: int, count: int, results: int, target: int, capacity: int, max_size: int, check_descriptor: int
) -> tuple[int, int]:
    """Decompress `count` streams: how many were, and 0, or what ended the run: FULL or BROKEN."""
    target_end = target + capacity
    for index in range(count):
        row = streams + index * STREAM_SIZE
        end = _decode_frame(
            load_i64(row), load_i64(row + 8), load_i64(row + 16), target, target_end, max_size, check_descriptor
        )
        if end < 0:
            return index, end
        store_64(results + index * STREAM_SIZE, target)
        store_64(results + index * STREAM_SIZE + 8, end)
        store_64(results + index * STREAM_SIZE + 16, target_end + SLACK)
        target = end
    return count, 0
