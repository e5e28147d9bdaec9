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
from itertools import pairwise
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.log import AppendOrigin, Isolation, LogConfig, ManualClock, UnifiedLog
from tidelog.records import (
    Codec,
    ControlType,
    EndTxnMarker,
    NewRecord,
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
LOG_END = image_of(len(SCRIPT)).log_end
TIMES = sorted({time + more for append in SCRIPT for time in [*_times_of(append.data)] for more in (0, 1)}) if False else ()


def _answer(question: Callable[[], object]) -> object:
    try:
        return question()
    except TidelogError as error:
        return Refused(type(error).__name__)


@lru_cache(8192)
def _decoded(data: bytes) -> object:
    """The batches of some bytes, as a consumer reads them: checksum first."""
    found = []
    for batch in read_batches(data):
        batch.ensure_valid()
        found.append((batch.base_offset, batch.producer_id, batch.is_control, tuple(batch)))
    return tuple(found)
