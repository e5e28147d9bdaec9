"""The everyday append and the general one: the same answers, the same bytes, the same state, whatever is sent.

Two logs get the same buffers. One takes the quick way wherever that is willing, with the kernel loaded; the other never
does, and its records are looked at by the readable path or by the kernel.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

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
ALWAYS = 2**63 - 1

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

mostly = st.sampled_from
steps_of_sequence = mostly([0, 0, 0, 0, 0, 0, -1, -2, -4, 1, 5])
damage = st.builds(
    Damage,
    mostly(["byte", "sealed byte", "header", "header", "cut", "longer", "magic", "length", "base offset"]),
    st.integers(0, 400),
    st.integers(1, 255),
)
batches = st.builds(
    Batch,
    producer_id=mostly([-1, -1, 1, 1, 1, 2, 2, 3]),
    epoch_step=mostly([0, 0, 0, 0, 0, 0, 0, -1, 1]),
    sequence_step=steps_of_sequence,
    times=st.lists(mostly([0, 0, 1, 5, -5, -2000, 2000, -NOW - 1]), min_size=1, max_size=4).map(tuple),
    value_size=mostly([0, 3, 3, 30, 200]),
    has_keys=mostly([True, True, False]),
    codec=mostly([Codec.NONE, Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]),
    damage=st.one_of(st.none(), st.none(), st.none(), st.none(), damage),
    is_transactional=mostly([False, False, False, False, False, False, True]),
)
ordinary = st.builds(
    Batch,
    producer_id=mostly([-1, 1, 2, 3]),
    epoch_step=st.just(0),
    sequence_step=st.just(0),
    times=st.lists(st.integers(-3, 3), min_size=1, max_size=4).map(tuple),
    value_size=mostly([3, 30]),
    has_keys=st.just(True),
    codec=st.just(Codec.NONE),
    damage=st.none(),
)
others = st.builds(
    Do,
    mostly(OTHERS),
    st.integers(0, 3000),
)
steps = st.lists(st.one_of(batches, batches, *[ordinary] * 5, others), min_size=1, max_size=30).map(
    lambda todo: todo * 2
)

plain_configs = st.builds(LogConfig, segment_bytes=mostly([700, 100_000]), index_interval_bytes=mostly([0, 100, 4096]))
strange_configs = st.builds(
    LogConfig,
    segment_bytes=mostly([300, 700, 100_000, 100_000]),
    segment_ms=mostly([ALWAYS, 1000, 1]),
    segment_jitter_ms=mostly([0, 500]),
    segment_index_bytes=mostly([24, 4096]),
    index_interval_bytes=mostly([0, 100, 4096]),
    max_message_bytes=mostly([150, 10_000, 10_000]),
    cleanup_policy=mostly([("delete",), ("delete",), ("compact",)]),
    compression_type=mostly(["producer", "producer", "producer", "uncompressed", "gzip", "lz4"]),
    message_timestamp_type=mostly(["CreateTime", "CreateTime", "CreateTime", "LogAppendTime"]),
    message_timestamp_before_max_ms=mostly([ALWAYS, ALWAYS, 1000]),
    message_timestamp_after_max_ms=mostly([3_600_000, 1000, ALWAYS]),
    flush_messages=mostly([ALWAYS, 3]),
)
configs = st.one_of(plain_configs, strange_configs)


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


# -- tests -------------------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(config=configs, todo=steps, by_kernel=st.booleans())
def test_both_ways_of_appending_do_the_same(config: LogConfig, todo: list[Batch | Do], by_kernel: bool) -> None:
    pair = Pair(config, by_kernel=by_kernel)
    for step in todo:
        pair.do(step)
    pair.stop()
    event("quick" if pair.quick.taken else "never quick")


def a_batch(rng: Random) -> Batch:
    """A batch with at most a few things that are unusual."""

    def seldom(usual: Any, *unusual: Any) -> Any:
        return rng.choice(unusual) if rng.random() < 0.05 else usual

    return Batch(
        producer_id=rng.choice([-1, 1, 2, 3]),
        epoch_step=seldom(0, -1, 1),
        sequence_step=seldom(0, -1, -2, -4, 1, 5),
        times=tuple(seldom(rng.randint(-3, 3), -2000, 2000, -NOW - 1) for _ in range(rng.randint(1, 3))),
        value_size=rng.choice([0, 3, 30]),
        has_keys=seldom(True, False),
        codec=seldom(Codec.NONE, *Codec),
        damage=seldom(
            None, Damage("header", rng.randrange(99), rng.randint(1, 255)), Damage("byte", rng.randrange(99), 1)
        ),
        is_transactional=seldom(False, True),
    )


@pytest.mark.parametrize(
    "topic",
    [
        {},
        {"segment_bytes": 1000, "index_interval_bytes": 200},
        {"cleanup_policy": ("compact",), "segment_index_bytes": 64, "index_interval_bytes": 0},
        {"segment_ms": 2000, "segment_jitter_ms": 500, "flush_messages": 3},
        {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 1000, "max_message_bytes": 120},
    ],
)
def test_both_ways_do_the_same_on_long_runs_of_ordinary_batches(topic: dict[str, Any]) -> None:
    taken = 0
    for seed in range(15):
        rng = Random(seed)
        pair = Pair(LogConfig(**topic), by_kernel=bool(seed % 2))
        for _ in range(250):
            pair.do(Do(rng.choice(OTHERS), rng.randrange(3000)) if rng.random() < 0.07 else a_batch(rng))
        pair.stop()
        taken += pair.quick.taken
    assert taken > 1000


def an_ordinary(producer_id: int, **changes: Any) -> Batch:
    return Batch(producer_id, 0, 0, (1, 2), 10, True, Codec.NONE, None)._replace(**changes)


def taken_of(todo: list[Batch | Do], config: LogConfig | None = None) -> int:
    """How many batches the quick way takes."""
    pair = Pair(config or LogConfig(), by_kernel=True)
    for step in todo:
        pair.do(step)
    pair.stop()
    return pair.quick.taken


def test_the_quick_way_takes_what_is_ordinary() -> None:
    assert taken_of([an_ordinary(-1)] * 5) == 5
    assert taken_of([an_ordinary(1)] * 5) == 4  # of a producer that is not known it is not the first


@pytest.mark.parametrize(
    "unusual",
    [
        an_ordinary(1, sequence_step=-2),
        an_ordinary(1, sequence_step=3),
        an_ordinary(1, epoch_step=1, sequence_step=-2),
        an_ordinary(1, codec=Codec.GZIP),
        an_ordinary(1, damage=Damage("byte", 70, 1)),
        an_ordinary(1, damage=Damage("longer", 1, 1)),
        an_ordinary(1, times=(1, 7_200_000)),
        Do("leader epoch"),
    ],
)
def test_the_quick_way_leaves_alone_what_is_unusual(unusual: Batch | Do) -> None:
    before = taken_of([an_ordinary(1)] * 3)
    assert taken_of([*[an_ordinary(1)] * 3, unusual]) == before == 2


def test_the_sequence_begins_again_behind_its_largest_number() -> None:
    # Not the first, and from the one that begins with 0 again on none while larger numbers are remembered.
    assert taken_of([an_ordinary(3)] * 12) == 6


def test_topics_that_stamp_the_time_of_append_have_no_quick_way() -> None:
    append_time = LogConfig(message_timestamp_type="LogAppendTime")
    assert taken_of([an_ordinary(-1)] * 3, append_time) == 0
