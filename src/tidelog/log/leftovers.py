"""What deletion and compaction may have left behind when the process died, and how it is settled at start-up.

    .deleted   on its way out: it goes
    .cleaned   output of a compaction or a split that did not commit: it goes, and with it every .swap of the same or a
               later base offset, which would be a part of that output
    .swap      committed output: the old segments it replaces go, then it takes its final name

How far a swap reaches is the word of its last offset, which is under no checksum. So the active segment, which no
compaction replaces, stays whatever it says; Kafka removes it.

Kafka: LogLoader.load, the first half.
"""

from collections.abc import Callable

from tidelog.errors import CorruptionError
from tidelog.log.files import FileSystem, join
from tidelog.log.names import CHECKPOINT_DELETED, CLEANED, DELETED, LOG_SUFFIX, SWAP, offset_of
from tidelog.log.segment import LogSegment

__all__ = ["settle_leftovers"]


def settle_leftovers(
    fs: FileSystem, directory: str, open_segment: Callable[[int, str], LogSegment], *, like_kafka: bool = False
) -> None:
    """Remove or complete what a crash has left in a partition directory."""
    names = [name for name in fs.list(directory) if not _is_directory(fs, join(directory, name))]
    for name in names:
        if name.endswith(DELETED) and not name.endswith(CHECKPOINT_DELETED):
            fs.remove(join(directory, name))
    cleaned = [name for name in names if name.endswith(CLEANED)]
    first_cleaned = min(map(offset_of, cleaned), default=None)
    swaps = []
    for name in names:
        if name.endswith(SWAP):
            if first_cleaned is not None and offset_of(name) >= first_cleaned:
                fs.remove(join(directory, name))
            else:
                swaps.append(name)
    for name in cleaned:
        fs.remove(join(directory, name))
    if swaps:
        _complete_swaps(fs, directory, swaps, open_segment, like_kafka)


def _complete_swaps(
    fs: FileSystem, directory: str, swaps: list[str], open_segment: Callable[[int, str], LogSegment], like_kafka: bool
) -> None:
    """Remove the segments that the swapped ones replace, and rename."""
    logs = [open_segment(offset_of(name), SWAP) for name in swaps if name.endswith(LOG_SUFFIX + SWAP)]
    if logs:
        low = min(segment.base_offset for segment in logs)
        high = max(segment.next_offset() for segment in logs)
        for segment in logs:
            segment.release()
        names = fs.list(directory)
        active = max((_offset_or_none(name) for name in names if name.endswith(LOG_SUFFIX)), default=-1)
        if not like_kafka and active > max(segment.base_offset for segment in logs):
            high = min(high, active)
        for name in names:
            is_replaced = not name.endswith(SWAP) and low <= _offset_or_none(name) < high
            # An index that looking for the end has created holds nothing; without one the segment is recovered.
            if is_replaced or (name.endswith(SWAP) and name not in swaps):
                fs.remove(join(directory, name))
    for name in swaps:
        fs.sync_directory(directory)  # what is replaced is gone, and the names before this one are given
        fs.rename(join(directory, name), join(directory, name.removesuffix(SWAP)))


def _offset_or_none(name: str) -> int:
    """The offset a file is named after, or -1 for files that have none."""
    try:
        return offset_of(name)
    except CorruptionError:
        return -1


def _is_directory(fs: FileSystem, path: str) -> bool:
    found = fs.stat(path)
    return found is not None and found.is_directory
