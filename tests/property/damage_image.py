"""A small partition directory with every kind of file in it, and all that can be asked of a log.

Eleven batches in three segments: plain, idempotent, compressed, one transaction committed, two aborted (one of them
begun a segment earlier), three leader epochs, times that do not only go up. There are two images: as a crash leaves it,
with everything flushed, and as a clean stop leaves it.

`answers_of` asks everything: every offset under every isolation, many times, producers, epochs, and in the end
whether the log can still be written to. An answer is a value, or the name of the error that was raised.
"""

import uuid
from collections.abc import Callable, Hashable
from functools import cache, lru_cache
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.log import AppendOrigin, Isolation, LogConfig, ManualClock, UnifiedLog
from tidelog.records import (
    Codec,
    ControlType,
    EndTxnMarker,
    NewRecord,
    Record,
    RecordBatch,
    build_batch,
    build_end_txn_marker,
    read_batches,
)
from tidelog.testing.disk import SimulatedFileSystem

DIRECTORY = "/root/orders-0"
NOW = 1_700_000_000_000
TOPIC_ID = uuid.UUID("6f1c2a60-8e0d-4d2a-9c55-0b7f4a3d9e11")
CONFIG = LogConfig(index_interval_bytes=100, segment_index_bytes=48)
SPECIAL_TIMES = (-1, -2, -3, -4, -5, -6)
LARGE = 1 << 20

CLIENT, COORDINATOR = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


class Append(NamedTuple):
    """One append of the script."""

    data: bytes
    epoch: int
    origin: AppendOrigin = CLIENT
    rolls: bool = False  # whether a new segment begins with it


def _batch(
    times: list[int],
    epoch: int,
    *,
    producer: tuple[int, int] | None = None,
    in_txn: bool = False,
    codec: Codec = Codec.NONE,
    rolls: bool = False,
) -> Append:
    """A batch with a record per time; `producer` is its id and base sequence."""
    producer_id, sequence = producer or (-1, -1)
    records = [NewRecord(b"k%d" % number, b"value", NOW + time) for number, time in enumerate(times)]
    data = build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=-1 if producer is None else 0,
        base_sequence=sequence,
        is_transactional=in_txn,
    )
    return Append(bytes(data), epoch, CLIENT, rolls)


def _marker(producer_id: int, kind: ControlType, time: int, epoch: int, *, rolls: bool = False) -> Append:
    end = EndTxnMarker(kind, 3)
    data = build_end_txn_marker(end, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW + time)
    return Append(bytes(data), epoch, COORDINATOR, rolls)


SCRIPT = (
    _batch([10, 12], 0),
    _batch([30], 0, producer=(1, 0)),
    _batch([20], 0, producer=(2, 0), in_txn=True),
    _marker(2, ABORT, 31, 0),
    _batch([40, 41, 39], 1, codec=Codec.SNAPPY, rolls=True),
    _batch([35], 1, producer=(3, 0), in_txn=True),
    _batch([36], 1, producer=(2, 1), in_txn=True),
    _batch([60], 1, producer=(1, 1)),
    _marker(3, COMMIT, 61, 1, rolls=True),
    _marker(2, ABORT, 55, 2),
    _batch([70, 50], 2),
)


class Image(NamedTuple):
    """A partition directory after the first appends of the script."""

    crashed: SimulatedFileSystem
    stopped: SimulatedFileSystem
    log_end: int


@cache
def image_of(appends: int) -> Image:
    """The images after as many appends."""
    disk = SimulatedFileSystem(ManualClock(NOW))
    log = open_log(disk)
    for append in SCRIPT[:appends]:
        if append.rolls:
            log.roll()
        log.append_as_leader(memoryview(bytearray(append.data)), append.epoch, append.origin)
        log.update_high_watermark(log.log_end_offset)
        log.tick()
    log.flush(force=True)
    crashed = disk.copy()
    log.close()
    return Image(crashed, disk.copy(), log.log_end_offset)


def open_log(disk: SimulatedFileSystem, *, recovery_point: int = 0, clean_shutdown: bool = False) -> UnifiedLog:
    """The log of the image."""
    return UnifiedLog.open(
        DIRECTORY,
        CONFIG,
        recovery_point=recovery_point,
        clean_shutdown=clean_shutdown,
        topic_id=TOPIC_ID,
        clock=ManualClock(NOW),
        fs=disk,
        lock=False,
    )


# -- questions ---------------------------------------------------------------------------------------------------------


class Refused(NamedTuple):
    """The answer is an error of the tree."""

    error: str


Answers = dict[tuple[Hashable, ...], object]  # the first part of a question names its kind


def _answer(question: Callable[..., object], *arguments: object) -> object:
    try:
        return question(*arguments)
    except TidelogError as error:
        return Refused(type(error).__name__)


