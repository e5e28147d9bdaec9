"""What readers of a partition are given: by our engine, and by one that believes every index, as Kafka does.

A view is a dict of answers; one that raised an error of the tree is that error's name. Two views that are equal are two
directories that no reader can tell apart.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.fsck.world import COMPACTED, CONFIG, KEYS, NOW, ROOT, directory_of
from tidelog.errors import TidelogError
from tidelog.log import Isolation, ManualClock, UnifiedLog
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.files import join, read_whole
from tidelog.log.names import LOG_START_CHECKPOINT, LOG_SUFFIX, TopicPartition, file_name, offset_of
from tidelog.log.offset_index import OffsetEntries
from tidelog.log.time_index import TimeEntries
from tidelog.records import RecordBatch, read_batches
from tidelog.records.committed import AbortedTxn, committed_batches
from tidelog.testing.disk import SimulatedFileSystem

TIMES = [NOW + step for step in range(-40, 1400, 37)]
LARGE = 1 << 20
SPECIAL_TIMES = (-1, -2, -3)


class Refused(NamedTuple):
    """The answer is an error of the tree."""

    error: str


View = dict[tuple[Any, ...], Any]


def _answer(question: Callable[..., object], *arguments: object) -> object:
    try:
        return question(*arguments)
    except TidelogError as error:
        return Refused(type(error).__name__)


def log_start_of(disk: SimulatedFileSystem, partition: TopicPartition) -> int:
    """By the checkpoint; a broker that cannot read it takes 0."""
    try:
        return OffsetCheckpoint(disk, join(ROOT, LOG_START_CHECKPOINT)).read().get(partition, 0)
    except TidelogError:
        return 0


def view_of(disk: SimulatedFileSystem, partition: TopicPartition) -> View:
    """Everything that a reader of a partition can see, after a clean start."""
    copy = disk.copy()
    try:
        log = UnifiedLog.open(
            directory_of(partition), COMPACTED if partition == KEYS else CONFIG,
            log_start_offset=log_start_of(disk, partition), clean_shutdown=True,
            clock=ManualClock(NOW), fs=copy, lock=False,
        )  # fmt: skip
    except TidelogError as error:
        return {("open",): Refused(type(error).__name__)}
    _answer(log.update_high_watermark, log.log_end_offset)
    view: View = {
        ("log start",): log.log_start_offset,
        ("log end",): log.log_end_offset,
        ("last stable offset",): _answer(lambda: log.last_stable_offset),
        ("producers",): _answer(lambda: sorted(log.producers.active_producers())),
        ("records",): _answer(lambda: tuple(_records(log))),
        ("committed",): _answer(lambda: tuple(_committed(log))),
    }
    for time in (*SPECIAL_TIMES, *TIMES):
        view["time", time] = _answer(log.offset_for_time, time, Isolation.LOG_END)
    view |= _trusting(disk, partition)
    log.release()
    return view


def _regions(log: UnifiedLog, isolation: Isolation) -> Iterator[Any]:
    offset = log.log_start_offset
    while True:
        region = log.read(offset, LARGE, isolation)
        batches = list(read_batches(region.read()))
        if not batches:
            return
        yield region, batches
        offset = max(offset + 1, batches[-1].last_offset + 1)


def _records(log: UnifiedLog) -> Iterator[object]:
    for _, batches in _regions(log, Isolation.LOG_END):
        for batch in batches:
            batch.ensure_valid()
            epoch = batch.header.partition_leader_epoch if isinstance(batch, RecordBatch) else -1
            for record in batch:
                if record.offset >= log.log_start_offset:
                    yield record.offset, epoch, record


def _committed(log: UnifiedLog) -> Iterator[int]:
    for region, batches in _regions(log, Isolation.COMMITTED):
        for batch in batches:
            batch.ensure_valid()
        aborted = [AbortedTxn(txn.producer_id, txn.first_offset) for txn in region.aborted or ()]
        for batch in committed_batches(batches, aborted):
            yield from (record.offset for record in batch if record.offset >= log.log_start_offset)


# -- a reader that believes indexes ----------------------------------------------------------------------------------


def _trusting(disk: SimulatedFileSystem, partition: TopicPartition) -> View:
    """For each offset and time, the batch that a search by the indexes ends at, as Kafka searches."""
    directory = directory_of(partition)
    names = [name for name in disk.list(directory) if name.endswith(LOG_SUFFIX) and name[:20].isdecimal()]
    segments = [_TrustedSegment(disk, directory, offset_of(name)) for name in names]
    if not segments:
        return {("trusted",): None}
    bases = [segment.base for segment in segments]
    end = max(segment.end for segment in segments)
    view: View = {}
    for offset in range(min(end, 200)):
        at = bisect_right(bases, offset) - 1
        found = None
        while found is None and 0 <= at < len(segments):
            found = _answer(segments[at].find, offset)
            at += 1
        view["trusted", offset] = found
    for time in TIMES:
        chosen = next((segment for segment in segments if segment.largest >= time), None)
        view["trusted time", time] = None if chosen is None else _answer(chosen.find_time, time)
    return view


class _TrustedSegment:
    def __init__(self, disk: SimulatedFileSystem, directory: str, base: int) -> None:
        def rows(kind: type[Any], suffix: str) -> list[Any]:
            path = join(directory, file_name(base, suffix))
            if disk.stat(path) is None:
                return []
            file = disk.open(path)
            return list(kind(file, base, file.size // kind.ROW.size))

        self.base = base
        self._data = read_whole(disk, join(directory, file_name(base, LOG_SUFFIX)))
        self._offsets = rows(OffsetEntries, ".index")
        self._times = rows(TimeEntries, ".timeindex")
        self.largest = self._times[-1].timestamp_ms if self._times else -1

    @property
    def end(self) -> int:
        last = self.base
        try:
            for batch in read_batches(self._data):
                last = max(last, batch.last_offset + 1)
        except TidelogError:
            pass
        return last

    def _batches_from(self, offset: int) -> Iterator[Any]:
        position = 0
        for entry in self._offsets:
            if entry.offset > offset:
                break
            position = entry.position
        return read_batches(self._data, position) if position < len(self._data) else iter(())

    def find(self, offset: int) -> object:
        for batch in self._batches_from(offset):
            if batch.last_offset >= offset:
                return bytes(batch.buffer)
        return None

    def find_time(self, time: int) -> object:
        start = self.base
        for entry in self._times:
            if entry.timestamp_ms > time:
                break
            start = entry.offset
        for batch in self._batches_from(start):
            for record in batch:
                if record.timestamp_ms >= time:
                    return record.offset, record.timestamp_ms
        return None
