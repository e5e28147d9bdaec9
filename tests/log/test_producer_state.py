"""The producers of a partition: appends, transactions, verification, expiry, and snapshots in a directory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.golden import corpus
from tests.golden.corpus import Partition
from tests.log.producers import (
    ABORT,
    CLIENT,
    COMMIT,
    DAY,
    NOW,
    PRODUCER,
    REPLICATION,
    Producers,
    data,
    marker,
)
from tidelog.errors import (
    CoordinatorFencedError,
    CorruptionError,
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from tidelog.log.batch_info import batch_info
from tidelog.log.clock import ManualClock
from tidelog.log.names import SNAPSHOT_SUFFIX, file_name, offset_of
from tidelog.log.offsets import OffsetMetadata
from tidelog.log.origin import AppendOrigin
from tidelog.log.producer_append import ProducerAppendInfo
from tidelog.log.producer_entry import BatchMetadata, ProducerEntry
from tidelog.log.producer_snapshot import build_snapshot, parse_snapshot
from tidelog.log.producer_state import LATE_TRANSACTION_BUFFER_MS, ActiveProducer, ProducerStateManager
from tidelog.log.producer_txn import CompletedTxn
from tidelog.log.verification import NO_GUARD, VerificationGuard
from tidelog.records import EndTxnMarker, end_txn_marker_of, read_batches
from tidelog.testing.disk import SimulatedFileSystem

LATE_MS = 300_000 + LATE_TRANSACTION_BUFFER_MS


@pytest.fixture
def producers(tmp_path: Path) -> Producers:
    return Producers(tmp_path)


def entry_of(producers: ProducerStateManager, producer_id: int = PRODUCER) -> ProducerEntry:
    entry = producers.last_entry(producer_id)
    assert entry is not None
    return entry


def touch(directory: Path, *offsets: int) -> None:
    for offset in offsets:
        (directory / file_name(offset, SNAPSHOT_SUFFIX)).touch()


# -- appending -----------------------------------------------------------------------------------------------------


@behaviour("PSM-001")
def test_sequences_go_on_and_epochs_go_up(producers: Producers) -> None:
    producers.write(0, 0)
    producers.write(1, 1)
    for sequence in (1, 5):
        with pytest.raises(OutOfOrderSequenceError):
            producers.write(2, sequence)
    producers.write(3, 0, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        producers.write(4, 0, epoch=0)
    assert entry_of(producers).last_offset == 3


@behaviour("PSM-002", "PSM-003")
def test_fencing_works_when_only_a_marker_is_known(producers: Producers) -> None:
    producers.end(27, epoch=2)
    assert (entry_of(producers).epoch, entry_of(producers).last_sequence) == (2, -1)
    with pytest.raises(InvalidProducerEpochError):
        producers.write(28, 0, epoch=0)
    with pytest.raises(OutOfOrderSequenceError):
        producers.write(28, 17, epoch=2)
    producers.write(28, 0, epoch=2)
    assert (entry_of(producers).epoch, entry_of(producers).last_sequence) == (2, 0)


@behaviour("PSM-011")
def test_checking_a_batch_changes_nothing_until_the_update(producers: Producers) -> None:
    first = producers.prepare_update(PRODUCER, CLIENT)
    first.append(data(15, 0, count=6))
    assert producers.last_entry(PRODUCER) is None
    producers.update(first)

    second = producers.prepare_update(PRODUCER, CLIENT)
    second.append(data(26, 6, count=5))
    assert (entry_of(producers).last_sequence, entry_of(producers).last_offset) == (5, 20)
    producers.update(second)
    assert (entry_of(producers).first_sequence, entry_of(producers).last_sequence) == (0, 10)
    assert entry_of(producers).last_offset == 30


def test_an_append_that_is_refused_leaves_nothing_behind(producers: Producers) -> None:
    producers.write(0, 0)
    updates: dict[int, ProducerAppendInfo] = {}
    producers.stage(updates, data(1, 1, is_transactional=True), CLIENT)
    with pytest.raises(InvalidTxnStateError):
        producers.stage(updates, data(2, 2), CLIENT)
    assert entry_of(producers) == ProducerEntry(PRODUCER, 0, -1, NOW, None, [BatchMetadata(0, 0, 0, NOW)])
    assert producers.first_undecided_offset is None


def test_a_batch_that_was_appended_before_is_found(producers: Producers) -> None:
    assert producers.find_duplicate(data(0, 0)) is None
    for offset in range(7):
        producers.write(offset, offset, timestamp_ms=NOW + offset)
    assert producers.find_duplicate(data(99, 6)) == BatchMetadata(6, 6, 0, NOW + 6)
    assert producers.find_duplicate(data(99, 2)) == BatchMetadata(2, 2, 0, NOW + 2)
    assert producers.find_duplicate(data(99, 1)) is None  # five are remembered
    assert producers.find_duplicate(data(99, 6, count=2)) is None
    assert producers.find_duplicate(data(99, 6, epoch=1)) is None
    assert producers.find_duplicate(data(99, 6, producer_id=2)) is None


def test_an_ordinary_batch_goes_on_where_its_producer_stopped_outside_of_transactions(producers: Producers) -> None:
    assert producers.ordinary_entry(PRODUCER, 0, 0) is None
    producers.write(0, 0)
    producers.write(1, 1)
    assert producers.ordinary_entry(PRODUCER, 0, 2) is entry_of(producers)
    for epoch, sequence in ((0, 0), (0, 1), (0, 3), (1, 0), (1, 2)):
        assert producers.ordinary_entry(PRODUCER, epoch, sequence) is None
    producers.maybe_start_verification(2, 0, 0)
    assert producers.ordinary_entry(PRODUCER, 0, 2) is None
    producers.clear_verification(2)
    producers.write(2, 2, is_transactional=True)
    assert producers.ordinary_entry(PRODUCER, 0, 3) is None
    producers.end(3, epoch=1)
    assert producers.ordinary_entry(PRODUCER, 1, 0) is None


def test_a_state_without_a_producer_is_refused(producers: Producers) -> None:
    with pytest.raises(InvalidRequestError):
        producers.update(ProducerAppendInfo(-1, None, CLIENT))


def test_new_producers_of_one_append_come_in_the_order_of_kafka(producers: Producers) -> None:
    """Kafka collects them in a HashMap by computeIfAbsent, which reverses a bucket: 3, 19 and 35 share one."""
    updates: dict[int, ProducerAppendInfo] = {}
    for offset, producer_id in enumerate((35, 19, 3, 16, 1)):
        producers.stage(updates, data(offset, 0, producer_id=producer_id), REPLICATION)
    producers.apply(updates)
    assert [producer.producer_id for producer in producers.active_producers()] == [16, 1, 3, 19, 35]


def test_active_producers_are_described(producers: Producers) -> None:
    producers.write(0, 0, producer_id=17)
    producers.write(1, 4, producer_id=1, is_transactional=True)
    producers.end(2, epoch=7, producer_id=16, coordinator_epoch=3)
    assert producers.active_producers() == [
        ActiveProducer(16, 7, -1, NOW, 3, -1),
        ActiveProducer(17, 0, 0, NOW, -1, -1),
        ActiveProducer(1, 0, 4, NOW, -1, 1),
    ]


# -- transactions --------------------------------------------------------------------------------------------------


@behaviour("PSM-009")
def test_the_first_unstable_offset_keeps_its_place_in_the_files(producers: Producers) -> None:
    place = OffsetMetadata(992342, 990000, 234224)
    info = producers.prepare_update(PRODUCER, CLIENT)
    info.append(data(992342, 0, is_transactional=True), start=place)
    info.append(data(992343, 1, is_transactional=True), start=OffsetMetadata(992343, 990000, 234300))
    producers.update(info)
    assert producers.first_unstable == place
    assert producers.first_unstable_offset == producers.first_undecided_offset == 992342


@behaviour("PSM-007", "PSM-008")
def test_a_marker_can_raise_the_epoch(producers: Producers) -> None:
    producers.write(0, 0, is_transactional=True)
    producers.write(1, 1, is_transactional=True)
    producers.end(2, ABORT, epoch=1)
    entry = entry_of(producers)
    assert (entry.epoch, entry.txn_first_offset, entry.first_sequence, entry.last_sequence) == (1, None, -1, -1)
    for epoch in (1, 2):
        with pytest.raises(OutOfOrderSequenceError):
            producers.write(3, 2, epoch=epoch, is_transactional=True)
    producers.write(3, 0, epoch=1, is_transactional=True)
    assert (entry.epoch, entry.last_sequence) == (1, 0)


@behaviour("PSM-013")
def test_a_plain_batch_cannot_interrupt_a_transaction(producers: Producers) -> None:
    producers.write(0, 0, is_transactional=True)
    with pytest.raises(InvalidTxnStateError):
        producers.write(1, 1)
    producers.end(1)
    producers.write(2, 1)


@behaviour("PSM-030", "PSM-031")
def test_a_transaction_is_unstable_until_its_marker_is_replicated(producers: Producers) -> None:
    def offsets() -> tuple[int | None, int | None]:
        return producers.first_undecided_offset, producers.first_unstable_offset

    assert offsets() == (None, None)
    producers.write(99, 0, is_transactional=True)
    assert offsets() == (99, 99)
    producers.write(105, 0, producer_id=2, is_transactional=True)
    assert offsets() == (99, 99)
    producers.end(109)
    assert offsets() == (105, 99)
    producers.on_high_watermark(100)
    assert offsets() == (105, 99)
    producers.on_high_watermark(109)
    assert offsets() == (105, 99)
    producers.on_high_watermark(110)
    assert offsets() == (105, 105)
    producers.end(112, ABORT, producer_id=2)
    assert offsets() == (None, 105)
    producers.on_high_watermark(113)
    assert offsets() == (None, None)


def test_an_open_transaction_counts_before_a_later_one_that_has_ended(producers: Producers) -> None:
    producers.write(10, 0, producer_id=1, is_transactional=True)
    producers.write(20, 0, producer_id=2, is_transactional=True)
    producers.end(30, producer_id=2)
    assert (producers.first_undecided_offset, producers.first_unstable_offset) == (10, 10)


@behaviour("PSM-045")
def test_the_stable_offset_stops_at_the_next_open_transaction(producers: Producers) -> None:
    starts = {1: 992342, 2: 992367, 3: 992399}
    for producer_id, start in starts.items():
        producers.write(start, 0, producer_id=producer_id, is_transactional=True)

    def complete(producer_id: int, last_offset: int) -> tuple[int, int | None]:
        completed = CompletedTxn(producer_id, starts[producer_id], last_offset, is_aborted=False)
        stable = producers.last_stable_offset(completed)
        producers.complete_txn(completed)
        producers.on_high_watermark(last_offset + 1)
        return stable, producers.first_unstable_offset

    assert complete(1, 992414) == (starts[2], starts[2])
    assert complete(3, 992434) == (starts[2], starts[2])
    assert complete(2, 992512) == (992513, None)


@behaviour("PSM-046")
def test_markers_without_data_hold_nobody_up(producers: Producers) -> None:
    producers.append(data(16, 0, count=5, is_transactional=True))
    producers.on_high_watermark(21)
    assert producers.first_unstable_offset == 16

    updates: dict[int, ProducerAppendInfo] = {}
    commit, abort = EndTxnMarker(COMMIT, 0), EndTxnMarker(ABORT, 0)
    staged = [
        producers.stage(updates, marker(21), CLIENT, commit),
        producers.stage(updates, marker(22), CLIENT, commit),
        producers.stage(updates, marker(23), CLIENT, abort),
        producers.stage(updates, data(24, 5, count=4, is_transactional=True), CLIENT),
        producers.stage(updates, marker(28), CLIENT, abort),
        producers.stage(updates, marker(29), CLIENT, abort),
        producers.stage(updates, data(30, 9, count=2, is_transactional=True), CLIENT),
    ]
    completed = [txn for txn in staged if txn is not None]
    assert completed == [CompletedTxn(PRODUCER, 16, 21, False), CompletedTxn(PRODUCER, 24, 28, True)]
    producers.apply(updates)
    for txn in completed:
        producers.complete_txn(txn)
    assert producers.first_unstable_offset == 16
    producers.on_high_watermark(32)
    assert producers.first_unstable_offset == 30


def test_a_transaction_that_was_never_opened_cannot_be_completed(producers: Producers) -> None:
    with pytest.raises(InvalidRequestError):
        producers.complete_txn(CompletedTxn(PRODUCER, 3, 7, is_aborted=False))


@behaviour("PSM-034", "PSM-035")
def test_old_producers_and_old_coordinators_are_fenced_also_after_a_reload(producers: Producers) -> None:
    producers.write(99, 0, epoch=5, is_transactional=True)
    with pytest.raises(InvalidProducerEpochError):
        producers.end(100, epoch=3)
    for offset, coordinator_epoch in ((100, 1), (101, 1), (102, 2)):
        producers.end(offset, epoch=5, coordinator_epoch=coordinator_epoch)
    producers.take_snapshot()
    reloaded = producers.reopened()
    reloaded.truncate_and_reload(0, 103, NOW)
    for each in (producers, reloaded):
        with pytest.raises(CoordinatorFencedError):
            each.end(103, epoch=5, coordinator_epoch=1)
        assert entry_of(each).coordinator_epoch == 2


@behaviour("PSM-037")
def test_an_empty_control_batch_opens_no_transaction(producers: Producers) -> None:
    producers.append(marker(15, producer_id=23423))
    assert entry_of(producers, 23423).txn_first_offset is None
    assert producers.first_unstable_offset is None


@behaviour("PSM-010")
def test_a_transaction_is_late_when_no_coordinator_would_leave_it_open(producers: Producers) -> None:
    def is_late() -> bool:
        return producers.has_late_transaction(producers.clock.now_ms())

    producers.write(100, 0, producer_id=39, epoch=2, is_transactional=True)
    assert not is_late()
    producers.clock.advance(500)
    producers.write(150, 0, producer_id=57, epoch=9, is_transactional=True)
    producers.clock.advance(LATE_MS - 500)
    assert not is_late()
    producers.clock.advance(1)
    assert is_late()
    producers.clock.advance(500)
    producers.end(200, producer_id=39, epoch=2)
    assert is_late()  # the second one
    producers.end(250, producer_id=57, epoch=9)
    assert not is_late()


@behaviour("PSM-010")
def test_a_late_transaction_stays_late_after_a_reload_but_not_after_truncation(producers: Producers) -> None:
    producers.write(100, 0, is_transactional=True)
    producers.take_snapshot()
    producers.clock.advance(LATE_MS + 1)
    now = producers.clock.now_ms()
    reloaded = producers.reopened()
    assert not reloaded.has_late_transaction(now)
    reloaded.truncate_and_reload(0, 101, now)
    assert reloaded.has_late_transaction(now)
    reloaded.truncate_fully_and_start_at(150)
    assert not reloaded.has_late_transaction(now)
    assert producers.has_late_transaction(now)
    producers.truncate_and_reload(0, 80, now)
    assert not producers.has_late_transaction(now)
    assert reloaded.first_unstable_offset is producers.first_unstable_offset is None


@pytest.mark.parametrize(("timestamp_ms", "is_late"), [(-1, False), (0, False), (1, True)])
def test_a_transaction_without_a_time_is_never_late(producers: Producers, timestamp_ms: int, is_late: bool) -> None:
    producers.write(100, 0, is_transactional=True, timestamp_ms=timestamp_ms)
    assert producers.has_late_transaction(NOW) == is_late


# -- verification --------------------------------------------------------------------------------------------------


def verified(producers: Producers, batch_epoch: int = 0, guard: VerificationGuard = NO_GUARD, offset: int = 0) -> None:
    """Append a transactional batch of sequence 0 as a log does it."""
    batch = data(offset, 0, epoch=batch_epoch, is_transactional=True)
    producers.check_verification(batch, guard)
    producers.append(batch)


@behaviour("LOG-123")
def test_a_guard_is_given_out_until_the_transaction_is_open(producers: Producers) -> None:
    guard = producers.maybe_start_verification(PRODUCER, 0, 0)
    assert guard is not NO_GUARD
    assert producers.maybe_start_verification(PRODUCER, 0, 0) is guard
    verified(producers, guard=guard)
    assert producers.maybe_start_verification(PRODUCER, 1, 0) is NO_GUARD
    assert producers.maybe_start_verification(PRODUCER, 0, 1) is not NO_GUARD  # open, but not in this epoch


@behaviour("LOG-124", "PSM-041")
def test_a_guard_is_spent_by_a_transactional_batch_and_not_by_a_plain_one(producers: Producers) -> None:
    guard = producers.maybe_start_verification(PRODUCER, 1, 0)
    producers.write(0, 0)
    assert producers.guard_of(PRODUCER) is guard
    batch = data(1, 1, is_transactional=True)
    producers.check_verification(batch, guard)
    producers.append(batch)
    assert producers.guard_of(PRODUCER) is NO_GUARD
    producers.check_verification(data(2, 2, is_transactional=True))  # the transaction is open


@behaviour("LOG-124", "LOG-125")
@pytest.mark.parametrize("has_data", [True, False])
def test_a_marker_makes_the_guard_worthless(producers: Producers, has_data: bool) -> None:
    old = producers.maybe_start_verification(PRODUCER, 0, 0)
    if has_data:
        verified(producers, guard=old)
    producers.end(1, ABORT, epoch=1)
    assert producers.guard_of(PRODUCER) is NO_GUARD
    new = producers.maybe_start_verification(PRODUCER, 0, 1)
    assert new not in (old, NO_GUARD)
    for wrong in (old, NO_GUARD):
        with pytest.raises(InvalidTxnStateError):
            verified(producers, 1, wrong, offset=2)
    verified(producers, 1, new, offset=2)


@behaviour("LOG-125")
def test_no_guard_verifies_nothing() -> None:
    one, other = VerificationGuard(), VerificationGuard()
    assert one.verifies(one)
    assert not one.verifies(other)
    assert not one.verifies(NO_GUARD)
    assert not NO_GUARD.verifies(one)
    assert not NO_GUARD.verifies(NO_GUARD)
    assert one != other


def test_a_guard_for_the_epoch_that_a_marker_opens_survives_the_marker(producers: Producers) -> None:
    """Transactions of version 2: the marker of the transaction before may be written while the next is verified."""
    bumping = producers.maybe_start_verification(PRODUCER, 0, 1, supports_epoch_bump=True)
    producers.end(0, epoch=1, transaction_version=2)
    assert producers.guard_of(PRODUCER) is bumping
    verified(producers, 1, bumping, offset=1)
    other = producers.maybe_start_verification(PRODUCER, 0, 2, supports_epoch_bump=True)
    producers.end(2, epoch=3, transaction_version=2)
    assert other is not NO_GUARD
    assert producers.guard_of(PRODUCER) is NO_GUARD


@behaviour("LOG-126")
def test_verification_can_be_switched_off(producers: Producers) -> None:
    with pytest.raises(InvalidTxnStateError):
        verified(producers)
    guard = producers.maybe_start_verification(PRODUCER, 0, 0)
    assert producers.guard_of(PRODUCER) is guard
    producers.verification = False
    verified(producers)
    assert entry_of(producers).txn_first_offset == 0
    assert producers.guard_of(PRODUCER) is NO_GUARD


def test_plain_batches_and_markers_need_no_guard(producers: Producers) -> None:
    producers.check_verification(data(0, 0))
    producers.check_verification(marker(0))


@behaviour("LOG-136")
def test_a_fenced_producer_is_told_so_whatever_its_guard(producers: Producers) -> None:
    guard = producers.maybe_start_verification(PRODUCER, 0, 0)
    producers.end(0, epoch=5)
    stale = data(1, 0, epoch=4, is_transactional=True)
    for each in (guard, NO_GUARD, producers.maybe_start_verification(PRODUCER, 0, 5)):
        with pytest.raises(InvalidProducerEpochError):
            producers.check_verification(stale, each)
    with pytest.raises(InvalidProducerEpochError):
        producers.maybe_start_verification(PRODUCER, 0, 4)
    with pytest.raises(InvalidTxnStateError):
        producers.check_verification(stale._replace(producer_epoch=5), NO_GUARD)


def test_an_open_transaction_of_another_epoch_is_no_proof(producers: Producers) -> None:
    producers.write(0, 0, epoch=3, is_transactional=True)
    producers.check_verification(data(1, 1, epoch=3, is_transactional=True))
    with pytest.raises(InvalidTxnStateError):
        producers.check_verification(data(1, 0, epoch=4, is_transactional=True))
    with pytest.raises(InvalidProducerEpochError):
        producers.check_verification(data(1, 0, epoch=2, is_transactional=True))


@behaviour("PSM-041", "PSM-042")
def test_the_lowest_sequence_of_the_highest_epoch_is_kept(producers: Producers) -> None:
    entry = producers.verification_entry(PRODUCER, 1, 0)
    guard = entry.guard
    for sequence, epoch, expected in [(1, 0, (1, 0)), (0, 0, (0, 0)), (5, 0, (0, 0)), (2, 1, (2, 1)), (0, 0, (2, 1))]:
        assert producers.verification_entry(PRODUCER, sequence, epoch) is entry
        assert (entry.lowest_sequence, entry.epoch) == expected
        assert entry.guard is guard
    producers.clear_verification(PRODUCER)
    assert producers.verification_entry(PRODUCER, 0, 0).guard is not guard


@behaviour("PSM-043")
@pytest.mark.parametrize("is_switched_off", [True, False])
def test_a_higher_sequence_must_not_overtake_the_one_being_verified(
    producers: Producers, is_switched_off: bool
) -> None:
    entry = producers.verification_entry(PRODUCER, 0, 0)
    producers.verification = not is_switched_off
    with pytest.raises(OutOfOrderSequenceError):
        producers.write(0, 4, is_transactional=True)
    assert producers.guard_of(PRODUCER) is entry.guard


@behaviour("PSM-044")
def test_a_guard_expires_counted_from_its_creation(producers: Producers) -> None:
    guard = producers.maybe_start_verification(PRODUCER, 0, 0)
    producers.clock.advance(DAY - 1)
    assert producers.maybe_start_verification(PRODUCER, 0, 0) is guard
    producers.remove_expired(producers.clock.now_ms())
    assert producers.guard_of(PRODUCER) is guard
    producers.clock.advance(1)
    producers.remove_expired(producers.clock.now_ms())
    assert producers.guard_of(PRODUCER) is NO_GUARD


# -- expiry --------------------------------------------------------------------------------------------------------


@behaviour("PSM-029")
def test_a_producer_that_expired_may_come_back_with_any_sequence(producers: Producers) -> None:
    producers.write(1, 0, epoch=5)
    producers.clock.advance(DAY - 1)
    producers.remove_expired(producers.clock.now_ms())
    with pytest.raises(OutOfOrderSequenceError):
        producers.write(2, 7, epoch=5)
    producers.clock.advance(1)
    producers.remove_expired(producers.clock.now_ms())
    assert producers.is_empty
    producers.write(2, 7, epoch=5)
    assert (len(producers.producers), entry_of(producers).last_sequence, producers.map_end_offset) == (1, 7, 3)


@behaviour("PSM-032")
def test_a_producer_with_an_open_transaction_never_expires(producers: Producers) -> None:
    producers.write(99, 0, is_transactional=True)
    producers.clock.advance(DAY * 400)
    producers.remove_expired(producers.clock.now_ms())
    assert entry_of(producers).txn_first_offset == producers.first_undecided_offset == 99


def test_a_state_is_empty_without_producers_and_without_markers_to_be_replicated(producers: Producers) -> None:
    assert producers.is_empty
    producers.write(0, 0, is_transactional=True)
    assert not producers.is_empty
    producers.end(1)
    producers.remove_expired(NOW + DAY)
    assert producers.producers == {}
    assert not producers.is_empty
    producers.on_high_watermark(2)
    assert producers.is_empty


@behaviour("PSM-019")
def test_a_fencing_abort_is_remembered_without_data(producers: Producers) -> None:
    producers.write(0, 0, is_transactional=True)
    producers.end(1, ABORT, epoch=1)
    entry = entry_of(producers)
    assert (entry.txn_first_offset, entry.first_offset, entry.last_offset) == (None, -1, -1)
    producers.remove_expired(producers.clock.now_ms())
    assert producers.last_entry(PRODUCER) is entry


# -- taking snapshots ----------------------------------------------------------------------------------------------


@behaviour("PSM-015")
def test_a_snapshot_is_one_file_named_after_the_map_end(producers: Producers) -> None:
    assert producers.snapshot_path(2) is None
    producers.write(0, 0)
    producers.write(1, 1)
    path = producers.take_snapshot()
    assert path == producers.snapshot_path(2) == f"{producers.directory}/00000000000000000002.snapshot"
    assert producers.files == ["00000000000000000002.snapshot"]
    assert parse_snapshot(Path(path).read_bytes()) == [
        ProducerEntry(PRODUCER, 0, -1, NOW, None, [BatchMetadata(1, 1, 0, NOW)])
    ]
    assert producers.snapshot_path(1) is None


@behaviour("PSM-028")
def test_a_second_snapshot_at_the_same_offset_writes_nothing(producers: Producers) -> None:
    producers.write(0, 0)
    path = producers.take_snapshot()
    assert path is not None
    Path(path).unlink()
    assert producers.take_snapshot() is None
    assert producers.files == []
    producers.write(1, 1)
    assert producers.take_snapshot() is not None


def test_there_is_no_snapshot_at_offset_zero(producers: Producers) -> None:
    assert producers.take_snapshot() is None
    producers.map_end_offset = 1
    assert producers.take_snapshot() is not None  # empty, but it says so


def test_a_snapshot_is_synced_unless_the_caller_does_it_later() -> None:
    disk = SimulatedFileSystem()
    disk.make_directory("/logs/t-0")
    producers = ProducerStateManager(disk, "/logs/t-0", ManualClock(NOW))

    def calls(sync: bool) -> int:
        producers.map_end_offset += 1
        before = disk.calls
        producers.take_snapshot(sync=sync)
        return disk.calls - before

    assert calls(sync=True) == calls(sync=False) + 1


def test_snapshots_follow_when_the_directory_is_renamed(producers: Producers, tmp_path: Path) -> None:
    producers.write(0, 0)
    producers.take_snapshot()
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    producers.directory = str(moved)
    assert producers.snapshot_path(1) == f"{moved}/00000000000000000001.snapshot"
    producers.write(1, 1)
    assert producers.take_snapshot() == f"{moved}/00000000000000000002.snapshot"


# -- going back to a snapshot --------------------------------------------------------------------------------------


@behaviour("PSM-014")
def test_going_back_keeps_the_snapshots_in_range(producers: Producers) -> None:
    for offset in range(5):
        producers.write(offset, offset)
        producers.take_snapshot()
    producers.truncate_and_reload(1, 3, NOW)
    assert producers.snapshot_offsets == [2, 3]
    assert (producers.oldest_snapshot_offset, producers.latest_snapshot_offset) == (2, 3)
    assert producers.files == [file_name(offset, SNAPSHOT_SUFFIX) for offset in (2, 3)]
    assert (producers.map_end_offset, producers.last_snapshot_offset, entry_of(producers).last_offset) == (3, 3, 2)


@behaviour("PSM-016")
def test_a_snapshot_knows_the_newest_batch_and_the_open_transaction(producers: Producers) -> None:
    producers.write(0, 0, is_transactional=True)
    producers.write(1, 1, is_transactional=True)
    producers.take_snapshot()
    reloaded = producers.reopened()
    reloaded.truncate_and_reload(0, 3, NOW)
    entry = entry_of(reloaded)
    assert entry.batches == [BatchMetadata(1, 1, 0, NOW)]
    assert entry.txn_first_offset == reloaded.first_undecided_offset == reloaded.first_unstable_offset == 0
    assert reloaded.map_end_offset == 2
    reloaded.write(2, 2, is_transactional=True)
    assert entry.last_offset == 2
    assert reloaded.find_duplicate(data(9, 0)) is None  # which the first process would have found


@behaviour("PSM-017")
def test_a_snapshot_behind_an_abort_has_no_open_transaction(producers: Producers) -> None:
    producers.write(0, 0, is_transactional=True)
    producers.write(1, 1, is_transactional=True)
    producers.end(2, ABORT)
    producers.take_snapshot()
    reloaded = producers.reopened()
    reloaded.truncate_and_reload(0, 3, NOW)
    assert (entry_of(reloaded).batches, entry_of(reloaded).txn_first_offset) == ([BatchMetadata(1, 1, 0, NOW)], None)
    assert reloaded.first_undecided_offset is None


@behaviour("PSM-018")
def test_a_snapshot_keeps_the_time_of_a_marker(producers: Producers) -> None:
    producers.clock.advance(77)
    producers.end(0, ABORT)
    producers.take_snapshot()
    reloaded = producers.reopened()
    reloaded.truncate_and_reload(0, 1, NOW)
    assert entry_of(reloaded) == ProducerEntry(PRODUCER, 0, 0, NOW + 77)


@behaviour("PSM-020", "PSM-021")
@pytest.mark.parametrize("origin", [CLIENT, REPLICATION])
def test_a_producer_that_expired_in_a_snapshot_is_not_loaded(producers: Producers, origin: AppendOrigin) -> None:
    producers.write(0, 0)
    producers.write(1, 1)
    producers.take_snapshot()
    producers.clock.advance(DAY)
    reloaded = producers.reopened()
    reloaded.truncate_and_reload(0, 2, producers.clock.now_ms())
    assert (reloaded.is_empty, reloaded.map_end_offset) == (True, 2)
    reloaded.write(2, 2, origin=origin)
    assert (entry_of(reloaded).first_sequence, entry_of(reloaded).last_sequence) == (2, 2)
    assert reloaded.map_end_offset == 3


@behaviour("PSM-027")
def test_going_back_keeps_producers_that_have_not_expired(producers: Producers) -> None:
    producers.write(0, 0, producer_id=1)
    producers.write(1, 0, producer_id=2)
    producers.take_snapshot()
    producers.map_end_offset = 9
    producers.truncate_and_reload(1, 2, NOW + DAY - 1)
    for producer_id, offset in ((1, 0), (2, 1)):
        assert entry_of(producers, producer_id).batches == [BatchMetadata(0, offset, 0, NOW)]


@behaviour("PSM-022")
def test_a_follower_takes_a_gap_that_a_client_may_not_make(producers: Producers) -> None:
    producers.write(0, 0)
    with pytest.raises(OutOfOrderSequenceError):
        producers.write(1, 3)
    assert entry_of(producers).last_sequence == 0
    producers.write(1, 3, origin=REPLICATION)
    assert entry_of(producers).last_sequence == 3


@behaviour("PSM-026")
def test_going_back_can_reopen_a_transaction(producers: Producers) -> None:
    producers.write(99, 0, is_transactional=True)
    producers.take_snapshot()
    producers.end(105)
    producers.on_high_watermark(106)
    assert producers.first_unstable_offset is None
    producers.take_snapshot()
    producers.write(106, 1)
    producers.truncate_and_reload(0, 106, NOW)
    assert producers.first_unstable_offset is None
    producers.truncate_and_reload(0, 100, NOW)
    assert producers.first_unstable_offset == 99


def test_nothing_is_loaded_when_the_state_ends_where_the_log_does(producers: Producers) -> None:
    for offset in range(3):
        producers.write(offset, offset)
        producers.take_snapshot()
    producers.truncate_and_reload(1, 3, NOW)
    assert len(entry_of(producers).batches) == 3  # still from memory
    assert producers.snapshot_offsets == [2, 3]


def test_going_back_to_where_the_state_ends_follows_the_log_start(producers: Producers) -> None:
    producers.write(0, 0, is_transactional=True)
    producers.end(1)
    producers.write(2, 1, is_transactional=True)
    producers.truncate_and_reload(1, 3, NOW)
    assert producers.first_unstable_offset == 0
    producers.truncate_and_reload(2, 3, NOW)
    assert producers.first_unstable_offset == 2


def test_the_log_start_can_overtake_the_state(producers: Producers) -> None:
    producers.write(0, 0, is_transactional=True)
    producers.end(1)
    producers.take_snapshot()
    producers.on_log_start(1)
    assert (producers.map_end_offset, producers.last_snapshot_offset, producers.first_unstable_offset) == (2, 2, 0)
    producers.delete_snapshots_before(9)
    producers.on_log_start(9)
    assert (producers.map_end_offset, producers.last_snapshot_offset, producers.first_unstable_offset) == (9, 9, None)
    assert producers.last_entry(PRODUCER) is not None


def test_without_a_snapshot_the_state_begins_at_the_log_start(producers: Producers) -> None:
    producers.write(20, 0)
    producers.truncate_and_reload(7, 15, NOW)
    assert (producers.is_empty, producers.map_end_offset, producers.last_snapshot_offset) == (True, 7, 7)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "garbled": lambda data: bytes(37) + data[37:],
    "longer": lambda data: data + b"\0",
    "of another version": lambda data: b"\0\2" + data[2:],
}


@behaviour("PSM-036")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_deleted_and_the_one_before_is_used(producers: Producers, damage: str) -> None:
    producers.write(0, 0)
    producers.take_snapshot()
    producers.write(1, 1)
    newest = producers.take_snapshot()
    assert newest is not None
    Path(newest).write_bytes(DAMAGES[damage](Path(newest).read_bytes()))
    reloaded = producers.reopened()
    reloaded.truncate_and_reload(0, 20, NOW)
    assert reloaded.files == ["00000000000000000001.snapshot"]
    assert (reloaded.snapshot_offsets, reloaded.map_end_offset) == ([1], 1)
    assert entry_of(reloaded).last_offset == 0


@behaviour("PSM-024")
def test_starting_over_deletes_every_snapshot(producers: Producers) -> None:
    producers.write(0, 0)
    producers.write(1, 1, is_transactional=True)
    producers.take_snapshot()
    producers.end(2)
    producers.take_snapshot()
    assert producers.snapshot_offsets == [2, 3]
    producers.truncate_fully_and_start_at(0)
    assert (producers.files, producers.snapshot_offsets, producers.is_empty) == ([], [], True)
    assert producers.first_unstable_offset is None
    producers.write(0, 0)
    producers.take_snapshot()
    assert producers.snapshot_offsets == [1]
    assert producers.files == ["00000000000000000001.snapshot"]


# -- the files -----------------------------------------------------------------------------------------------------


@behaviour("PSM-023")
def test_snapshots_below_an_offset_can_be_deleted(producers: Producers) -> None:
    producers.write(0, 0)
    producers.write(1, 1)
    producers.take_snapshot()
    producers.write(2, 2)
    producers.take_snapshot()
    assert producers.snapshot_offsets == [2, 3]
    producers.delete_snapshots_before(3)
    assert (producers.snapshot_offsets, len(producers.files)) == ([3], 1)
    producers.delete_snapshots_before(4)
    assert (producers.snapshot_offsets, producers.files) == ([], [])


@behaviour("PSM-025")
def test_snapshots_that_come_later_are_found_after_a_reload(producers: Producers) -> None:
    for offset in (1, 2):
        producers.write(offset, offset)
    first = producers.take_snapshot()
    assert first is not None
    kept = Path(first).read_bytes()
    for offset in (3, 4):
        producers.write(offset, offset)
    producers.take_snapshot()
    producers.truncate_and_reload(3, 5, NOW)
    assert producers.snapshot_offsets == [5]

    Path(first).write_bytes(kept)
    assert producers.snapshot_offsets == [5]
    producers.truncate_fully_and_start_at(0)
    producers.reload_snapshots()
    assert (producers.snapshot_offsets, producers.latest_snapshot_offset) == ([3], 3)


@behaviour("PSM-038", "PSM-039")
@pytest.mark.parametrize(("bases", "kept"), [
    ([5], [5, 42]),
    ([42], [42]),
    ([2, 5, 42], [2, 5, 42]),
    ([2, 43], [2]),
    ([0], [42]),
    ([], [42]),
])  # fmt: skip
def test_snapshots_without_a_segment_are_deleted_except_that_of_a_clean_shutdown(
    producers: Producers, tmp_path: Path, bases: list[int], kept: list[int]
) -> None:
    touch(tmp_path, 5, 2, 42)
    producers.remove_stray_snapshots(bases)
    assert producers.snapshot_offsets == kept
    assert producers.files == [file_name(offset, SNAPSHOT_SUFFIX) for offset in kept]


@behaviour("PSM-040")
def test_a_snapshot_can_be_marked_for_deletion(tmp_path: Path) -> None:
    touch(tmp_path, 5, 6)
    producers = Producers(tmp_path)
    assert producers.mark_snapshot_for_deletion(5) == f"{tmp_path}/00000000000000000005.snapshot.deleted"
    assert producers.snapshot_offsets == [6]
    (tmp_path / "00000000000000000006.snapshot").unlink()
    assert producers.mark_snapshot_for_deletion(6) is None
    assert producers.snapshot_offsets == []
    assert producers.mark_snapshot_for_deletion(7) is None
    assert producers.files == ["00000000000000000005.snapshot.deleted"]
    assert Producers(tmp_path).snapshot_offsets == []


def test_only_files_with_an_offset_for_a_name_are_snapshots(tmp_path: Path) -> None:
    touch(tmp_path, 5)
    (tmp_path / "00000000000000000007.snapshot").mkdir()
    (tmp_path / "00000000000000000009.log").touch()
    assert Producers(tmp_path).snapshot_offsets == [5]
    assert Producers(tmp_path / "not-there").snapshot_offsets == []
    (tmp_path / "mine.snapshot").touch()
    with pytest.raises(CorruptionError):
        Producers(tmp_path)


# -- what Kafka wrote ----------------------------------------------------------------------------------------------

# Where a snapshot of Kafka is not what its log says: compaction took batches away, release 1.0 passed over the times of
# markers, and after a clean stop without snapshots Kafka takes for granted that there were no producers.
NOT_IN_THE_LOG = {
    "dump-formats/written-by-1.0.0/__consumer_offsets-0",
    "dump-formats/written-by-1.0.0/mixed-0",
    "kafka-4.3/6-recovery/clean/after/c-nosnapshot-0",
}


def replayed(partition: Partition, producers: Producers) -> int:
    """Append all that lies in a partition; how many of its snapshots were passed, and equal to ours."""
    theirs = {offset_of(path.name): path.read_bytes() for path in partition.path.glob("*.snapshot")}
    compared = end = 0

    def compare(offset: int) -> int:
        if offset not in theirs:
            return 0
        ours = build_snapshot(producers.producers[producer_id] for producer_id in producers.producers.java_order())
        assert ours == theirs[offset], f"{partition} {offset}"
        return 1

    for log in partition.logs:
        compared += compare(offset_of(log.name))
        end = offset_of(log.name)
        for batch in read_batches(log.read_bytes()):
            end = batch.last_offset + 1
            if batch.magic >= 2 and batch.producer_id >= 0:
                producers.append(batch_info(batch.buffer), REPLICATION, end_txn_marker_of(batch))
    return compared + (compare(end) if end > offset_of(partition.logs[-1].name) else 0)


def test_replaying_kafkas_logs_gives_kafkas_snapshots(tmp_path: Path) -> None:
    compared = 0
    for partition in corpus.undamaged_partitions():
        is_whole = offset_of(partition.logs[0].name) == 0 and partition.case != "kafka-4.3/5-compaction"
        if is_whole and str(partition) not in NOT_IN_THE_LOG:
            compared += replayed(partition, Producers(tmp_path))
    assert compared == 481
