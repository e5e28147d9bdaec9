"""Two logs to which the same is done: one takes the quick way of appending wherever that is willing, the other never.

pair = Pair(LogConfig(), by_kernel=True)
pair.do(Batch(...))      sent to both; answers, buffers and state are compared
pair.do(Do("roll"))      whatever else is done to both
pair.stop()              the files are compared, and again when both are closed
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

import pytest

from tidelog.errors import InvalidRecordError, TidelogError
from tidelog.kernels.validate import validate_batch
from tidelog.log import AppendInfo, AppendOrigin, LogConfig, ManualClock, UnifiedLog, unified_log
from tidelog.log.fact_finder import FACT_FINDER
from tidelog.log.files import read_whole
from tidelog.log.quick_append import QuickAppend
from tidelog.records import (
    BATCH_HEADER_SIZE,
    BatchHeader,
    Codec,
    ControlType,
    EndTxnMarker,
    NewRecord,
    build_batch,
    build_end_txn_marker,
)
from tidelog.records.java import MAX_INT32
from tidelog.testing.disk import SimulatedFileSystem

DIRECTORY = "/root/orders-0"
NOW = 1_700_000_000_000

# -- what is sent ------------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """A batch that a client sends."""

    producer_id: int
    epoch_step: int  # from the epoch that the producer is in
    sequence_step: int  # from the sequence that would follow
    times: tuple[int, ...]  # of its records, before and behind NOW
    value_size: int
    has_keys: bool
    codec: Codec
    damage: "Damage | None"
    is_transactional: bool = False


class Damage(NamedTuple):
    """What is wrong with it."""

    kind: str
    place: int
    value: int


class Do(NamedTuple):
    """Something else that is done to both logs."""

    what: str
    number: int = 0


OTHERS = (
    "roll", "flush", "wait", "leader epoch", "high watermark", "truncate", "follow", "end", "verify", "verified",
)  # fmt: skip
HEADER_FIELDS = (
    "attributes", "last_offset_delta", "max_timestamp_ms", "producer_epoch", "base_sequence", "records_count",
)  # fmt: skip


def damaged(batch: bytearray, damage: Damage) -> bytearray:
    """The batch with something wrong, under a checksum that holds or does not."""
    kind, place, value = damage
    if kind == "byte":
        batch[place % len(batch)] ^= value
    elif kind == "sealed byte":
        body = batch[BATCH_HEADER_SIZE:]
        body[place % len(body)] ^= value
        return BatchHeader.unpack(batch).seal(body)
    elif kind == "header":
        name = HEADER_FIELDS[place % len(HEADER_FIELDS)]
        header = BatchHeader.unpack(batch)
        changed = getattr(header, name) ^ (1 << value % 7)
        return header._replace(**{name: changed}).seal(batch[BATCH_HEADER_SIZE:])
    elif kind == "cut":
        return batch[: place % len(batch)]
    elif kind == "longer":
        return batch + bytes([value]) * (place % 80 + 1)
    else:
        batch[{"magic": 16, "length": 11, "base offset": 7}[kind]] ^= value
    return batch


# -- the two logs ------------------------------------------------------------------------------------------------------


class Counted(QuickAppend):
    """The quick way with the kernel at hand from the first byte, counting what it takes."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        super().__init__()
        self._bytes_left = 0
        self.taken = 0

    def append(self, log: UnifiedLog, buffer: memoryview, leader_epoch: int) -> AppendInfo | None:
        before = bytes(buffer)
        info = super().append(log, buffer, leader_epoch)
        if info is None:
            assert bytes(buffer) == before, "left to the general path, and not left alone"
        else:
            self.taken += 1
        return info


class Never(QuickAppend):
    """No quick way."""

    __slots__ = ()

    def append(self, log: UnifiedLog, buffer: memoryview, leader_epoch: int) -> None:
        return None