class BatchSeen(NamedTuple):
    """A batch as a consumer sees it."""

    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False
    records: tuple[Record, ...] = ()

    @property
    def is_abort(self) -> bool:
        return self.is_control and ControlType.parse(self.records[0].key) is ABORT


@lru_cache(8192)
def _decoded(data: bytes) -> tuple[BatchSeen, ...]:
    """The batches of some bytes, each with its checksum compared."""
    found = []
    for batch in read_batches(data):
        batch.ensure_valid()
        records = tuple(batch)
        if isinstance(batch, RecordBatch):
            found.append(BatchSeen(batch.producer_id, batch.is_transactional, batch.is_control, records))
        else:
            found.append(BatchSeen(records=records))
    return tuple(found)


LOG_END = image_of(len(SCRIPT)).log_end
TIMES = sorted(
    {
        record.timestamp_ms + more
        for append in SCRIPT
        for batch in read_batches(append.data)
        for record in batch
        for more in (0, 1)
    }
)


def answers_of(log: UnifiedLog) -> Answers:
    """Everything that a log can be asked."""
    _answer(log.update_high_watermark, log.log_end_offset)
    answers: Answers = {
        ("log start",): log.log_start_offset,
        ("log end",): log.log_end_offset,
        ("last stable offset",): log.last_stable_offset,
        ("producers",): _answer(lambda: sorted(log.producers.active_producers())),
        ("epochs",): log.leader_epochs.entries,
        ("topic id",): log.topic_id,
    }
    for isolation in Isolation:
        for offset in range(LOG_END + 2):
            answers["read", isolation, offset] = _answer(_read, log, offset, isolation)
        answers["read on", isolation] = _answer(_read_on, log, isolation)
    for offset in range(LOG_END + 2):
        answers["batch epoch", offset] = _answer(_epoch_at, log, offset)
        answers["committed", offset] = _answer(_committed, log, offset)
    for time in (*SPECIAL_TIMES, *TIMES):
        for isolation in (Isolation.LOG_END, Isolation.COMMITTED):
            answers["time", isolation, time] = _answer(log.offset_for_time, time, isolation)
    for epoch in range(-1, 4):
        answers["epoch end", epoch] = _answer(log.end_offset_for_epoch, epoch)
    return answers


def answer_to_writing(log: UnifiedLog) -> Answers:
    """What comes of appending until the index grows, a roll, one more append and a stop."""
    return {("write",): _answer(_write, log)}


def _read(log: UnifiedLog, offset: int, isolation: Isolation) -> object:
    """The records of the one batch that a consumer gets, from `offset` on."""
    batches = _decoded(log.read(offset, 1, isolation).read())
    return tuple(
        (batch.producer_id, batch.is_control, record)
        for batch in batches
        for record in batch.records
        if record.offset >= offset
    )


def _read_on(log: UnifiedLog, isolation: Isolation) -> object:
    """How many batches a consumer gets that reads to the end, and their last offset."""
    offset, count = log.log_start_offset, 0
    while batches := _decoded(log.read(offset, LARGE, isolation).read()):
        count += len(batches)
        last = max((record.offset for batch in batches for record in batch.records), default=-1)
        if last < offset:
            return count, offset, "goes back"
        offset = last + 1
    return count, offset


def _epoch_at(log: UnifiedLog, offset: int) -> object:
    batch = log.read(offset, 1).first_batch
    return None if batch is None else batch.leader_epoch


def _committed(log: UnifiedLog, offset: int) -> object:
    """The offsets that a consumer gets to the end, without what the lists that come with the batches call aborted."""
    offsets: list[int] = []
    while offset <= LARGE:
        region = log.read(offset, LARGE, Isolation.COMMITTED)
        batches = _decoded(region.read())
        if not batches:
            break
        to_come = sorted(region.aborted or (), key=lambda txn: txn.first_offset)
        open_aborted: set[int] = set()
        for batch in batches:
            while to_come and batch.records and to_come[0].first_offset <= batch.records[-1].offset:
                open_aborted.add(to_come.pop(0).producer_id)
            if batch.is_abort:
                open_aborted.discard(batch.producer_id)
            elif not batch.is_control and not (batch.is_transactional and batch.producer_id in open_aborted):
                offsets += [record.offset for record in batch.records if record.offset >= offset]
        last = max((record.offset for batch in batches for record in batch.records), default=-1)
        if last < offset:
            return [*offsets, "goes back"]
        offset = last + 1
    return offsets


def _write(log: UnifiedLog) -> object:
    first = log.log_end_offset
    for number in range(4):
        if number == 3:
            log.roll()
        data = build_batch([NewRecord(b"new", b"value", NOW + 90)])
        log.append_as_leader(memoryview(data), 3)
    found = [_read(log, first + number, Isolation.LOG_END) for number in range(4)]
    log.close()
    return found
