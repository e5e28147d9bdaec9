"""Running a workload of the crash campaign, and knowing at every moment what a crash may leave of it.

Checkpoints of recovery point and log start are written as a LogManager should: now and then, after every truncation,
and at a clean stop. The log start goes first, so that nobody believes bytes that were never flushed because they had
been deleted; and it goes down before a truncation below it, because a log that ends below its start is thrown away.
They are files of the root, or, in other workloads, remembered outside: then nothing is synced by the way.
"""

import uuid
from collections import Counter
from collections.abc import Callable
from random import Random

from tests.property.crash_disk import WatchedDisk
from tests.property.crash_judge import PARTITION, ROOT, Broken, Expectation, Stop, check, judge, open_log, read_stop
from tests.property.crash_model import Batch, State, batch_of, stamped
from tests.property.crash_steps import Workload
from tidelog.errors import TidelogError
from tidelog.log import AppendOrigin, LogConfig, ManualClock, UnifiedLog
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.files import join
from tidelog.log.names import LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tidelog.records import ControlType, EndTxnMarker, NewRecord, build_batch, build_end_txn_marker
from tidelog.records.compression import Codec
from tidelog.testing.disk import SimulatedFileSystem

NOW = 1_700_000_000_000
TOPIC_ID = uuid.UUID("3a29ab75-d8d2-4f0d-b45c-0879567174fc")
_NOT_SETTINGS = ("has_files", "unordered")


