"""What an interrupted compaction, deletion or repair left in a partition directory, settled as a start-up does it.

Output that was not committed goes; output that was takes the place of what it replaces. All that goes is kept, and
committed output that turns out to be damaged does not replace what is still there.
"""

import random

from tidelog.fsck.partition_check import PartitionCheck
from tidelog.fsck.quarantine import Quarantine
from tidelog.fsck.segment_scan import SegmentFacts, scan_segment
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem, join, opened
from tidelog.log.leftovers import settle_leftovers
from tidelog.log.names import CLEANED, DELETED, LOG_SUFFIX, SWAP, file_name, offset_of
from tidelog.log.segment import LogSegment

__all__ = ["settle"]

_CODE = "PAR-LEFTOVER"


def settle(fs: FileSystem, check: PartitionCheck, quarantine: Quarantine, config: LogConfig, clock: Clock) -> None:
    """Settle the leftovers of one partition."""
    directory = check.place.path
    names = [name for name, stat in check.files.stats.items() if not stat.is_directory]
    swapped = [_scan(fs, directory, name) for name in names if name.endswith(LOG_SUFFIX + SWAP)]
    _drop_misnamed(fs, directory, names, quarantine)
    is_damaged = any(facts.damage and check.files.has(facts.base_offset, LOG_SUFFIX) for facts in swapped)
    for name in check.files.deleted + check.files.leftovers:
        quarantine.keep_file(join(directory, name), code=_CODE, why="left by an interrupted compaction")
        if is_damaged and name.endswith(SWAP):
            fs.remove(join(directory, name))
    if swapped and not is_damaged:
        low = min(facts.base_offset for facts in swapped)
        high = max(facts.next_offset for facts in swapped)
        for name in names:
            is_numbered = not name.endswith((SWAP, CLEANED, DELETED)) and name[:20].isdecimal()
            if is_numbered and low <= offset_of(name) < high:
                quarantine.keep_file(join(directory, name), code=_CODE, why="replaced by the output of a compaction")

    def open_segment(base_offset: int, suffix: str) -> LogSegment:
        return LogSegment.open(fs, directory, base_offset, config, clock, random.Random(0), suffix=suffix)

    settle_leftovers(fs, directory, open_segment)
    fs.sync_directory(directory)


def _drop_misnamed(fs: FileSystem, directory: str, names: list[str], quarantine: Quarantine) -> None:
    """Leftovers without an offset in their name, at which a start-up would end."""
    for name in names:
        if name.endswith((CLEANED, SWAP)) and not name.partition(".")[0].isdecimal():
            quarantine.keep_file(join(directory, name), code=_CODE, why="its name has no offset")
            fs.remove(join(directory, name))


def _scan(fs: FileSystem, directory: str, name: str) -> SegmentFacts:
    base_offset = offset_of(name)
    with opened(fs.open(join(directory, file_name(base_offset, LOG_SUFFIX) + SWAP))) as file:
        return scan_segment(file, base_offset)
