"""Which segments compaction writes into one: small ones are put together, so that a log does not fall to crumbs.

Kafka: Cleaner.groupSegmentsBySize.
"""

from collections.abc import Sequence
from itertools import zip_longest

from tidelog.log.config import LogConfig
from tidelog.log.segment import LogSegment
from tidelog.records.java import MAX_INT32

__all__ = ["group_segments"]


class _Sizes:
    """The bytes of log, offset index and time index of a group."""

    def __init__(self, segment: LogSegment) -> None:
        self.log = segment.size
        self.offsets = segment.offset_index.size_in_bytes
        self.times = segment.time_index.size_in_bytes

    def add(self, other: "_Sizes") -> None:
        self.log += other.log
        self.offsets += other.offsets
        self.times += other.times

    def fit_with(self, other: "_Sizes", config: LogConfig) -> bool:
        return (
            self.log + other.log <= config.segment_bytes
            and self.offsets + other.offsets <= config.segment_index_bytes
            and self.times + other.times <= config.segment_index_bytes
        )


def group_segments(segments: Sequence[LogSegment], config: LogConfig, first_uncleanable: int) -> list[list[LogSegment]]:
    """Neighbours in groups whose logs and indexes fit one segment, by size and by offsets.

    Where the next segment begins, or what cannot be cleaned, is taken for the end of a segment: to look would be slow.
    """
    groups: list[list[LogSegment]] = []
    together: _Sizes | None = None
    for segment, following in zip_longest(segments, segments[1:]):
        sizes = _Sizes(segment)
        end = first_uncleanable if following is None else following.base_offset
        if together is not None and together.fit_with(sizes, config):
            reaches = end - 1 - groups[-1][0].base_offset
            if not segment.size or reaches <= MAX_INT32:
                groups[-1].append(segment)
                together.add(sizes)
                continue
        groups.append([segment])
        together = sizes
    return groups