@contextmanager
def going(way: QuickAppend, *, by_kernel: bool) -> Iterator[None]:
    """Appends go that way, and the general path looks at records by the kernel or readably."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unified_log, "QUICK_APPEND", way)
        patch.setattr(FACT_FINDER, "_readable_bytes", sys.maxsize)
        patch.setattr(FACT_FINDER, "find", validate_batch if by_kernel else FACT_FINDER._find_readably)
        yield


class Pair:
    """Two logs to which the same is done."""

    def __init__(self, config: LogConfig, *, by_kernel: bool) -> None:
        self.clock = ManualClock(NOW)
        self.by_kernel = by_kernel
        self.quick = Counted()
        self.ways = (self.quick, Never())
        self.disks = (SimulatedFileSystem(self.clock), SimulatedFileSystem(self.clock))
        self.logs = tuple(
            UnifiedLog.open(DIRECTORY, config, clock=self.clock, fs=disk, rng=Random(5), lock=False)
            for disk in self.disks
        )
        self.leader_epoch = 0
        self.next_sequence = {1: 0, 2: 0, 3: MAX_INT32 - 3}  # of a producer that is not known, any is taken
        self.epochs = {1: 0, 2: 0, 3: 0}
        for log in self.logs:
            log.assign_epoch_start_offset(0, 0)

    def do(self, step: Batch | Do) -> None:
        if isinstance(step, Batch):
            self.send(step)
        else:
            self.do_other(step)
        self.compare()

    def send(self, sent: Batch) -> None:
        data = self.built(sent)
        buffers = [bytearray(data), bytearray(data)]
        outcomes = []
        for log, way, buffer in zip(self.logs, self.ways, buffers, strict=True):
            with going(way, by_kernel=self.by_kernel):
                outcomes.append(_outcome(log.append_as_leader, memoryview(buffer), self.leader_epoch))
        assert outcomes[0] == outcomes[1]
        assert buffers[0] == buffers[1]
        info = outcomes[0]
        if isinstance(info, AppendInfo) and not info.is_duplicate and sent.producer_id >= 0:
            self.learn(sent.producer_id)

    def built(self, sent: Batch) -> bytearray:
        records = [
            NewRecord(b"key" if sent.has_keys else None, b"v" * sent.value_size, max(self.clock.now_ms() + time, -1))
            for time in sent.times
        ]
        options: dict[str, Any] = {}
        if sent.producer_id >= 0:
            sequence = self.next_sequence[sent.producer_id] + sent.sequence_step
            options = {
                "producer_id": sent.producer_id,
                "producer_epoch": max(self.epochs[sent.producer_id] + sent.epoch_step, 0),
                "base_sequence": sequence % (MAX_INT32 + 1),
                "is_transactional": sent.is_transactional,
            }
        batch = build_batch(records, codec=sent.codec, **options)
        return batch if sent.damage is None else damaged(batch, sent.damage)

    def do_other(self, step: Do) -> None:
        if step.what == "wait":
            self.clock.advance(step.number)
        elif step.what == "leader epoch":
            self.leader_epoch += 1
        first, second = (_outcome(self.do_one, log, *step) for log in self.logs)
        assert first == second
        if step.what == "follow":
            self.learn(1 + step.number % 3)

    def do_one(self, log: UnifiedLog, what: str, number: int) -> None:
        producer_id = 1 + number % 3
        if what == "wait":
            log.tick()
        elif what == "roll":
            log.roll()
        elif what == "flush":
            log.flush()
        elif what == "high watermark":
            log.update_high_watermark(number % (log.log_end_offset + 1))
        elif what == "truncate":
            log.truncate_to(max(0, log.log_end_offset - number % 4))
        elif what == "follow":  # of a leader's batches no sequence is checked: the one that comes next is here already
            for sequence in (number + 1, number):
                log.append_as_follower(memoryview(self.replicated(producer_id, sequence, log.log_end_offset)))
        elif what == "end":
            for each in self.epochs:
                self.end_txn(log, each)
        elif what == "verify":
            log.producers.verification_entry(producer_id, 0, 0)
        elif what == "verified":
            for each in self.epochs:
                log.producers.clear_verification(each)

    def learn(self, producer_id: int) -> None:
        """Let the producer go on where the log stands."""
        entry = self.logs[1].producers.last_entry(producer_id)
        if entry is not None:
            self.epochs[producer_id] = entry.epoch
            self.next_sequence[producer_id] = entry.last_sequence + 1

    def end_txn(self, log: UnifiedLog, producer_id: int) -> None:
        marker = build_end_txn_marker(
            EndTxnMarker(ControlType.COMMIT, 0),
            producer_id=producer_id,
            producer_epoch=self.epochs[producer_id],
            timestamp_ms=self.clock.now_ms(),
        )
        log.append_as_leader(memoryview(marker), self.leader_epoch, AppendOrigin.COORDINATOR)

    def replicated(self, producer_id: int, sequence: int, offset: int) -> bytearray:
        return build_batch(
            [NewRecord(b"key", b"value", self.clock.now_ms())],
            base_offset=offset,
            partition_leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=self.epochs[producer_id],
            base_sequence=sequence,
        )

    # -- comparing -----------------------------------------------------------------------------------------------------

    def compare(self) -> None:
        first, second = map(_state, self.logs)
        assert first == second

    def compare_files(self) -> None:
        first, second = map(_files, self.disks)
        assert first == second

    def stop(self) -> None:
        self.compare_files()
        for log in self.logs:
            log.close()
        self.compare_files()


def _outcome(action: Callable[..., object], *arguments: object) -> object:
    """What an action gives, or all that its error says."""
    try:
        return action(*arguments)
    except TidelogError as error:
        faults = error.record_errors if isinstance(error, InvalidRecordError) else ()
        return type(error), str(error), faults


def _state(log: UnifiedLog) -> dict[str, object]:
    """All that an append changes, but for the files."""
    active = log.active_segment
    return {
        "bounds": (log.log_start_offset, log.high_watermark, log.last_stable_offset, log.local.log_end),
        "recovery point": log.recovery_point,
        "segments": [(segment.base_offset, segment.size) for segment in log.segments],
        "times": (active.max_timestamp, active.first_batch_timestamp_ms),
        "index": (active.offset_index.entries, active.time_index.entries),
        "epochs": log.leader_epochs.entries,
        "map end": log.producers.map_end_offset,
        "producers": [
            (entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.last_timestamp_ms, entry.txn_first_offset)
            + tuple(entry.batches)
            for entry in log.producers.producers.values()
        ],
        "order": log.producers.producers.java_order(),
        "scheduled": len(log.local.schedule),
    }


def _files(disk: SimulatedFileSystem) -> dict[str, bytes]:
    return {name: read_whole(disk, f"{DIRECTORY}/{name}") for name in disk.list(DIRECTORY)}
