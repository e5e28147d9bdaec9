"""One segment of a log: a `.log` file with the batches from its base offset on, and the three indexes beside it.

The last segment is the active one, the only one that grows. After `index.interval.bytes` of batches an entry is added
to the offset index (last offset of a batch, position of the batch) and one to the time index (largest timestamp so
far, last offset of the batch that reached it). Both are sized for the whole segment while it is active, zeros at the
end, and are cut to their entries when it is rolled or closed. The first batch of a segment is never indexed.

Kafka: org.apache.kafka.storage.internals.log.LogSegment.
"""

import random
import threading
from collections.abc import Sequence

from tidelog.errors import (
    CorruptIndexError,
    OffsetOverflowError,
)
from tidelog.log.batch_info import BatchInfo
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem, WriteFile, join
from tidelog.log.log_file import LogFile
from tidelog.log.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name
from tidelog.log.offset_index import OffsetIndex
from tidelog.log.producer_txn import CompletedTxn
from tidelog.log.segment_reader import SegmentReader
from tidelog.log.time_index import TimeIndex, TimestampOffset
from tidelog.log.transaction_index import AbortedTxnEntry, TransactionIndex
from tidelog.records.java import MAX_INT32
from tidelog.records.varint import Buffer

__all__ = ["LogSegment"]

_NO_TIMESTAMP = -1
_INFINITE = 2**63 - 1


