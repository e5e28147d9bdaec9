"""Compaction in a few words: keys that go in, rounds over the log, and what is left of it.

    log = a_compacted_log(tmp_path)
    put(log, 1, 2, 1)                   one batch with these keys, each its own value
    producer = Producer(log, 7, is_transactional=True)
    producer(3, 4)                      offsets 3 and 4
    producer.abort()                    offset 5
    log.roll()
    compact(log)                        a round over everything before the active segment
    keys_in(log), all_offsets(log)      [2, 1], [1, 2, 5]

What is left is read from the files, batch by batch: some are empty, and a reader would pass over them.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.log.logs import ABORT, COMMIT, DAY, a_log, batch, clock_of, end_txn, lead
from tidelog.log import AppendInfo, UnifiedLog
from tidelog.log.compaction.cleanable import CleanableLog
from tidelog.log.compaction.cleaner import CleanedRound, Cleaner
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.compaction.offset_map import BYTES_PER_ENTRY, OffsetMap
from tidelog.log.files import FileSystem, join, read_whole
from tidelog.log.names import DELETED
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records import NewRecord, read_batches
from tidelog.records.batches import Batch

Result = TypeVar("Result")

RETENTION = DAY  # of tombstones and markers, unless a test says otherwise


def a_compacted_log(root: Path | str, **opening: Any) -> UnifiedLog:
    """A log of small segments. Tombstones stay for a day."""
    settings = {"cleanup_policy": ("compact",), "segment_bytes": 1024, "segment_index_bytes": 1024, **opening}
    return a_log(root, **settings)


# -- what goes in ------------------------------------------------------------------------------------------------------


def records_of(log: UnifiedLog, *keys: int) -> list[NewRecord]:
    """Records with these keys. They are their own values."""
    return [NewRecord(b"%d" % key, b"%d" % key, clock_of(log).now_ms()) for key in keys]


def put(log: UnifiedLog, *keys: int, **options: Any) -> AppendInfo:
    """Append one batch."""
    return lead(log, batch(records_of(log, *keys), **options))


def put_each(log: UnifiedLog, *keys: int) -> None:
    """Append a batch for every key."""
    for key in keys:
        put(log, key)


def delete(log: UnifiedLog, *keys: int) -> None:
    """Append a tombstone for every key."""
    for record in records_of(log, *keys):
        lead(log, batch([record._replace(value=None)]))


def fill_segments(log: UnifiedLog, count: int) -> int:
    """Append keys that are their own offsets until there are so many segments; where the last one begins."""
    while len(log.segments) < count:
        put(log, log.log_end_offset)
    return log.active_segment.base_offset


class Producer:
    """A producer with an id. Calling it sends one batch with these keys."""

    def __init__(self, log: UnifiedLog, producer_id: int, *, is_transactional: bool = False) -> None:
        self.producer_id = producer_id
        self.last = b""  # what was sent last
        self._log = log
        self._is_transactional = is_transactional
        self._sequence = 0

    def __call__(self, *keys: int) -> AppendInfo:
        data = batch(
            records_of(self._log, *keys),
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
            is_transactional=self._is_transactional,
        )
        self._sequence += len(keys)
        self.last = bytes(data)
        return lead(self._log, data)

    def commit(self) -> None:
        end_txn(self._log, self.producer_id, COMMIT)

    def abort(self) -> None:
        end_txn(self._log, self.producer_id, ABORT)


def transactional(log: UnifiedLog, *producer_ids: int) -> list[Producer]:
    """Producers of transactions."""
    return [Producer(log, producer_id, is_transactional=True) for producer_id in producer_ids]


# -- rounds ------------------------------------------------------------------------------------------------------------


class SeenCleaner(Cleaner):
    """A cleaner whose map can be looked at, and that reads no more than so many bytes at once."""

    map: OffsetMap
    window: int | None = None

    def _window_bytes(self) -> int:
        return super()._window_bytes() if self.window is None else self.window

    def _map_for(self, cleanable: CleanableLog) -> OffsetMap:
        self.map = super()._map_for(cleanable)
        return self.map


def a_cleaner(log: UnifiedLog, capacity: int = 1000) -> SeenCleaner:
    """A cleaner whose map takes so many keys."""
    slots = capacity + 1
    config = CleanerConfig(dedupe_buffer_size=slots * BYTES_PER_ENTRY, load_factor=(capacity + 0.5) / slots)
    return SeenCleaner(config, log.local.clock)


def to_clean(log: UnifiedLog, first_dirty: int = 0, end: int | None = None) -> CleanableLog:
    """What a round is to clean: by default everything before the active segment."""
    return CleanableLog(log, first_dirty, log.active_segment.base_offset if end is None else end)


def finished(work: Generator[object, None, Result]) -> Result:
    """What a round gives back when it is done."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: Result = done.value
            return result