class Run:
    """A workload that is being run, and what is known of its log at any moment.

    `on_cut` is called behind every call, and once more behind every close.
    """

    def __init__(
        self, workload: Workload, on_cut: Callable[["Run"], None], watched: type[WatchedDisk] = WatchedDisk
    ) -> None:
        settings = workload.settings
        self.workload = workload
        self.config = LogConfig(**{name: value for name, value in settings.items() if name not in _NOT_SETTINGS})
        self.clock = ManualClock(NOW)
        self.cuts = 0
        self.step = -1
        self._has_files: bool = settings["has_files"]
        self._on_cut = on_cut
        self._noted = Stop()
        self._disk = SimulatedFileSystem(self.clock, unordered_directories=settings["unordered"])
        self._disk.make_directory(ROOT)
        self._disk.sync_all()
        self._watched = watched
        self._fs = watched(self._disk, self._cut)
        self._log: UnifiedLog | None = None
        self._state = State()
        self._next: State | None = None  # what the step that is under way will make of it
        self._floor = 0
        self._is_cutting = False  # the step under way takes flushed data away
        self._topic_id: uuid.UUID | None = None
        self._id_from = 0
        self._deleted_to = 0
        self._number = 0  # makes batches differ
        self._last_of: dict[int, bytes] = {}
        self._epoch_of: Counter[int] = Counter()

    @property
    def disk(self) -> SimulatedFileSystem:
        """The disk as it is now."""
        return self._disk

    @property
    def log(self) -> UnifiedLog:
        assert self._log is not None
        return self._log

    def expectation(self) -> Expectation:
        """What a crash at this moment may leave."""
        floor = self._floor
        if self._log is not None and not self._is_cutting:
            floor = max(floor, self._log.recovery_point)
        return Expectation(
            states=(self._state,) if self._next is None else (self._state, self._next),
            floor=floor,
            noted=None if self._has_files else self._noted,
            topic_id=self._topic_id,
            id_from=self._id_from,
            deleted_to=self._deleted_to,
        )

    def image_rng(self, variant: int = 0) -> Random:
        """The numbers that decide what a crash at this moment leaves."""
        return Random(f"{self.workload.salt} {self.cuts} {variant}")

    def _cut(self) -> None:
        self.cuts += 1
        self._on_cut(self)

    def run(self) -> None:
        """Run all steps. An error of the engine is a finding, too."""
        self._open()
        for number, step in enumerate(self.workload.steps):
            self.step = number
            try:
                getattr(self, f"_do_{step[0]}")(*step[1:])
            except TidelogError as error:
                raise Broken("work", f"{type(error).__name__} in {step}: {error}") from error
            if self._next is not None:
                self._state, self._next = self._next, None
            self._is_cutting = False
            self._floor = max(self._floor, self.log.recovery_point)
            self._deleted_to = max(self._deleted_to, self._state.start)
            require_same(self.log, self._state)

    # -- appending ---------------------------------------------------------------------------------------------------

    def _records(self, count: int, size: int) -> list[NewRecord]:
        rng = Random(f"{self.workload.salt} records {self._number}")
        self._number += 1
        now = self.clock.now_ms() + rng.choice((0, 0, 0, 1, 7, -5000))
        return [NewRecord(b"%d.%d" % (self._number, n), rng.randbytes(size), now + n) for n in range(count)]

    def _leader_epoch(self) -> int:
        """The epoch of the leader that writes now, which may be an older one behind a truncation."""
        newest = self._state.batches[-1].leader_epoch if self._state.batches else 0
        return max(self.log.latest_epoch or 0, newest)

    def _lead(self, data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        epoch = self._leader_epoch()
        self._next = self._state.appended([stamped(data, self._state.end, epoch)])
        self.log.append_as_leader(memoryview(bytearray(data)), epoch, origin)
        self.log.update_high_watermark(self.log.log_end_offset)

    def _do_append(self, records: int, size: int, codec: int) -> None:
        size = min(size, (self.config.segment_bytes - 200) // records - 30)
        self._lead(bytes(build_batch(self._records(records, size), codec=Codec(codec))))

    def _do_produce(self, producer_id: int, records: int, *, is_transactional: bool = False) -> None:
        entry = self.log.producers.last_entry(producer_id)
        epoch = max(self._epoch_of[producer_id], 0 if entry is None else entry.epoch)
        sequence = 0 if entry is None or entry.epoch != epoch else entry.last_sequence + 1
        data = build_batch(
            self._records(records, 20), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
            is_transactional=is_transactional,
        )  # fmt: skip
        self._last_of[producer_id] = bytes(data)
        self._lead(bytes(data))

    def _do_again(self, producer_id: int) -> None:
        entry = self.log.producers.last_entry(producer_id)
        data = self._last_of.get(producer_id)
        if entry is None or data is None:
            return
        sent = batch_of(data)
        last = sent.base_sequence + sent.last_offset - sent.base_offset
        if (sent.producer_epoch, last) == (entry.epoch, entry.last_sequence):
            self.log.append_as_leader(memoryview(bytearray(data)), self._leader_epoch())

    def _do_txn(self, producer_id: int, records: int) -> None:
        self._do_produce(producer_id, records, is_transactional=True)

    def _do_end(self, producer_id: int, is_commit: bool) -> None:
        entry = self.log.producers.last_entry(producer_id)
        epoch = max(self._epoch_of[producer_id], 0 if entry is None else entry.epoch)
        marker = EndTxnMarker(
            ControlType.COMMIT if is_commit else ControlType.ABORT, coordinator_epoch=self._number % 3
        )
        if entry is not None:
            marker = marker._replace(coordinator_epoch=max(marker.coordinator_epoch, entry.coordinator_epoch))
        data = build_end_txn_marker(
            marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=self.clock.now_ms()
        )
        self._lead(bytes(data), AppendOrigin.COORDINATOR)

    def _do_fence(self, producer_id: int) -> None:
        entry = self.log.producers.last_entry(producer_id)
        if entry is None or entry.txn_first_offset is None:
            self._epoch_of[producer_id] = max(self._epoch_of[producer_id], -1 if entry is None else entry.epoch) + 1

    def _do_follow(self, count: int, gap: int) -> None:
        offset, epoch = self._state.end + gap, self._leader_epoch()
        batches: list[Batch] = []
        for _ in range(count):
            data = bytes(build_batch(self._records(1 + self._number % 3, 20)))
            batches.append(stamped(data, offset, epoch))
            offset = batches[-1].end
        self._next = self._state.appended(batches)
        # One buffer is one write; what is left of it may end behind any of its batches.
        self.log.append_as_follower(memoryview(bytearray(b"".join(batch.data for batch in batches))))
        self.log.update_high_watermark(self.log.log_end_offset)

    # -- everything else ---------------------------------------------------------------------------------------------

    def _do_roll(self) -> None:
        self.log.roll()

    def _do_flush(self) -> None:
        self.log.flush()

    def _do_tick(self) -> None:
        self.log.tick()

    def _do_wait(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)

    def _do_truncate(self, back: int) -> None:
        offset = max(self._state.end - back, 0)
        if offset >= self._state.end:
            self.log.truncate_to(offset)
            return
        first_base = self.log.segments[0].base_offset
        self._lower_log_start(offset)
        self._is_cutting = True
        self._next = self._state.cut(offset) if offset >= first_base else State((), offset, offset, offset)
        self._floor = min(self._floor, offset if offset >= first_base else 0)
        self.log.truncate_to(offset)
        self._forget_old_states()

    def _do_begin(self, ahead: int) -> None:
        offset = max(self._state.end + ahead, 0)
        self._lower_log_start(offset)
        self._is_cutting = True
        self._next, self._floor = State((), offset, offset, offset), 0
        self.log.truncate_fully_and_start_at(offset)
        self._forget_old_states()

    def _lower_log_start(self, offset: int) -> None:
        """Whoever truncates below the log start says so first: a log that ends below it would be thrown away."""
        if offset < self._noted.log_start:
            self._note(self._noted._replace(log_start=offset))

    def _forget_old_states(self) -> None:
        """A truncation is done: nothing may come back. The checkpoints follow."""
        assert self._next is not None
        self._state, self._next, self._is_cutting = self._next, None, False
        self._deleted_to = min(self._deleted_to, self._state.end)
        self._do_checkpoint()

    def _do_delete(self, forward: int) -> None:
        offset = min(self._state.start + forward, self.log.high_watermark)
        self._next = self._state._replace(start=max(offset, self._state.start))
        self.log.delete_records(offset)

    def _do_retain(self) -> None:
        self._next = self._state._replace(start=self._state.end)  # or less: what goes is the engine's choice
        self.log.delete_old_segments()
        self._next = self._state._replace(start=self.log.log_start_offset)

    def _do_lead(self) -> None:
        is_first = self.log.latest_epoch is None
        self.log.assign_epoch_start_offset(self._leader_epoch() + (not is_first), self.log.log_end_offset)

    def _do_id(self) -> None:
        if self._topic_id is None:
            self._topic_id, self._id_from = TOPIC_ID, self._state.end
            self.log.assign_topic_id(TOPIC_ID)

    # -- checkpoints and openings ------------------------------------------------------------------------------------

    def _do_checkpoint(self) -> None:
        self._note(Stop(self.log.recovery_point, self.log.log_start_offset))

    def _note(self, stop: Stop) -> None:
        if self._has_files:
            OffsetCheckpoint(self._fs, join(ROOT, LOG_START_CHECKPOINT)).write({PARTITION: stop.log_start})
            OffsetCheckpoint(self._fs, join(ROOT, RECOVERY_POINT_CHECKPOINT)).write({PARTITION: stop.recovery_point})
        self._noted = stop

    def _do_stop(self) -> None:
        log = self.log
        log.close()
        self._floor = log.log_end_offset
        self._do_checkpoint()
        self._noted = self._noted._replace(is_clean=True)
        if self._has_files:
            CleanShutdownFile(self._fs, ROOT).write()
        self._cut()
        self._open()

    def _do_kill(self) -> None:
        self.log.release()
        self._open()

    def _do_crash(self, variant: int) -> None:
        expected = self.expectation()
        image = self._disk.after_crash(self.image_rng(variant))
        self.log.release()
        self._disk = image
        self._fs = self._watched(image, self._cut)
        self._log, self._next = None, None
        found = judge(image.copy(), expected, self.config, self.clock.now_ms(), self.image_rng(variant + 1))
        self._state = found.state
        self._floor = found.state.end  # what has survived a crash is on the disk
        self._open()

    def _open(self) -> None:
        self._log = None
        if self._has_files:
            stop = read_stop(self._fs)
        else:
            stop = self._noted
            self._noted = stop._replace(is_clean=False)
        expected = self.expectation()
        log = open_log(self._fs, stop, self.config, self.clock)
        found = check(self._fs, log, stop, expected).state
        if found.batches != self._state.batches:
            raise Broken("work", f"{log}, by the model {self._state.batches}")  # nothing was lost since it was known
        self._log, self._state = log, found
        self._floor = min(self._floor, found.end)  # a log that was cut inside a batch ends before it, from now on
        self._topic_id = log.topic_id  # an id that was not written yet is forgotten
        log.update_high_watermark(log.log_end_offset)


def require_same(log: UnifiedLog, state: State) -> None:
    """A workload is only worth something if the model follows the log."""
    ours, theirs = (state.start, state.end), (log.log_start_offset, log.log_end_offset)
    if ours != theirs:
        raise Broken("work", f"{log}, by the model from {ours[0]} to {ours[1]}")
