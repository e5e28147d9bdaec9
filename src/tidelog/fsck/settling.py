"""What an interrupted compaction, deletion or repair left in a partition directory, settled as a start-up does it.

Output that was not committed goes; output that was takes the place of what it replaces. All that goes is kept, and
committed output that turns out to be damaged does not replace what is still there.
"""

import random
from collections.abc import Callable, Iterator, Sequence

from tidelog.fsck.partition_check import PartitionCheck
from tidelog.fsck.quarantine import Quarantine
from tidelog.fsck.segment_scan import SegmentFacts, scan_segment
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem, join, opened
from tidelog.log.leftovers import settle_leftovers
from tidelog.log.names import (
    CLEANED,
    DELETED,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP,
    file_name,
    offset_of,
)
from tidelog.log.segment import LogSegment

__all__ = ["settle"]

_CODE = "PAR-LEFTOVER"
_DIGITS = 20  # of an offset in a name


def settle(
    fs: FileSystem,
    check: PartitionCheck,
    quarantine: Quarantine,
    config: LogConfig,
    clock: Clock,
    on_change: Callable[[], None],
) -> None:
    """Settle the leftovers of one partition. `on_change` is called before something is changed."""
    directory = check.place.path
    misnamed = [name for name in check.files.leftovers if not _has_offset(name)]
    leftovers = [name for name in check.files.leftovers if name not in misnamed]
    swapped = [_scan(fs, directory, name) for name in leftovers if name.endswith(LOG_SUFFIX + SWAP)]
    refused = leftovers if any(_is_worse(facts, check) for facts in swapped) else []
    for name in check.files.deleted + check.files.leftovers:
        quarantine.keep_file(join(directory, name), code=_CODE, why="left by an interrupted compaction")
    if not refused:
        for name in _replaced(check, leftovers, swapped):
            quarantine.keep_file(join(directory, name), code=_CODE, why="replaced by the output of a compaction")
    on_change()
    for name in (*misnamed, *(name for name in refused if name.endswith(SWAP))):
        fs.remove(join(directory, name))

    def open_segment(base_offset: int, suffix: str) -> LogSegment:
        return LogSegment.open(fs, directory, base_offset, config, clock, random.Random(0), suffix=suffix)

    settle_leftovers(fs, directory, open_segment)
    fs.sync_directory(directory)


def _has_offset(name: str) -> bool:
    """Whether a start-up can tell the offset of a leftover; at one without, it would end."""
    base, _, rest = name.partition(".")
    return (
        len(base) == _DIGITS
        and base.isdecimal()
        and f".{rest.rpartition('.')[0]}" in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)
    )


def _is_worse(swapped: SegmentFacts, check: PartitionCheck) -> bool:
    """Whether output of a compaction is not fit to replace what is still there."""
    before = check.files.stats.get(file_name(swapped.base_offset, LOG_SUFFIX))
    return before is not None and bool(swapped.damage or (before.size and not swapped.size))


def _replaced(check: PartitionCheck, leftovers: Sequence[str], swapped: Sequence[SegmentFacts]) -> Iterator[str]:
    """The files that go for committed output: those of the segments it covers, and those whose names it takes."""
    low = min((facts.base_offset for facts in swapped), default=0)
    high = max((facts.next_offset for facts in swapped), default=0)
    taken = {name.removesuffix(SWAP) for name in leftovers if name.endswith(SWAP)}
    for name, stat in check.files.stats.items():
        is_numbered = name[:_DIGITS].isdecimal() and not name.endswith((SWAP, CLEANED, DELETED))
        if not stat.is_directory and (name in taken or (is_numbered and low <= int(name[:_DIGITS]) < high)):
            yield name


def _scan(fs: FileSystem, directory: str, name: str) -> SegmentFacts:
    base_offset = offset_of(name)
    with opened(fs.open(join(directory, file_name(base_offset, LOG_SUFFIX) + SWAP))) as file:
        return scan_segment(file, base_offset)
