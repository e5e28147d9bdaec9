"""A log that is written to, cleaned and judged against a plain list of all that was ever appended to it.

What a round must leave of the records follows from the list (`_stays`), in plain words:

    of an aborted transaction nothing stays, in all segments that the round has copied
    below the end of the round, nothing without a key, and nothing whose key comes again below the end
    a tombstone goes when delete.retention.ms have passed since the first round that copied it, and only then
    everything else stays, with the same offset, key, value, headers and timestamp

Everything else about the log (`_check_*`) must be as it was before.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from tests.log.compaction.compacting import finished
from tests.property.compaction_steps import FULL, Step, Workload
from tests.property.crash_disk import WatchedDisk
from tidelog.log import AppendInfo, AppendOrigin, Isolation, LogConfig, ManualClock, UnifiedLog
from tidelog.log.compaction.cleanable import CleanableLog, cleanable_log
from tidelog.log.compaction.cleaner import CleanedRound, Cleaner
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.compaction.offset_map import BYTES_PER_ENTRY
from tidelog.log.files import FileSystem, join, read_whole
from tidelog.log.names import (
    CLEANED,
    DELETED,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP,
    TIME_INDEX_SUFFIX,
    file_name,
)
from tidelog.records import ControlType, EndTxnMarker, Header, NewRecord, RecordBatch, build_batch, build_end_txn_marker
from tidelog.records.batches import read_batches
from tidelog.records.compression import Codec
from tidelog.records.record import Record
from tidelog.testing.disk import SimulatedFileSystem

NOW = 1_700_000_000_000
DIRECTORY = "/data/topic-0"
FOREVER = 2**62
TIME_ENTRY_SIZE = 12


class Written(NamedTuple):
    """A record that was appended."""

    record: Record
    txn: int | None  # the number of its transaction

    @property
    def offset(self) -> int:
        return self.record.offset


class Sent(NamedTuple):
    """The last batch of a producer, and the offsets it got."""

    data: bytes
    first_offset: int
    last_offset: int


class CompactionRun:
    """A workload that is being run. `on_change` is called behind every call that changes something on the disk."""

    def __init__(
        self,
        workload: Workload,
        on_change: Callable[[], None] | None = None,
        *,
        unordered: bool = False,
        judges: bool = True,
    ) -> None:
        self.config = LogConfig(**workload.settings)
        self.clock = ManualClock(NOW)
        self.disk = SimulatedFileSystem(self.clock, unordered_directories=unordered)
        self.disk.make_directory("/data")
        self._fs: FileSystem = self.disk if on_change is None else WatchedDisk(self.disk, on_change)
        self.written: list[Written] = []
        self.headers: dict[int, bytes] = {}  # of all batches ever, by their last offsets: what never changes of them
        self.checkpoint: int | None = None
        self._steps = workload.steps
        self._judges = judges
        self._is_aborted: dict[int, bool] = {}  # of transactions that have ended, by their numbers
        self._open_txns: dict[int, int] = {}  # the numbers of those that have not, by their producers
        self._txns = 0
        self._epochs: dict[int, int] = {}
        self._last_of: dict[int, Sent] = {}
        self._horizons: dict[int, int] = {}  # of tombstones that a round has copied, by offset
        self._gone: set[int] = set()  # tombstones whose time was up
        self._number = 0
        self.log = self.open()

    def open(
        self,
        fs: FileSystem | None = None,
        *,
        is_clean: bool = False,
        log_start: int = 0,
        recovery_point: int = 0,
        clock: ManualClock | None = None,
    ) -> UnifiedLog:
        """The log of the directory."""
        return UnifiedLog.open(
            DIRECTORY,
            self.config,
            recovery_point=recovery_point,
            log_start_offset=log_start,
            clean_shutdown=is_clean,
            producer_id_expiration_ms=FOREVER,
            clock=clock or self.clock,
            fs=self._fs if fs is None else fs,
            rng=Random(1),
            lock=False,
        )

    def run(self) -> None:
        for step in self._steps:
            self.do(step)

    def do(self, step: Step) -> None:
        getattr(self, f"_do_{step[0]}")(*step[1:])

    # -- writing -----------------------------------------------------------------------------------------------------

    def _records(self, records: Iterable[tuple[int | None, int | None]]) -> list[NewRecord]:
        made = []
        for key, size in records:
            self._number += 1
            value = None if size is None else b"%d " % self._number + b"v" * size
            time_ms = self.clock.now_ms() - self._number % 3
            headers = (Header("h", b"%d" % self._number),) if self._number % 5 == 0 else ()
            made.append(NewRecord(None if key is None else b"key %d" % key, value, time_ms, headers))
        return made

    def _append(self, data: bytes, txn: int | None = None, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendInfo:
        info = self.log.append_as_leader(memoryview(bytearray(data)), 0, origin)
        for batch in read_batches(self.log.read(info.first_offset, 1).read()):  # as it was stamped, or recoded
            assert isinstance(batch, RecordBatch)
            self.headers[batch.last_offset] = _identity(batch)
            if not batch.is_control:
                self.written += [Written(record, txn) for record in batch.records()]
        return info

    def _send(self, producer_id: int, records: Any, codec: int, txn: int | None) -> None:
        entry = self.log.producers.last_entry(producer_id)
        epoch = max(self._epochs.get(producer_id, 0), -1 if entry is None else entry.epoch)
        is_next = entry is not None and entry.epoch == epoch
        data = build_batch(
            self._records(records),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=entry.last_sequence + 1 if entry is not None and is_next else 0,
            is_transactional=txn is not None,
            codec=Codec(codec),
        )
        info = self._append(bytes(data), txn)
        self._last_of[producer_id] = Sent(bytes(data), info.first_offset, info.last_offset)

    def _do_put(self, records: Any, codec: int) -> None:
        self._append(bytes(build_batch(self._records(records), codec=Codec(codec))))

    def _do_produce(self, producer_id: int, records: Any, codec: int) -> None:
        self._send(producer_id, records, codec, None)

    def _do_txn(self, producer_id: int, records: Any, codec: int) -> None:
        if producer_id not in self._open_txns:
            self._txns += 1
            self._open_txns[producer_id] = self._txns
        self._send(producer_id, records, codec, self._open_txns[producer_id])

    def _do_end(self, producer_id: int, is_commit: bool) -> None:
        entry = self.log.producers.last_entry(producer_id)
        epoch = max(self._epochs.get(producer_id, 0), -1 if entry is None else entry.epoch)
        marker = EndTxnMarker(ControlType.COMMIT if is_commit else ControlType.ABORT, coordinator_epoch=0)
        now_ms = self.clock.now_ms()
        data = build_end_txn_marker(marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=now_ms)
        self._append(bytes(data), origin=AppendOrigin.COORDINATOR)
        if producer_id in self._open_txns:
            self._is_aborted[self._open_txns.pop(producer_id)] = not is_commit

    def _do_fence(self, producer_id: int) -> None:
        if producer_id not in self._open_txns:
            entry = self.log.producers.last_entry(producer_id)
            self._epochs[producer_id] = max(self._epochs.get(producer_id, 0), -1 if entry is None else entry.epoch) + 1

    def _do_roll(self) -> None:
        self.log.roll()

    def _do_wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self.log.tick()

    def _do_delete(self, forward: int) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)
        self.log.delete_records(min(self.log.log_start_offset + forward, self.log.log_end_offset))

    def _do_open(self, is_clean: bool) -> None:
        start = self.log.log_start_offset
        if is_clean:
            self.log.close()
        else:
            self.log.release()
        self.log = self.open(is_clean=is_clean, log_start=start)
        self.log.update_high_watermark(self.log.log_end_offset)

    # -- a round -----------------------------------------------------------------------------------------------------

    def cleaner(self, capacity: int) -> Cleaner:
        """A cleaner with room for so many keys."""
        slots = capacity + 1
        config = CleanerConfig(dedupe_buffer_size=slots * BYTES_PER_ENTRY, load_factor=(capacity + 0.5) / slots)
        return Cleaner(config, self.clock)

    def cleanable(self, lag: int = 0) -> CleanableLog:
        """What may be cleaned now, if the high watermark is so many batches behind."""
        ends = [0, *sorted(self.headers)]
        self.log.update_high_watermark(max(ends[-1 - min(lag, len(ends) - 1)] + 1, self.log.high_watermark))
        return cleanable_log(self.log, self.checkpoint, self.clock.now_ms())

    def _do_round(self, capacity: int, lag: int) -> None:
        cleanable, cleaner = self.cleanable(lag), self.cleaner(capacity)
        if not self._judges:
            self.checkpoint = finished(cleaner.clean(cleanable)).end_offset
            return
        self.log.active_segment.write_index_tails()  # which the flush before a round would do
        before = Snapshot(self.log)
        previewed = finished(cleaner.preview(cleanable))
        assert Snapshot(self.log) == before, "a preview has changed something"
        done = finished(cleaner.clean(cleanable))
        assert done == previewed
        if cleanable.first_dirty < cleanable.first_uncleanable_offset:
            self.judge(before, cleanable, done)
        else:
            assert done.end_offset == cleanable.first_dirty
            assert Snapshot(self.log) == before
        self.checkpoint = done.end_offset

    def rounds_to_rest(self, limit: int = 8) -> int:
        """Clean everything again and again, in this moment; how many rounds have changed something."""
        for number in range(limit):
            before = Snapshot(self.log)
            self.checkpoint = None
            self._do_round(FULL, 0)
            if Snapshot(self.log) == before:
                return number
        raise AssertionError(f"{limit} rounds, and each has changed something")

    def judge(self, before: "Snapshot", cleanable: CleanableLog, done: CleanedRound) -> None:
        """Hold the log behind a round against what was written to it, and against what it was."""
        log, end = self.log, done.end_offset
        after = Snapshot(log)
        assert after.bounds == before.bounds
        assert cleanable.first_dirty < end <= cleanable.first_uncleanable_offset
        copied_to = min(base for base in before.bases if base >= end)
        self._check_untouched(before, after, copied_to)
        self._check_records(log, end, copied_to)
        self._check_batches(before, after)
        self.check_readers(log)
        check_lookups(log)
        self.check_reopened(copied_to)

    def _check_untouched(self, before: "Snapshot", after: "Snapshot", copied_to: int) -> None:
        """Segments behind the round are the same to the byte."""
        behind = {name: data for name, data in before.files.items() if name >= file_name(copied_to, "")}
        assert {name: after.files.get(name) for name in behind} == behind
        assert [base for base in after.bases if base >= copied_to] == [b for b in before.bases if b >= copied_to]

    # -- the records -------------------------------------------------------------------------------------------------

    def _check_records(self, log: UnifiedLog, end: int, copied_to: int) -> None:
        kept = self.kept(end, copied_to)
        start = log.log_start_offset
        found = {
            record.offset: record
            for batch in batches_in(log)
            if not batch.is_control
            for record in batch.records()
            if record.offset >= start
        }
        wanted = {written.offset: written.record for written in kept if written.offset >= start}
        assert list(found) == sorted(found)
        assert found == wanted, _difference(found, wanted)

    def kept(self, end: int, copied_to: int) -> list[Written]:
        """What is left behind a round that ended at `end` and copied all segments before `copied_to`."""
        now_ms = self.clock.now_ms()
        newest: dict[bytes, int] = {}
        for written in self.written:
            if written.record.key is not None and written.offset < end and not self._aborted(written):
                newest[written.record.key] = written.offset
        kept = []
        for written in self.written:
            if self._stays(written, newest, end, copied_to, now_ms):
                kept.append(written)
                if written.record.value is None and written.offset < copied_to:
                    self._horizons.setdefault(written.offset, now_ms + self.config.delete_retention_ms)
        return kept

    def _stays(self, written: Written, newest: dict[bytes, int], end: int, copied_to: int, now_ms: int) -> bool:
        key, offset = written.record.key, written.offset
        if self._aborted(written):
            return offset >= copied_to
        if offset >= end:
            return True
        if key is None or newest[key] > offset or offset in self._gone:
            return False
        if written.record.value is None and self._horizons.get(offset, FOREVER) <= now_ms:
            self._gone.add(offset)
            return False
        return True

    def _aborted(self, written: Written) -> bool:
        return written.txn is not None and self._is_aborted.get(written.txn, False)

    # -- the rest of it ----------------------------------------------------------------------------------------------

    def _check_batches(self, before: "Snapshot", after: "Snapshot") -> None:
        """Batches are those that were written, or what is left of them; one that lost nothing is as it was."""
        end = -1
        for last_offset, data in after.batches.items():
            batch = RecordBatch(data)
            assert batch.base_offset > end
            end = last_offset
            assert _identity(batch) == self.headers[last_offset]
            batch.ensure_valid()
            old = RecordBatch(before.batches[last_offset])
            if (batch.count, batch.delete_horizon_ms) == (old.count, old.delete_horizon_ms):
                assert bytes(batch.buffer) == bytes(old.buffer)

    def check_readers(self, log: UnifiedLog) -> None:
        """The last value of every key is what was last written, whoever asks; only tombstones may be missing."""
        for isolation in (Isolation.COMMITTED, Isolation.LOG_END):
            limit, start = log.limit_offset(isolation), log.log_start_offset
            seen: dict[bytes, Record] = {}
            for record in log.records(isolation=isolation):
                if record.key is not None and record.offset < limit:
                    seen[record.key] = record
            last: dict[bytes, Record] = {}
            for written in self.written:
                if written.record.key is not None and start <= written.offset < limit and not self._aborted(written):
                    last[written.record.key] = written.record
            for key, record in last.items():
                if isolation is Isolation.LOG_END and key in seen and seen[key].offset > record.offset:
                    continue  # of a transaction that was aborted, and its segment not copied yet
                assert seen.get(key) == (None if record.offset in self._gone else record), key
            if isolation is Isolation.COMMITTED:
                assert {key for key, record in seen.items() if key in last} == set(seen)

    def check_reopened(self, copied_to: int) -> None:
        """The log as a crash leaves it, without snapshots: producers and bounds come back from the batches.

        The indexes of what was copied are built anew, too, and are the same. Others may be shorter: the process that
        began them may have ended.
        """
        log, disk = self.log, self.disk.copy()
        for name in disk.list(DIRECTORY):
            if name.endswith(SNAPSHOT_SUFFIX):
                disk.remove(join(DIRECTORY, name))
        again = self.open(disk, log_start=log.log_start_offset)
        assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, log.log_end_offset)
        self.check_known_again(again)
        for segment in log.local.segments.between(0, copied_to):
            if segment.time_index.entries >= self.config.segment_index_bytes // TIME_ENTRY_SIZE - 1:
                continue  # full: there may be an entry more, or less, than in the other way of building it
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                name = join(DIRECTORY, file_name(segment.base_offset, suffix))
                assert read_whole(disk, name) == read_whole(self.disk, name), name
        assert not [name for name in disk.list(DIRECTORY) if name.endswith((CLEANED, SWAP, DELETED))]

    def check_known_again(self, again: UnifiedLog) -> None:
        """Another process knows of the producers what this one knows, and recognises their last batches."""
        start = self.log.log_start_offset
        again.update_high_watermark(again.log_end_offset)
        open_txns = [entry.txn_first_offset for entry in self.log.producers.producers.values()]
        first_open = min((offset for offset in open_txns if offset is not None), default=again.log_end_offset)
        if not start:  # or the beginning of one may have been deleted
            assert again.last_stable_offset == first_open
        for producer_id, entry in self.log.producers.producers.items():
            sent = self._last_of.get(producer_id)
            if not entry.batches or sent is None or sent.last_offset < start:
                continue
            other = again.producers.producers[producer_id]
            known, wanted = ((one.epoch, one.last_sequence, one.last_offset) for one in (other, entry))
            assert known == wanted, producer_id
            if RecordBatch(sent.data).producer_epoch == entry.epoch:
                info = again.append_as_leader(memoryview(bytearray(sent.data)), 0)
                assert (info.first_offset, info.last_offset) == sent[1:]
        assert again.log_end_offset == self.log.log_end_offset


class Snapshot:
    """Everything about a log at one moment that can be compared."""

    def __init__(self, log: UnifiedLog) -> None:
        names = [name for name in log.local.fs.list(log.directory) if not name.endswith(DELETED)]
        self.bounds = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
        self.bases = [segment.base_offset for segment in log.segments]
        self.files = {name: read_whole(log.local.fs, join(log.directory, name)) for name in names}
        self.batches = {batch.last_offset: bytes(batch.buffer) for batch in batches_in(log)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def batches_in(log: UnifiedLog) -> list[RecordBatch]:
    """All batches in the files of a log."""
    found = []
    for segment in log.segments:
        content = read_whole(log.local.fs, join(log.directory, file_name(segment.base_offset, LOG_SUFFIX)))
        for batch in read_batches(content[: segment.size]):
            assert isinstance(batch, RecordBatch)
            found.append(batch)
    return found


def _identity(batch: RecordBatch) -> bytes:
    """What compaction never changes of a batch, as text."""
    return repr(
        (
            batch.base_offset, batch.last_offset, batch.partition_leader_epoch, batch.producer_id,
            batch.producer_epoch, batch.base_sequence, batch.is_transactional, batch.is_control, batch.timestamp_type,
        )
    ).encode()  # fmt: skip


def check_lookups(log: UnifiedLog) -> None:
    """Every offset leads to the first batch that ends at or after it."""
    ends = [batch.last_offset for batch in batches_in(log)]
    at = 0
    for offset in range(log.log_start_offset, log.log_end_offset):
        while at < len(ends) and ends[at] < offset:
            at += 1
        first = next(read_batches(log.read(offset, 1).read()), None)
        assert (None if first is None else first.last_offset) == (ends[at] if at < len(ends) else None)


def _difference(found: dict[int, Record], wanted: dict[int, Record]) -> str:
    missing = {offset: wanted[offset] for offset in wanted if found.get(offset) != wanted[offset]}
    surplus = {offset: found[offset] for offset in found if offset not in wanted}
    return f"missing or different {missing}, too much {surplus}"