class LogSegment(SegmentReader):
    """A segment that can be read by many threads and appended to by one."""

    log: LogFile
    offset_index: OffsetIndex
    time_index: TimeIndex
    txn_index: TransactionIndex

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        clock: Clock,
        rng: random.Random,
        *,
        log: LogFile,
        suffix: str = "",
    ) -> None:
        def path(kind: str) -> str:
            return join(directory, file_name(base_offset, kind) + suffix)

        super().__init__(
            base_offset,
            log,
            OffsetIndex(fs, path(INDEX_SUFFIX), base_offset, config.segment_index_bytes),
            TimeIndex(fs, path(TIME_INDEX_SUFFIX), base_offset, config.segment_index_bytes),
            TransactionIndex(fs, path(TXN_INDEX_SUFFIX), base_offset),
        )
        self.jitter_ms = config.segment_jitter(rng)
        self._fs = fs
        self._clock = clock
        self._index_interval = config.index_interval_bytes
        self._created_ms = clock.now_ms()
        self._bytes_since_index = 0
        self._synced_size = 0
        self._max: TimestampOffset | None = None  # None: not looked up yet
        self._max_lock = threading.Lock()  # readers may look it up too, and must not store what is old by then
        self._cuts = 0
        self._tail: tuple[int, int] | None = (
            None  # the log end and its position, if bytes follow that it does not count
        )
        self._first_timestamp_ms: int | None = None  # of the first batch; None: not looked up yet, or empty

    @classmethod
    def create(
        cls, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, clock: Clock, rng: random.Random,
        *, preallocate: bool = False, suffix: str = "",
    ) -> "LogSegment":  # fmt: skip
        """Create the `.log` file of a new segment; the indexes appear when they are first used."""
        path = join(directory, file_name(base_offset, LOG_SUFFIX) + suffix)
        log = LogFile.create(fs, path, config.segment_bytes if preallocate else 0)
        return cls(fs, directory, base_offset, config, clock, rng, log=log, suffix=suffix)

    @classmethod
    def open(
        cls, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, clock: Clock, rng: random.Random,
        *, suffix: str = "",
    ) -> "LogSegment":  # fmt: skip
        """A segment that lies on the disk."""
        log = LogFile.open(fs, join(directory, file_name(base_offset, LOG_SUFFIX) + suffix))
        return cls(fs, directory, base_offset, config, clock, rng, log=log, suffix=suffix)

    # -- appending -----------------------------------------------------------------------------------------------

    def fits(self, offset: int) -> bool:
        """Whether an offset is within the 31 bits above the base offset that an index entry can hold."""
        return 0 <= offset - self.base_offset <= MAX_INT32

    def should_roll(self, config: LogConfig, size: int, max_timestamp_ms: int, last_offset: int, now_ms: int) -> bool:
        """Whether `size` bytes that end with `last_offset` belong into a new segment."""
        own_size = self.log.size
        if own_size + size > config.segment_bytes or not 0 <= last_offset - self.base_offset <= MAX_INT32:
            return True
        if own_size:
            first = self._first_timestamp_ms
            if first is None or first < 0:  # seldom: it is to be looked up, or the clock decides
                waited_ms = self.waited_ms(now_ms, max_timestamp_ms)
            else:
                waited_ms = max_timestamp_ms - first
            if waited_ms > config.max_segment_ms - self.jitter_ms:
                return True
        offsets, times = self.offset_index, self.time_index
        if offsets._count < offsets._capacity and times._count < times._capacity - 1:
            return False  # looked at without a call: this is asked for every batch
        return offsets.is_full or times.is_full

    def waited_ms(self, now_ms: int, timestamp_ms: int) -> int:
        """How long this segment has been open: by record time where records have one, else by the clock."""
        first = self._first_timestamp_ms
        if first is None:
            first = self._load_first_timestamp()
        return timestamp_ms - first if first >= 0 else now_ms - self._created_ms

    @property
    def first_batch_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch; later than any time while there is none."""
        first = self._load_first_timestamp()
        return first if first >= 0 else _INFINITE

    def _load_first_timestamp(self) -> int:
        if self._first_timestamp_ms is None and self.size:
            first = next(self.log.batches(), None)
            if first is not None:
                self._first_timestamp_ms = first.max_timestamp_ms
        return _NO_TIMESTAMP if self._first_timestamp_ms is None else self._first_timestamp_ms

    def append(self, data: Buffer, batches: Sequence[BatchInfo]) -> None:
        """Write batches after the last one, in one call, and index them. `batches` describe `data` from 0 on."""
        self.write(self.prepare(batches[-1].last_offset), data, batches)

    def prepare(self, last_offset: int) -> WriteFile:
        """Get ready for an append that ends with `last_offset`; the open `.log`, to be handed to `write`.

        Whatever an append needs and may be refused is obtained here, while nothing is written yet. The caller holds the
        descriptor of the `.log`, so letting go of files elsewhere (open_files.py) cannot take it away. The indexes need
        none: their entries stay in memory while their files cannot be opened.
        """
        if not 0 <= last_offset - self.base_offset <= MAX_INT32:
            raise OffsetOverflowError(
                f"offset {last_offset} does not fit the segment of base offset {self.base_offset}"
            )
        if self._tail is not None:
            self._cut_tail(*self._tail)
        if self._max is None:
            # Looked up before the write: the time entry of a batch must not know of the batches behind it.
            self._load_max()
        self.offset_index.prepare()
        self.time_index.prepare()
        return self.log.file

    def write(self, file: WriteFile, data: Buffer, batches: Sequence[BatchInfo]) -> None:
        """Write batches to the file that `prepare` gave, and index them.

        What fails in here leaves bytes in the file of which nobody knows: whoever appends to a log takes it offline.
        """
        log = self.log
        start = log.size
        if start == 0:
            self._first_timestamp_ms = batches[0].max_timestamp_ms
        log.append(data, file)
        for batch in batches:
            self.note(batch.last_offset, start + batch.position, batch.size, batch.max_timestamp_ms)

    @property
    def is_ready(self) -> bool:
        """Whether `append_one` can be used: the `.log` is open and not empty, and nothing is to be looked up first."""
        log = self.log
        return log._file is not None and log.size > 0 and self._max is not None and self._tail is None

    def append_one(self, file: WriteFile, data: Buffer, size: int, last_offset: int, max_timestamp_ms: int) -> int:
        """Write and index one batch, of which `should_roll` has said that there is room for it; where it lies.

        What `write` and `note` do, in one piece: this is where a broker spends its time. The segment must be ready.
        """
        log, latest = self.log, self._max
        assert latest is not None
        position = log.size
        file.write_at(position, data)
        log.size = position + size
        if max_timestamp_ms > latest.timestamp_ms:
            latest = self._max = TimestampOffset(max_timestamp_ms, last_offset)
        if self._bytes_since_index > self._index_interval:
            offsets, times = self.offset_index, self.time_index
            offsets.append(last_offset, position)
            times.maybe_append(*latest)
            if not times._tail[1] and offsets._tail[1]:
                offsets.try_write_tail()
            self._bytes_since_index = 0
        self._bytes_since_index += size
        return position

    def note(self, last_offset: int, position: int, size: int, max_timestamp_ms: int) -> None:
        """Index a batch that was written, if enough bytes lie between it and the last indexed one.

        One append may hold more batches than the indexes have room for: an index that lacks entries is none the worse,
        and the next append rolls.
        """
        latest = self._max
        if latest is None:
            latest = self._load_max()
        if max_timestamp_ms > latest.timestamp_ms:
            latest = self._max = TimestampOffset(max_timestamp_ms, last_offset)
        if self._bytes_since_index > self._index_interval:
            if not (self.offset_index.is_full or self.time_index.is_full):
                self.offset_index.append(last_offset, position)
                self.time_index.maybe_append(latest.timestamp_ms, latest.offset)
                if not self.time_index._tail[1]:
                    self.offset_index.try_write_tail()  # a time in the file is looked up by an offset in the file
            self._bytes_since_index = 0
        self._bytes_since_index += size

    def write_index_tails(self) -> None:
        """Have the entries of both indexes in their files, where other processes can see them.

        While the process has no descriptor left they stay in memory: an append that is done must not fail for that.
        """
        self.offset_index.try_write_tail()
        self.time_index.try_write_tail()

    def add_aborted(self, txn: CompletedTxn, last_stable_offset: int, file: WriteFile | None = None) -> None:
        """Note a transaction whose ABORT marker lies in this segment, in the file that `prepare_aborted` gave."""
        entry = AbortedTxnEntry(txn.producer_id, txn.first_offset, txn.last_offset, last_stable_offset)
        self.txn_index.append(entry, file)

    def prepare_aborted(self) -> WriteFile:
        """Open the transaction index, created if need be; the caller holds it, so `add_aborted` opens nothing."""
        return self.txn_index.prepare()

    # -- timestamps ----------------------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp, and the last offset of the batch that has it; (-1, base offset) if there is none."""
        known = self._max
        return self._load_max() if known is None else known

    @max_timestamp.setter
    def max_timestamp(self, value: TimestampOffset | None) -> None:
        with self._max_lock:
            self._cuts += 1
            self._max = value

    def _load_max(self) -> TimestampOffset:
        """Look the largest timestamp up, and remember it unless the owner has set or cut something meanwhile."""
        cuts = self._cuts
        found = self._look_up_max_timestamp()
        with self._max_lock:
            if self._max is None and cuts == self._cuts:
                self._max = found
            return self._max or found

    def peek_largest_timestamp_ms(self) -> int:
        """`largest_timestamp_ms`, asked for ahead: it is not remembered, and files that were closed are closed again.

        What is remembered `close` puts into the time index, where Kafka would write nothing if nobody has asked.
        """
        if self._max is not None:
            return self.largest_timestamp_ms
        closed = [file for file in (self.log, self.offset_index, self.time_index) if file._file is None]
        try:
            return self._or_when_written(self._look_up_max_timestamp())
        except CorruptIndexError as error:
            self.wrong_index = str(error)
            raise
        finally:
            for file in closed:
                file.release()

    def check_last_time(self) -> None:
        """See whether the last entry of the time index fits the log, before an append builds on it."""
        if self.size and self.time_index.entries:
            wrong = self.lookup().fault_of(self.time_index.last_entry)
            if wrong is not None:
                self.wrong_index = wrong

    # -- life ----------------------------------------------------------------------------------------------------

    def check(self, *, is_time_index_new: bool) -> None:
        """Raise CorruptIndexError unless the offset index is there and the transaction index is sound."""
        if not self.offset_index.exists():
            raise CorruptIndexError(f"{self.offset_index.path} does not exist")
        if is_time_index_new:
            self.time_index.resize(0)
        self.txn_index.sanity_check()

    def become_inactive(self) -> None:
        """What a roll does to the segment it leaves: the last time entry, no spare room, and fewer open files."""
        self._load_max()
        self.seal()
        self.release_indexes()

    def release_indexes(self) -> None:
        """Let go of the index files; whoever looks something up opens them again."""
        self.offset_index.release()
        self.time_index.release()

    def take_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Put rebuilt indexes in the place of the ones that were wrong."""
        for index in (self.offset_index, self.time_index):
            index.retire()  # first: a flush beside us may have it in hands, and open what has its name by then
        offset_index.rename_to(self.offset_index.path)
        time_index.rename_to(self.time_index.path)
        self.offset_index, self.time_index = offset_index, time_index
        self.wrong_index = None

    def resize_indexes(self, size: int) -> None:
        """Give both indexes room for a growing segment."""
        self.offset_index.resize(size)
        self.time_index.resize(size)

    def truncate_to(self, offset: int) -> int:
        """Cut the batch that holds `offset` and all behind it; how many bytes went."""
        return self.cut(offset, self.find_offset(offset))

    def cut(self, offset: int, first: BatchInfo | None) -> int:
        """Cut the batch that holds `offset`, found before (None: there is none), and all behind it."""
        cut = self._cut_files(offset, first.position if first else self.size)
        self._tail = None
        return cut

    def _cut_files(self, offset: int, position: int) -> int:
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.resize_indexes(self.offset_index.max_size)
        cut = self.log.truncate_to(position)
        self._synced_size = min(self._synced_size, position)
        if not self.size:
            self._created_ms = self._clock.now_ms()
            self._first_timestamp_ms = None
        self._bytes_since_index = 0
        self.max_timestamp = None
        return cut

    def note_end(self, log_end: int) -> None:
        """Remember what lies behind the last batch below `log_end`; the first append cuts it off.

        After a clean stop nothing is repaired, and damage may have left half a batch, or batches that the log end does
        not count. As long as nobody appends they stay, as Kafka leaves them. To append behind them would be to lose it.
        """
        end = 0
        for batch in self.lookup().batches_from(log_end):
            if batch.last_offset >= log_end:
                break
            end = batch.position + batch.size
        self._tail = (log_end, end) if end < self.size else None

    @property
    def doomed(self) -> tuple[int, int] | None:
        """Position and size of what the first append will cut off; None if the log ends where the file does."""
        return None if self._tail is None else (self._tail[1], self.size - self._tail[1])

    def _cut_tail(self, log_end: int, position: int) -> None:
        self._cut_files(log_end, position)
        self.log.flush()
        self._tail = None  # last: a cut that is refused half way is made again by the next append

    def sync_log(self) -> None:
        """Return when the batches are on the disk."""
        size = self.size
        self.log.flush()
        self._synced_size = size

    @property
    def unsynced_bytes(self) -> int:
        """How many bytes of batches were written since the last sync, as far as this process knows."""
        return self.size - self._synced_size

    def flush(self) -> None:
        """Return when log and indexes are on the disk. Index files that do not exist yet are created."""
        self.sync_log()
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def seal(self) -> None:
        """Write the last time entry and give spare room back, so that a flush carries the files as they will be."""
        self._add_last_time()
        self.offset_index.trim()
        self.time_index.trim()
        self.log.trim()

    def _add_last_time(self) -> None:
        if self._max is None and self._cuts and self.size:
            # A cut forgets the largest timestamp. Kafka looks it up at once: after a clean stop the index has it.
            try:
                self._load_max()
            except CorruptIndexError as error:
                self.wrong_index = str(error)
        if self._max is not None and not self.wrong_index and self.time_index.entries < self.time_index.max_entries:
            self.time_index.maybe_append(*self._max, skip_full=True)

    def close(self) -> None:
        """Write the last time entry, trim and close. Indexes that were never used are left as they are."""
        self._add_last_time()
        self.offset_index.close()
        self.time_index.close()
        self.log.close()
        self.txn_index.close()

    def release(self) -> None:
        """Give all descriptors back without a write, as after a disk error."""
        self.offset_index.release()
        self.time_index.release()
        self.log.release()
        self.txn_index.release()

    def delete(self) -> None:
        """Remove the files."""
        self.log.delete()
        self.offset_index.delete()
        self.time_index.delete()
        self.txn_index.delete()

    def change_suffix(self, old: str, new: str) -> None:
        """Rename the files: log first, so that what is left of a crash is never an index that looks like a segment."""
        self.change_log_suffix(old, new)
        self.change_index_suffixes(old, new)

    def change_log_suffix(self, old: str, new: str) -> None:
        """Rename the log alone, the first half of `change_suffix`."""
        self.log.rename_to(self.log.path.removesuffix(old) + new)

    def change_index_suffixes(self, old: str, new: str) -> None:
        """Rename the indexes, the second half of `change_suffix`."""
        for file in (self.offset_index, self.time_index, self.txn_index):
            file.rename_to(file.path.removesuffix(old) + new)

    def moved_to(self, directory: str) -> None:
        """Note that the directory has another name now."""
        for file in (self.log, self.offset_index, self.time_index, self.txn_index):
            file.moved_to(join(directory, file.path.rpartition("/")[2]))
