"""The engine against a plain list, in whatever order things are done to both."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.property.log_model import LogModel, Producer, Sent, batches_in, committed_offsets, read_on
from tidelog.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    TidelogError,
)
from tidelog.log import AppendInfo, AppendOrigin, Isolation, LogConfig, ManualClock, UnifiedLog
from tidelog.records import (
    Codec,
    ControlType,
    EndTxnMarker,
    NewRecord,
    build_batch,
    build_end_txn_marker,
)
from tidelog.testing.disk import SimulatedFileSystem

DIRECTORY = "/root/orders-0"
NOW = 1_700_000_000_000
LARGE = 1 << 20
CLIENT, COORDINATOR = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR

producer_ids = st.integers(1, 3)
shares = st.integers(0, 100).map(lambda percent: percent / 100)  # of the log, from its start
near_start = st.sampled_from([0.05, 0.1, 0.3, 0.05, 0.1, 0.3, 0.6, 1.0])
near_end = st.sampled_from([0.98, 0.9, 0.95, 0.9, 0.8, 0.5, 0.0])
counts = st.sampled_from([1, 2, 5])
records = st.builds(
    lambda sizes, time: [
        NewRecord(b"key %d" % n if n else None, b"v" * size, NOW + time + n % 3 - 1) for n, size in enumerate(sizes)
    ],
    st.lists(st.sampled_from([0, 5, 70, 120]), min_size=1, max_size=4),
    st.integers(-50, 50),
)
codecs = st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.SNAPPY, Codec.GZIP])
configs = st.builds(
    LogConfig,
    segment_bytes=st.sampled_from([700, 1500, 10_000]),
    index_interval_bytes=st.sampled_from([0, 150, 4096]),
    segment_index_bytes=st.sampled_from([60, 1024]),
    retention_ms=st.just(-1),
    retention_bytes=st.sampled_from([-1, 2000]),
    file_delete_delay_ms=st.just(1000),
    flush_messages=st.sampled_from([2**63 - 1, 5]),
    preallocate=st.booleans(),
)


class LogMachine(RuleBasedStateMachine):
    """Everything that can be done to a log, done to both."""

    @initialize(config=configs)
    def create(self, config: LogConfig) -> None:
        self.clock = ManualClock(NOW)
        self.disk = SimulatedFileSystem(self.clock)
        self.config = config
        self.model = LogModel()
        self.leader_epoch = 0
        self.is_cut = False  # since the last flush: what was cut may come back after a crash
        self.log = self.opened()
        self.log.assign_epoch_start_offset(0, 0)

    def opened(self, *, clean_shutdown: bool = False, recovery_point: int = 0) -> UnifiedLog:
        return UnifiedLog.open(
            DIRECTORY,
            self.config,
            recovery_point=recovery_point,
            log_start_offset=self.model.log_start,
            clean_shutdown=clean_shutdown,
            clock=self.clock,
            fs=self.disk,
            lock=False,
        )

    @property
    def segments(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]

    def place(self, share: float) -> int:
        """An offset of the log."""
        return self.model.log_start + round(share * (self.model.log_end - self.model.log_start))

    # -- appending ---------------------------------------------------------------------------------------------------

    def send(self, batch: Sent, codec: Codec = Codec.NONE) -> AppendInfo:
        if batch.marker is not None:
            data = build_end_txn_marker(
                EndTxnMarker(batch.marker, 0),
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                timestamp_ms=batch.records[0].timestamp_ms,
            )
        else:
            data = build_batch(
                batch.records,
                codec=codec,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.sequence,
                is_transactional=batch.is_transactional,
            )
        return self.log.append_as_leader(
            memoryview(data), batch.leader_epoch, CLIENT if batch.marker is None else COORDINATOR
        )

    def append(self, batch: Sent, codec: Codec = Codec.NONE) -> None:
        """Append what the log must take."""
        info = self.send(batch, codec)
        assert (info.first_offset, info.last_offset, info.is_duplicate) == (
            batch.base_offset,
            batch.last_offset,
            False,
        )
        assert info.max_timestamp_ms == batch.max_timestamp_ms
        self.model.append(batch)
        if self.log.recovery_point == self.log.log_end_offset:
            self.is_cut = False  # flush.messages was reached

    def data(self, sent: list[NewRecord], producer_id: int = -1, *, in_txn: bool = False) -> Sent:
        """The next batch of a producer."""
        producer = self.model.producers.get(producer_id, Producer())
        return Sent(
            self.model.log_end,
            tuple(sent),
            self.leader_epoch,
            producer_id,
            max(producer.epoch, 0) if producer_id >= 0 else -1,
            producer.next_sequence if producer_id >= 0 else -1,
            in_txn,
        )

    def is_in_txn(self, producer_id: int) -> bool:
        producer = self.model.producers.get(producer_id)
        return producer is not None and producer.txn_start is not None

    @rule(sent=records, codec=codecs, count=counts)
    def append_plain(self, sent: list[NewRecord], codec: Codec, count: int) -> None:
        for _ in range(count):
            self.append(self.data(sent), codec)

    @rule(producer_id=producer_ids, sent=records, codec=codecs, count=counts)
    def append_idempotent(self, producer_id: int, sent: list[NewRecord], codec: Codec, count: int) -> None:
        if self.is_in_txn(producer_id):
            self.refuse(self.data(sent, producer_id), InvalidTxnStateError)
            return
        for _ in range(count):
            self.append(self.data(sent, producer_id), codec)

    @rule(producer_id=producer_ids, sent=records, codec=codecs, count=counts)
    def append_in_transaction(self, producer_id: int, sent: list[NewRecord], codec: Codec, count: int) -> None:
        for _ in range(count):
            self.append(self.data(sent, producer_id, in_txn=True), codec)

    @rule(seed=st.integers(0, 1000))
    def append_much(self, seed: int) -> None:
        """A dozen batches and markers of all producers, mixed."""
        rng = Random(seed)
        for _ in range(12):
            sent = [NewRecord(b"key", b"v" * rng.choice([0, 9, 90]), NOW + rng.randint(-50, 50))] * rng.randint(1, 3)
            producer_id = rng.randint(0, 3)
            if producer_id == 0:
                self.append(self.data(sent))
            elif self.is_in_txn(producer_id) and rng.random() < 0.5:
                self.end_transaction(producer_id, rng.choice([ControlType.ABORT, ControlType.COMMIT]))
            else:
                in_txn = self.is_in_txn(producer_id) or rng.random() < 0.5
                self.append(self.data(sent, producer_id, in_txn=in_txn))

    @rule(producer_id=producer_ids, kind=st.sampled_from([ControlType.ABORT, ControlType.COMMIT]))
    def end_transaction(self, producer_id: int, kind: ControlType) -> None:
        marker = EndTxnMarker(kind, 0).to_record(self.clock.now_ms())
        self.append(self.data([marker], producer_id)._replace(sequence=-1, is_transactional=True, marker=kind))

    @rule(producer_id=producer_ids, back=st.integers(1, 6))
    def repeat(self, producer_id: int, back: int) -> None:
        """A producer that did not hear the answer sends again."""
        producer = self.model.producers.get(producer_id)
        if producer is None or len(producer.known) < back:
            return
        first = producer.known[-back]
        info = self.send(first._replace(leader_epoch=self.leader_epoch))
        assert (info.first_offset, info.last_offset, info.is_duplicate, info.size) == (
            first.base_offset,
            first.last_offset,
            True,
            0,
        )

    @rule(producer_id=producer_ids, sent=records, gap=st.integers(1, 3))
    def leave_a_gap(self, producer_id: int, sent: list[NewRecord], gap: int) -> None:
        batch = self.data(sent, producer_id, in_txn=self.is_in_txn(producer_id))
        if self.model.producers.get(producer_id, Producer()).known:
            self.refuse(batch._replace(sequence=batch.sequence + gap), OutOfOrderSequenceError)

    @rule(producer_id=producer_ids, sent=records)
    def begin_a_producer_epoch(self, producer_id: int, sent: list[NewRecord]) -> None:
        """The old one is fenced, and its transaction with it."""
        batch = self.data(sent, producer_id)
        if not self.is_in_txn(producer_id):
            self.append(batch._replace(producer_epoch=batch.producer_epoch + 1, sequence=0))
            self.refuse(batch, InvalidProducerEpochError)

    def refuse(self, batch: Sent, expected: type[TidelogError]) -> None:
        try:
            info = self.send(batch)
        except expected:
            return
        raise AssertionError(f"{batch} was taken: {info}")

    @rule()
    def begin_a_leader_epoch(self) -> None:
        self.leader_epoch += 1
        self.log.assign_epoch_start_offset(self.leader_epoch, self.log.log_end_offset)

    # -- files -------------------------------------------------------------------------------------------------------

    @rule()
    def roll(self) -> None:
        self.log.roll()
        assert self.segments[-1] == self.model.log_end

    @rule()
    def flush(self) -> None:
        if self.log.recovery_point < self.log.log_end_offset:
            self.is_cut = False
        self.log.flush()
        assert self.log.recovery_point == self.model.log_end

    @rule(ms=st.sampled_from([0, 1, 2000]))
    def let_time_pass(self, ms: int) -> None:
        self.clock.advance(ms)
        self.log.tick()

    @rule(share=shares)
    def move_high_watermark(self, share: float) -> None:
        offset = self.place(share)
        self.log.update_high_watermark(offset)
        self.model.set_high_watermark(offset)

    @rule()
    def replicate_all(self) -> None:
        self.move_high_watermark(1.0)

    @rule(share=near_start)
    def delete_records(self, share: float) -> None:
        offset = self.place(share)
        if offset > self.model.high_watermark:
            try:
                self.log.delete_records(offset)
            except OffsetOutOfRangeError:
                return
            raise AssertionError(f"records deleted up to {offset}, above {self.model.high_watermark}")
        assert self.log.delete_records(offset) == (offset > self.model.log_start)
        if offset > self.model.log_start:
            self.model.raise_log_start(offset)

    @rule()
    def delete_old_segments(self) -> None:
        before = self.segments
        deleted = self.log.delete_old_segments()
        assert deleted == len([base for base in before if base < self.segments[0]])
        if deleted:
            assert self.segments[0] <= self.model.high_watermark
            if self.segments[0] > self.model.log_start:
                self.model.raise_log_start(self.segments[0])
        if len(self.segments) > 1:
            assert self.segments[1] > self.model.log_start or self.segments[1] > self.model.high_watermark

    @rule(share=near_end)
    def truncate(self, share: float) -> None:
        offset = self.place(share)
        assert self.log.truncate_to(offset) == (offset < self.model.log_end)
        if offset < self.model.log_end:
            self.is_cut = True
            self.model.truncate(offset)
            self.check_producers()
            if self.model.high_watermark >= offset:
                self.model.set_high_watermark(offset)

    @precondition(lambda self: len(self.model.batches) > 20)  # seldom, or no log would ever grow
    @rule(ahead=st.integers(-3, 5))
    def start_anew(self, ahead: int) -> None:
        offset = max(0, self.model.log_end + ahead)
        self.log.truncate_fully_and_start_at(offset)
        self.is_cut = True
        self.model.start_anew(offset)

    # -- stopping ----------------------------------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.is_cut = False
        self.reopen(clean_shutdown=True)
        assert self.model.batches == [] or self.present() == self.model.present(self.segments[0])

    @rule(keeps_point=st.booleans())
    def kill_and_start(self, keeps_point: bool) -> None:
        """The process dies, the machine does not: everything that was written is there."""
        recovery_point = self.log.recovery_point if keeps_point else 0
        self.log.release()
        self.reopen(recovery_point=recovery_point)

    @precondition(lambda self: not self.is_cut)
    @rule(seed=st.integers(0, 2**32), keeps_point=st.booleans())
    def crash_and_start(self, seed: int, keeps_point: bool) -> None:
        """The machine dies: what was not flushed may be gone, from some batch on."""
        flushed = self.log.recovery_point
        self.disk = self.disk.after_crash(Random(seed))
        self.reopen(recovery_point=flushed if keeps_point else 0, flushed=flushed)

    def reopen(self, *, clean_shutdown: bool = False, recovery_point: int = 0, flushed: int | None = None) -> None:
        model = self.model
        self.log = self.opened(clean_shutdown=clean_shutdown, recovery_point=recovery_point)
        found = self.present()
        if flushed is not None:
            batches = model.present(self.segments[0])
            assert all(batch.last_offset < self.log.log_end_offset for batch in batches if batch.last_offset < flushed)
            batches = [batch for batch in batches if batch.last_offset < self.log.log_end_offset]
            model.batches = [batch for batch in model.batches if batch.last_offset < self.log.log_end_offset]
        assert found == model.present(self.segments[0])
        model.log_end = max(self.segments[-1], found[-1].next_offset if found else 0)
        model.log_start = max(model.log_start, self.segments[0])
        model.high_watermark = model.log_start
        model.forget_ended()
        self.check_producers()

    def present(self) -> list[Sent]:
        """What the files hold, from the first segment on."""
        return [batch for segment in self.log.segments for batch in batches_in(segment.log.file.read(0, segment.size))]

    # -- looking -----------------------------------------------------------------------------------------------------

    def check_producers(self) -> None:
        """Producers were loaded again: all that the log holds of them is known, and nothing else than ever was."""
        history, log_start = self.model.history(), self.model.log_start
        known: dict[int, Producer] = {}
        for entry in self.log.producers.producers.values():
            full = history[entry.producer_id]
            assert entry.epoch == full.epoch
            batches = [batch for batch in full.known if batch.last_offset in {b.last_offset for b in entry.batches}]
            assert [(batch.last_sequence, batch.last_offset) for batch in batches] == [
                (metadata.last_sequence, metadata.last_offset) for metadata in entry.batches
            ]
            assert batches[-1:] == full.known[-1:] or full.known[-1].base_offset < log_start
            if full.txn_start is None or full.txn_start >= log_start:
                assert entry.txn_first_offset == full.txn_start
            known[entry.producer_id] = Producer(entry.epoch, batches, entry.txn_first_offset)
        seen = {batch.producer_id for batch in self.model.batches if batch.base_offset >= log_start}
        assert known.keys() >= seen - {-1}
        self.model.producers = known

    @invariant()
    def both_are_the_same(self) -> None:
        self.check_bounds()
        self.check_readers()
        self.check_readers_of_committed_data()
        self.check_leader_epochs()

    def check_bounds(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (
            model.log_start,
            model.high_watermark,
            model.log_end,
        )
        low, high = model.stable_bounds()
        assert low <= log.last_stable_offset <= high

    def check_readers(self) -> None:
        visible = self.model.visible(self.segments[0], self.model.log_end)
        assert read_on(self.log, self.model.log_start, Isolation.LOG_END) == [
            b for b in visible if b.last_offset >= self.model.log_start
        ]
        limit = self.model.limit_of(Isolation.HIGH_WATERMARK, -1)
        assert [b for b in visible if self.model.log_start <= b.last_offset < limit] == read_on(
            self.log, self.model.log_start, Isolation.HIGH_WATERMARK
        )

    def check_readers_of_committed_data(self) -> None:
        limit, aborted = self.log.last_stable_offset, self.model.aborted()
        expected = [
            offset
            for batch in self.model.visible(self.segments[0], limit)
            if batch.marker is None
            for offset in range(batch.base_offset, batch.next_offset)
            if offset not in aborted and batch.last_offset >= self.model.log_start
        ]
        assert committed_offsets(self.log, self.model.log_start) == expected

    @rule(share=shares, isolation=st.sampled_from(Isolation), max_bytes=st.integers(0, 700), at_least_one=st.booleans())
    def read(self, share: float, isolation: Isolation, max_bytes: int, at_least_one: bool) -> None:
        offset = self.place(share)
        limit = self.model.limit_of(isolation, self.log.last_stable_offset)
        region = self.log.read(offset, max_bytes, isolation, at_least_one=at_least_one)
        data = region.read()
        expected = [batch for batch in self.model.visible(self.segments[0], limit) if batch.last_offset >= offset]
        found = batches_in(data)
        assert found == expected[: len(found)]
        if at_least_one and expected and offset < limit:
            assert found
            assert region.start.offset == found[0].base_offset
        assert len(data) <= max(max_bytes, region.first_batch.size if at_least_one and region.first_batch else 0)

    @rule(timestamp_ms=st.integers(NOW - 51, NOW + 51), isolation=st.sampled_from(Isolation))
    def find_by_time(self, timestamp_ms: int, isolation: Isolation) -> None:
        limit = self.model.limit_of(isolation, self.log.last_stable_offset)
        found = self.log.offset_for_time(timestamp_ms, isolation)
        expected = self.model.offset_for_time(self.segments, timestamp_ms, limit)
        assert (found and found[:2]) == expected
        assert self.log.offset_for_time(-1, isolation).offset == limit  # type: ignore[union-attr]
        assert self.log.offset_for_time(-2, isolation).offset == self.model.log_start  # type: ignore[union-attr]
        largest = self.log.offset_for_time(-3, isolation)
        assert (largest and largest[:2]) == self.model.largest_time(self.segments, limit)

    @rule(beyond=st.integers(1, 3))
    def read_outside(self, beyond: int) -> None:
        for offset in (self.model.log_start - beyond, self.model.log_end + beyond):
            try:
                self.log.read(offset, LARGE)
            except OffsetOutOfRangeError:
                continue
            raise AssertionError(f"offset {offset} was read")

    def check_leader_epochs(self) -> None:
        for batch in self.model.batches:
            if batch.base_offset >= self.model.log_start:
                assert self.log.leader_epochs.epoch_for_offset(batch.base_offset) == batch.leader_epoch


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
