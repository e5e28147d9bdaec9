"""Snappy streams, a run of them in one call. `tidelog.records.snappy_stream` tells the format, and which are refused.

Tables, target and outcome are those of `tidelog.kernels.lz4`, and so are its invariants, but for the room of a block:
a snappy block announces its plain size. That is a claim: it is compared with the cap, then with the densest that
elements can be, and a block begins only where it fits the target. From there on no element may write beyond it.
"""

from tidelog.kernels.lz4 import BROKEN, FULL, STREAM_SIZE, copy_match
from tidelog.kernels.memory import SLACK, big_i32, copy_32, copy_wide, little_u32, load_i64, load_u8, store_64
from tidelog.kernels.runtime import inlined, inner, kernel

__all__ = ["decompress_snappy"]

_MAGIC = 0x0059_5050_414E_5382  # little-endian: 82 "SNAPPY" 00
_HEADER_SIZE = 16
_ANOTHER_HEADER = -0x7DACB1BF  # the first half of the magic where a chunk size is wanted
_DENSEST_PLAIN, _DENSEST_STORED = 64, 3  # bytes of the densest element


@inlined
def _read_up_to_4(address: int, end: int) -> int:
    """Up to four little-endian bytes; what lies behind `end` counts as 0."""
    if end - address >= 4:
        return little_u32(address)
    value = 0
    for index in range(end - address):
        value |= load_u8(address + index) << 8 * index
    return value


@inner
def _decode_block(source: int, end: int, limit: int, target: int, target_end: int, max_size: int) -> int:
    """Decode a raw block to `target`: the address behind, FULL or BROKEN."""
    stored_size = end - source
    plain_size = 0
    shift = 0
    byte = 0x80
    while byte >= 0x80:
        if source == end or shift == 35:
            return BROKEN
        byte = load_u8(source)
        source += 1
        plain_size |= (byte & 0x7F) << shift
        shift += 7
    if plain_size > min(max_size, 0xFFFFFFFF) or plain_size * _DENSEST_STORED > stored_size * _DENSEST_PLAIN:
        return BROKEN
    if target_end - target < plain_size:
        return FULL
    first = target
    target_end = target + plain_size
    while source < end:
        tag = load_u8(source)
        kind = tag & 3
        source += 1
        if kind == 0:
            size = (tag >> 2) + 1
            if size > 60:
                trailing = size - 60
                if end - source < trailing:
                    return BROKEN
                size = (_read_up_to_4(source, end) & (1 << 8 * trailing) - 1) + 1
                source += trailing
            if size > end - source or size > target_end - target:
                return BROKEN
            if size <= 32 and limit - source >= 32:
                copy_32(target, source)
            else:
                copy_wide(target, source, size, limit)
            source += size
        else:
            # The three kinds come in no order that a processor could learn, so they are told apart by arithmetic.
            trailing = kind + (kind & kind >> 1)  # 1, 2, 4
            if end - source < trailing:
                return BROKEN
            offset = _read_up_to_4(source, end) & (1 << 8 * trailing) - 1
            source += trailing
            size = (tag >> 2) + 1
            if kind == 1:
                offset |= tag >> 5 << 8
                size = (tag >> 2 & 7) + 4
            if offset == 0 or offset > target - first or size > target_end - target:
                return BROKEN
            copy_match(target, offset, size)
        target += size
    return target if target == target_end else BROKEN


@inner
def _decode_stream(source: int, end: int, limit: int, target: int, target_end: int, max_size: int) -> int:
    """Decode a framed stream, or one raw block, to `target`: the address behind, FULL or BROKEN."""
    if end - source < _HEADER_SIZE or load_i64(source) != _MAGIC:
        return _decode_block(source, end, limit, target, target_end, max_size)
    last = target + max_size
    source += _HEADER_SIZE
    while end - source >= 4 and target >= 0:
        size = big_i32(source)
        if size == _ANOTHER_HEADER:
            if end - source < _HEADER_SIZE or load_i64(source) != _MAGIC or big_i32(source + 8) < 1:
                return BROKEN
            source += _HEADER_SIZE
        else:
            source += 4
            if size <= 0 or size > end - source:
                return BROKEN
            target = _decode_block(source, source + size, limit, target, target_end, last - target)
            source += size
    return target


@kernel("UniTuple(int64, 2)(int64, int64, int64, int64, int64, int64)")
def decompress_snappy(
    streams: int, count: int, results: int, target: int, capacity: int, max_size: int
) -> tuple[int, int]:
    """Decompress `count` streams: how many were, and 0, or what ended the run: FULL or BROKEN."""
    target_end = target + capacity
    for index in range(count):
        row = streams + index * STREAM_SIZE
        end = _decode_stream(load_i64(row), load_i64(row + 8), load_i64(row + 16), target, target_end, max_size)
        if end < 0:
            return index, end
        store_64(results + index * STREAM_SIZE, target)
        store_64(results + index * STREAM_SIZE + 8, end)
        store_64(results + index * STREAM_SIZE + 16, target_end + SLACK)
        target = end
    return count, 0
