"""Random work on the logs of one LogManager, on a simulated disk, with a model that follows every log.

The manager does by itself what it does in a broker: it cleans, deletes old segments, writes checkpoints, and flushes
nothing that nobody asked for. The workload appends, in transactions and outside, moves high watermarks, rolls,
truncates, deletes records and logs, moves logs between roots, and stops, kills and crashes the manager.

A step is a list of a verb and its numbers, so that a workload can be printed and run again. Whatever a step changes of
a log, both what it was and what it will be are allowed while the step is under way.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from tests.property.crash_disk import WatchedDisk
from tests.property.manager_model import LogModel
from tidelog.log import AppendOrigin, LogConfig, LogManager, ManagerConfig, ManualClock, UnifiedLog
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.files import FileSystem
from tidelog.log.names import TopicPartition
from tidelog.records import ControlType, EndTxnMarker, NewRecord, build_batch, build_end_txn_marker, read_batches
from tidelog.testing.disk import SimulatedFileSystem

NOW = 1_700_000_000_000
ROOTS = ("/one", "/two")
KEPT, AGED, BOTH = TopicPartition("kept", 0), TopicPartition("aged", 0), TopicPartition("both", 0)
PARTITIONS = (KEPT, AGED, BOTH)
TOPICS: Mapping[str, Mapping[str, str]] = {
    "kept": {"cleanup.policy": "compact"},
    "aged": {"cleanup.policy": "delete", "retention.bytes": "1800", "retention.ms": "60000"},
    "both": {"cleanup.policy": "compact,delete", "retention.bytes": "2600", "retention.ms": "-1"},
}
TOPIC_IDS = {partition: uuid.UUID(int=(4 << 76) + (8 << 60) + n) for n, partition in enumerate(PARTITIONS, 1)}
TXN_PRODUCERS, PRODUCERS = (11, 12), (1, 2)
_DEFAULTS = LogConfig(
    segment_bytes=700, segment_index_bytes=200, index_interval_bytes=150, min_cleanable_dirty_ratio=0.05,
    delete_retention_ms=2_000, file_delete_delay_ms=1_000,
)  # fmt: skip
_MANAGER = ManagerConfig(
    initial_task_delay_ms=0, retention_check_interval_ms=3_000, recovery_point_checkpoint_interval_ms=4_000,
    log_start_checkpoint_interval_ms=5_000, high_watermark_checkpoint_interval_ms=2_000, file_delete_delay_ms=1_000,
    verification=False, cleaner=CleanerConfig(backoff_ms=500, dedupe_buffer_size=24 * 5),
)  # fmt: skip

State = LogModel | None  # None: there is no such log


class Workload(NamedTuple):
    """Steps over logs, and the salt of everything random in them."""

    steps: list[list[Any]]
    salt: str
    unordered: bool = False


def random_workload(seed: int, number: int, *, unordered: bool = False) -> Workload:
    """The n-th workload of a seed."""
    rng = Random(f"manager {seed} {number} {unordered}")

    def which() -> int:
        return rng.choice((0, 0, 1, 2, 2))  # a partition: the compacted ones more often

    verbs: list[tuple[int, Callable[[], list[Any]]]] = [
        (30, lambda: ["put", which(), rng.randint(1, 4)]),
        (10, lambda: ["produce", which(), rng.choice(PRODUCERS), rng.randint(1, 2)]),
        (14, lambda: ["txn", which(), rng.choice(TXN_PRODUCERS), rng.randint(1, 2)]),
        (14, lambda: ["end", which(), rng.choice(TXN_PRODUCERS), rng.random() < 0.6]),
        (8, lambda: ["replicate", which()]),
        (20, lambda: ["wait", rng.choice((10, 600, 1_500, 3_000, 20_000))]),
        (12, lambda: ["roll", which()]),
        (2, lambda: ["flush", which()]),
        (4, lambda: ["truncate", which(), rng.randint(1, 4)]),
        (2, lambda: ["begin", which(), rng.choice((-4, 0, 3))]),
        (3, lambda: ["delete_records", which(), rng.randint(1, 6)]),
        (2, lambda: ["delete", which()]),
        (3, lambda: ["move", which()]),
        (2, lambda: ["stop"]),
        (2, lambda: ["kill"]),
        (2, lambda: ["crash"]),
    ]
    choices = rng.choices([make for _, make in verbs], [weight for weight, _ in verbs], k=rng.randint(15, 45))
    return Workload([make() for make in choices], f"{seed}.{number}", unordered)


class ManagerRun:
    """A workload that is being run.

    `on_cut` is called after every call that changes something on the disk, and once more after every step.
    """

    def __init__(self, workload: Workload, on_cut: Callable[["ManagerRun"], None]) -> None:
        self.workload = workload
        self.clock = ManualClock(NOW)
        self.cuts = 0
        self.step = -1
        self.is_between_steps = False
        self.moving: tuple[TopicPartition, str] | None = None  # it may have two directories: the new root
        self.states: dict[TopicPartition, tuple[State, ...]] = dict.fromkeys(PARTITIONS, (None,))
        self.disk = SimulatedFileSystem(self.clock, unordered_directories=workload.unordered)
        for root in ROOTS:
            self.disk.make_directory(root)
            self.disk.open_write(f"{root}/meta.properties").write_at(0, b"version=1\nnode.id=1\ncluster.id=c\n")
        self.disk.sync_all()
        self._on_cut = on_cut
        self._number = 0
        self.is_truncating = False
        self._manager: LogManager | None = None

    @property
    def manager(self) -> LogManager:
        assert self._manager is not None
        return self._manager

    def run(self) -> None:
        self._open()
        for number, step in enumerate(self.workload.steps):
            self.step = number
            getattr(self, f"_do_{step[0]}")(*step[1:])
            self.moving = None
            self.is_truncating = False
            self._follow()
            self.is_between_steps = True
            self._cut()
            self.is_between_steps = False

    def rng(self, what: object) -> Random:
        return Random(f"{self.workload.salt} {what}")

    def _cut(self) -> None:
        self.cuts += 1
        if self._manager is not None and not self._manager.is_closed and not self.is_truncating:
            self._note_bounds()
        self._on_cut(self)

    def _note_bounds(self) -> None:
        """Note what the logs say by themselves: how much is flushed, and how far the log start has moved."""
        for partition, states in self.states.items():
            log = self.manager.logs.get(partition)
            if log is not None and log.failure is None:
                self.states[partition] = tuple(state and _bounded(state, log) for state in states)

    def _follow(self) -> None:
        """A step is over: what it has made of the logs is what they are."""
        for partition in PARTITIONS:
            state = self.states[partition][-1]
            log = self.manager.logs.get(partition)
            assert (log is None) == (state is None), partition
            if log is not None and state is not None:
                assert log.log_end_offset == state.end, f"{log}, by the model {state.end}"
            self.states[partition] = (state,)
        self._note_bounds()

    # -- logs --------------------------------------------------------------------------------------------------------

    def _model(self, number: int) -> tuple[UnifiedLog, LogModel]:
        """The log of a partition, made if there is none, and its model."""
        partition = PARTITIONS[number]
        if self.states[partition] == (None,):
            fresh = LogModel(is_compacted=partition != AGED)
            self.states[partition] = (None, fresh)
            root = ROOTS[self.rng(f"root {self.step}").randrange(2)]
            self.manager.get_or_create(partition, root=root, topic_id=TOPIC_IDS[partition])
            self.states[partition] = (fresh,)
        state = self.states[partition][-1]
        assert state is not None
        return self.manager.logs[partition], state

    def _expect(self, number: int, state: State) -> None:
        self.states[PARTITIONS[number]] = (self.states[PARTITIONS[number]][-1], state)

    def _records(self, count: int) -> list[NewRecord]:
        rng = self.rng(f"records {self._number}")
        found = []
        for _ in range(count):
            self._number += 1
            value = None if rng.random() < 0.2 else b"%d " % self._number + bytes(rng.choice((0, 20, 120)))
            found.append(NewRecord(b"key %d" % rng.randrange(4), value, self.clock.now_ms()))
        return found

    def _append(self, number: int, data: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        log, state = self._model(number)
        self._expect(number, state.appended(data))
        log.append_as_leader(memoryview(bytearray(data)), 0, origin)
        self.states[PARTITIONS[number]] = (self.states[PARTITIONS[number]][-1],)
        if self.rng(f"watermark {self._number}").random() < 0.8:
            log.update_high_watermark(log.log_end_offset)

    def _do_put(self, number: int, count: int) -> None:
        self._append(number, build_batch(self._records(count)))

    def _do_produce(self, number: int, producer_id: int, count: int, *, is_transactional: bool = False) -> None:
        log, _ = self._model(number)
        entry = log.producers.last_entry(producer_id)
        sequence = 0 if entry is None else entry.last_sequence + 1
        self._append(
            number,
            build_batch(
                self._records(count), producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
                is_transactional=is_transactional,
            ),
        )  # fmt: skip

    def _do_txn(self, number: int, producer_id: int, count: int) -> None:
        self._do_produce(number, producer_id, count, is_transactional=True)

    def _do_end(self, number: int, producer_id: int, is_commit: bool) -> None:
        _, state = self._model(number)
        if producer_id in state.open_txns(state.end):
            kind = ControlType.COMMIT if is_commit else ControlType.ABORT
            self._append(number, marker_of(producer_id, kind, self.clock.now_ms()), AppendOrigin.COORDINATOR)

    def _do_replicate(self, number: int) -> None:
        log, _ = self._model(number)
        log.update_high_watermark(log.log_end_offset)

    def _do_wait(self, ms: int) -> None:
        """Let time pass, and the manager do what is due in it."""
        for _ in range(4):
            self.clock.advance(ms // 4)
            self.manager.tick()

    def _do_roll(self, number: int) -> None:
        self._model(number)[0].roll()

    def _do_flush(self, number: int) -> None:
        self._model(number)[0].flush()

    def _do_truncate(self, number: int, batches: int) -> None:
        """As a follower does: to an offset that is not below the high watermark."""
        log, state = self._model(number)
        firsts = [entry.records[0].offset for entry in state.entries[-batches:]]
        offset = max([min(firsts, default=state.end), log.high_watermark, state.start])
        if offset < state.end:
            self.is_truncating = True
            self._expect(number, state.cut(offset))
            self._lower_floor(number)
            self.manager.truncate_to({PARTITIONS[number]: offset})

    def _do_begin(self, number: int, ahead: int) -> None:
        _, state = self._model(number)
        offset = max(state.end + ahead, 0)
        self.is_truncating = True
        self.states[PARTITIONS[number]] = (state, *state.without_segments(), state.begun_at(offset))
        self._lower_floor(number)
        self.manager.truncate_fully_and_start_at(PARTITIONS[number], offset)

    def _lower_floor(self, number: int) -> None:
        """What is about to be cut may be lost, in either state."""
        partition = PARTITIONS[number]
        floor = min(state.floor for state in self.states[partition] if state is not None)
        self.states[partition] = tuple(state and replace(state, floor=floor) for state in self.states[partition])

    def _do_delete_records(self, number: int, forward: int) -> None:
        log, state = self._model(number)
        offset = min(state.start + forward, log.last_stable_offset)
        self._expect(number, replace(state, start=max(offset, state.start)))
        log.delete_records(offset)

    def _do_delete(self, number: int) -> None:
        if self.states[PARTITIONS[number]] != (None,):
            self._expect(number, None)
            self.manager.delete(PARTITIONS[number])

    def _do_move(self, number: int) -> None:
        partition = PARTITIONS[number]
        log, _ = self._model(number)
        target = next(root for root in ROOTS if not log.directory.startswith(f"{root}/"))
        copy = self.manager.get_or_create(partition, root=target, future=True, topic_id=TOPIC_IDS[partition])
        begin = self._first_offset(log)
        if begin > copy.log_end_offset:
            self.manager.truncate_fully_and_start_at(partition, begin, future=True)
        while copy.log_end_offset < log.log_end_offset:
            region = log.read(max(copy.log_end_offset, log.log_start_offset), 1 << 20)
            if not region.size:
                break
            copy.append_as_follower(memoryview(bytearray(region.read())))
        if copy.log_end_offset < log.log_end_offset:  # its last batches are gone, and only their offsets are left
            self.manager.delete(partition, future=True)
            return
        self.moving = partition, target
        self.manager.replace_current_with_future(partition)

    def _first_offset(self, log: UnifiedLog) -> int:
        """Where a copy of a log begins: with the batch that the log start lies in."""
        region = log.read(log.log_start_offset, 1 << 20)
        if not region.size:
            return log.log_end_offset
        return min(next(iter(read_batches(region.read()))).base_offset, log.log_start_offset)

    # -- stops -------------------------------------------------------------------------------------------------------

    def _do_stop(self) -> None:
        self.manager.close()
        self._reopen(self.disk)

    def _do_kill(self) -> None:
        self._reopen(self.disk.copy())

    def _do_crash(self) -> None:
        from tests.property.manager_crashes import judge

        image = self.disk.after_crash(self.rng(f"crash {self.cuts}"))
        self.states = judge(self, image.copy(), self.rng(f"judge {self.cuts}"), is_power_loss=True)
        self._reopen(image)

    def _reopen(self, disk: SimulatedFileSystem) -> None:
        self._manager = None
        self.disk = disk
        self._open()

    def _watched(self) -> FileSystem:
        return WatchedDisk(self.disk, self._cut)

    def _open(self) -> None:
        manager = open_manager(self._watched(), self.clock, self.rng(f"manager {self.step}"))
        for partition, states in self.states.items():
            log = manager.logs.get(partition)
            state = states[-1]
            if log is not None and state is not None:  # a log start that was not written down goes back
                self.states[partition] = (replace(state, start=log.log_start_offset, end=log.log_end_offset),)
        self._manager = manager


def _bounded(state: LogModel, log: UnifiedLog) -> LogModel:
    flushed = min(log.recovery_point, state.end)
    return replace(state, floor=max(state.floor, flushed), start=max(state.start, log.log_start_offset))


def open_manager(fs: FileSystem, clock: ManualClock, rng: Random) -> LogManager:
    """A manager over what lies there. As a broker does, it tells every log the id of its topic.

    The names of deleted directories come from `rng`, so no two managers over the same disk get an equal one.
    """
    manager = LogManager.open(ROOTS, _DEFAULTS, topic_configs=TOPICS, config=_MANAGER, clock=clock, fs=fs, rng=rng)
    for partition in list(manager.logs):
        manager.get_or_create(partition, topic_id=TOPIC_IDS[partition])
    return manager


def marker_of(producer_id: int, kind: ControlType, now_ms: int) -> bytearray:
    """The end of a transaction."""
    return build_end_txn_marker(EndTxnMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=now_ms)