def compact(
    log: UnifiedLog, first_dirty: int = 0, *, end: int | None = None, capacity: int = 1000, window: int | None = None
) -> CleanedRound:
    """One round, now."""
    cleaner = a_cleaner(log, capacity)
    cleaner.window = window
    return finished(cleaner.clean(to_clean(log, first_dirty, end)))


def compact_twice(log: UnifiedLog, first_dirty: int = 0, *, window: int | None = None) -> CleanedRound:
    """A round that stamps tombstones and markers, and another one when their time is up."""
    compact(log, first_dirty, window=window)
    clock_of(log).advance(log.config.delete_retention_ms)
    return compact(log, first_dirty, window=window)


def mapped(log: UnifiedLog, first_dirty: int, end: int, capacity: int = 1000) -> OffsetMap:
    """The map that a round would make."""
    cleaner = a_cleaner(log, capacity)
    finished(cleaner.preview(to_clean(log, first_dirty, end)))
    return cleaner.map


def settle(log: UnifiedLog) -> None:
    """Let the files go that wait for it."""
    clock_of(log).advance(log.config.file_delete_delay_ms)
    log.tick()


# -- what is left ------------------------------------------------------------------------------------------------------


def batches_in(log: UnifiedLog) -> Iterator[Batch]:
    """All batches in the files, empty ones too."""
    for segment in log.segments:
        yield from read_batches(read_whole(log.local.fs, segment.log.path)[: segment.size])


def keys_in(log: UnifiedLog) -> list[int]:
    """The keys of records that have a value."""
    data = [record for part in batches_in(log) if not part.is_control for record in part.records()]
    return [int(record.key) for record in data if record.key is not None and record.value is not None]


def tombstones_in(log: UnifiedLog) -> list[int]:
    """The keys of the tombstones."""
    data = [record for part in batches_in(log) if not part.is_control for record in part.records()]
    return [int(record.key) for record in data if record.key is not None and record.value is None]


def all_offsets(log: UnifiedLog) -> list[int]:
    """The offsets of all records, markers too."""
    return [record.offset for part in batches_in(log) for record in part.records()]


def last_offsets(log: UnifiedLog) -> list[int]:
    """The last offset of every batch."""
    return [part.last_offset for part in batches_in(log)]


def base_offsets(log: UnifiedLog) -> list[int]:
    """The base offset of every batch."""
    return [part.base_offset for part in batches_in(log)]


def stored_sequences(log: UnifiedLog) -> dict[int, int]:
    """The last sequence of every producer, as the batches have it."""
    data = (part for part in batches_in(log) if part.producer_id >= 0 and not part.is_control)
    return {part.producer_id: part.last_sequence for part in data}


def horizons_in(log: UnifiedLog) -> list[int]:
    """The delete horizons of the batches that have one."""
    return [part.delete_horizon_ms for part in batches_in(log) if part.delete_horizon_ms is not None]


def aborted_in(log: UnifiedLog) -> list[AbortedTxnEntry]:
    """The aborted transactions that the indexes know."""
    return list(log.local.collect_aborted(0, log.log_end_offset))


def files_of(log: UnifiedLog) -> dict[str, bytes]:
    """The files of the log, but for those that are on their way out."""
    return contents_of(log.local.fs, log.directory)


def contents_of(fs: FileSystem, directory: str) -> dict[str, bytes]:
    """The files of a directory, but for those that are on their way out."""
    names = [name for name in fs.list(directory) if not name.endswith(DELETED)]
    return {name: read_whole(fs, join(directory, name)) for name in names}
