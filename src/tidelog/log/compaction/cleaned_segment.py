"""The segment that compaction writes, under names that end in `.cleaned` until it takes the place of others.

What is left of an attempt that was given up is removed before a new one begins.
"""

from tidelog.log.batch_windows import whole_window
from tidelog.log.files import join
from tidelog.log.indexer import Indexer
from tidelog.log.names import CLEANED, SEGMENT_SUFFIXES, file_name
from tidelog.log.segment import LogSegment
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.log.unified_log import UnifiedLog

__all__ = ["CleanedSegment"]


class CleanedSegment:
    """A segment being written. `finish` makes it ready to be swapped in, `discard` removes it."""

    def __init__(self, log: UnifiedLog, base_offset: int) -> None:
        local = log.local
        for suffix in SEGMENT_SUFFIXES:
            local.fs.remove(join(local.directory, file_name(base_offset, suffix) + CLEANED))
        self._fs = local.fs
        self.segment = LogSegment.create(
            local.fs, local.directory, base_offset, local.config, local.clock, local.rng, suffix=CLEANED
        )
        self._indexer = Indexer(self.segment.offset_index, self.segment.time_index, local.config.index_interval_bytes)

    def append(self, data: memoryview, *, fast: bool) -> None:
        """Write batches behind what is there. Raises OffsetOverflowError for offsets that do not fit the segment."""
        window = whole_window(data, self.segment.size, self.segment.log.path, fast=fast)
        if not self._indexer.add_window(window):
            for batch in window.batches:
                self._indexer.add(batch)
        self.segment.log.append(data)

    def add_aborted(self, entry: AbortedTxnEntry) -> None:
        """Take over an entry of the transaction index."""
        self.segment.txn_index.append(entry)

    def finish(self, modified_ms: int) -> LogSegment:
        """Have it all on the disk, as old as what it replaces: retention may go by the time of the file."""
        segment = self.segment
        self._indexer.finish()
        segment.max_timestamp = self._indexer.max_timestamp
        for file in (segment.log, segment.offset_index, segment.time_index):
            self._fs.set_modified(file.path, modified_ms)
        segment.flush()  # behind it, or a crash could make the segment young
        segment.release_indexes()
        return segment

    def discard(self) -> None:
        """Remove the files."""
        self.segment.delete()
