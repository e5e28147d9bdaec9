"""What a batch of a producer must fulfil: epochs, sequences, transactions, markers. Nothing is written here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tests.log.producers import ABORT, CLIENT, COMMIT, COORDINATOR, NOW, PRODUCER, REPLICATION, data, marker
from tidelog.errors import (
    AppendError,
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from tidelog.log.batch_info import BatchInfo, batch_info
from tidelog.log.offsets import OffsetMetadata
from tidelog.log.origin import AppendOrigin
from tidelog.log.producer_append import ProducerAppendInfo
from tidelog.log.producer_entry import MAX_CACHED_BATCHES, BatchMetadata, ProducerEntry
from tidelog.log.producer_txn import CompletedTxn, ProducerTxn
from tidelog.log.verification import VerificationEntry
from tidelog.records import EndTxnMarker, empty_batch
from tidelog.records.batch import BatchAttributes
from tidelog.records.java import MAX_INT32

MAX_EPOCH = 32767


def known(
    last_sequence: int = 9, *, epoch: int = 5, txn_first_offset: int | None = None, **fields: int
) -> ProducerEntry:
    """A producer whose newest batch ended with a sequence; its offsets are equal to its sequences."""
    newest = BatchMetadata(last_sequence, last_sequence, 0, NOW)
    return ProducerEntry(PRODUCER, epoch, fields.get("coordinator_epoch", -1), NOW, txn_first_offset, [newest])


def after_marker(epoch: int = 5, coordinator_epoch: int = 0) -> ProducerEntry:
    """A producer of which only a marker is known."""
    return ProducerEntry(PRODUCER, epoch, coordinator_epoch, NOW)


def append(current: ProducerEntry | None, *batches: BatchInfo, origin: AppendOrigin = CLIENT) -> ProducerAppendInfo:
    info = ProducerAppendInfo(PRODUCER, current, origin)
    for batch in batches:
        info.append(batch)
    return info


# -- sequences -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", [9, 11, 0, MAX_INT32])
def test_a_client_must_go_on_where_it_stopped(sequence: int) -> None:
    assert append(known(9), data(20, 10, epoch=5)).entry.last_sequence == 10
    with pytest.raises(OutOfOrderSequenceError):
        append(known(9), data(20, sequence, epoch=5))


@behaviour("PSM-004")
def test_the_highest_sequence_is_followed_by_zero_alone() -> None:
    current = known(MAX_INT32)
    assert append(current, data(735, 0, epoch=5)).entry.last_sequence == 0
    with pytest.raises(OutOfOrderSequenceError):
        append(current, data(735, 1, epoch=5))


@behaviour("PSM-005")
def test_a_batch_may_wrap_around_the_highest_sequence() -> None:
    batch = data(2000, MAX_INT32 - 10, epoch=15, count=21)
    entry = append(None, batch, origin=REPLICATION).entry
    assert (entry.first_sequence, entry.last_sequence) == (MAX_INT32 - 10, 9)
    assert (entry.first_offset, entry.last_offset) == (2000, 2020)
    assert entry.batches == [BatchMetadata(9, 2020, 20, NOW)]


@behaviour("PSM-006", "PSM-021")
@pytest.mark.parametrize("origin", [REPLICATION, CLIENT])
def test_the_first_batch_of_an_unknown_producer_may_have_any_sequence(origin: AppendOrigin) -> None:
    entry = append(None, data(735, 16, epoch=5), origin=origin).entry
    assert (entry.epoch, entry.first_sequence, entry.last_sequence) == (5, 16, 16)
    assert (entry.first_offset, entry.last_offset, entry.last_timestamp_ms) == (735, 735, NOW)


def test_several_batches_of_an_append_must_follow_each_other() -> None:
    entry = append(known(9), data(20, 10, epoch=5, count=3), data(23, 13, epoch=5)).entry
    assert [batch.first_sequence for batch in entry.batches] == [10, 13]
    with pytest.raises(OutOfOrderSequenceError):
        append(known(9), data(20, 10, epoch=5, count=3), data(23, 14, epoch=5))


@behaviour("PSM-022")
def test_replication_may_skip_sequences() -> None:
    with pytest.raises(OutOfOrderSequenceError):
        append(known(0), data(1, 3, epoch=5))
    assert append(known(0), data(1, 3, epoch=5), origin=REPLICATION).entry.last_sequence == 3


@behaviour("PSM-033")
def test_a_coordinator_needs_no_sequences() -> None:
    def commit(offset: int) -> BatchInfo:
        return data(offset, 0, is_transactional=True)._replace(base_sequence=-1)

    entry = append(None, commit(99), commit(100), origin=COORDINATOR).entry
    assert [batch.last_sequence for batch in entry.batches] == [-1, -1]
    assert (entry.txn_first_offset, entry.last_offset) == (99, 100)


def test_the_five_newest_batches_are_remembered() -> None:
    entry = append(None, *(data(offset, offset) for offset in range(8))).entry
    assert [batch.last_offset for batch in entry.batches] == [3, 4, 5, 6, 7]
    current = append(None, *(data(offset, offset) for offset in range(4))).entry
    current.take_over(append(current, *(data(offset, offset) for offset in range(4, 7))).entry)
    assert [batch.last_offset for batch in current.batches] == [2, 3, 4, 5, 6]
    assert len(current.batches) == MAX_CACHED_BATCHES


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(0, 30), st.integers(1, 5))
def test_a_batch_is_a_duplicate_of_the_one_with_its_sequences_alone(
    counts: list[int], sequence: int, count: int
) -> None:
    entry = ProducerEntry(PRODUCER)
    appended: list[tuple[int, int]] = []
    for size in counts:
        start = appended[-1][1] + 1 if appended else 0
        entry.take_over(append(entry, data(100 + start, start, count=size)).entry)
        appended.append((start, start + size - 1))
    asked = data(500, sequence, count=count)
    duplicate = entry.find_duplicate(asked)
    if (sequence, sequence + count - 1) in appended[-MAX_CACHED_BATCHES:]:
        assert duplicate == BatchMetadata(sequence + count - 1, 100 + sequence + count - 1, count - 1, NOW)
        assert (duplicate.first_sequence, duplicate.first_offset) == (sequence, 100 + sequence)
    else:
        assert duplicate is None
    assert entry.find_duplicate(asked._replace(producer_epoch=1)) is None


# -- epochs --------------------------------------------------------------------------------------------------------


def test_an_older_epoch_is_fenced_except_in_replication() -> None:
    for origin in (CLIENT, COORDINATOR, AppendOrigin.RAFT_LEADER):
        with pytest.raises(InvalidProducerEpochError):
            append(known(9), data(20, 10, epoch=4), origin=origin)
    entry = append(known(9), data(20, 10, epoch=4), origin=REPLICATION).entry
    assert (entry.epoch, entry.last_sequence) == (4, 10)


def test_a_higher_epoch_starts_at_zero_and_forgets_the_batches_of_the_last() -> None:
    current = known(9)
    with pytest.raises(OutOfOrderSequenceError):
        append(current, data(20, 10, epoch=6))
    current.take_over(append(current, data(20, 0, epoch=6)).entry)
    assert (current.epoch, current.batches) == (6, [BatchMetadata(0, 20, 0, NOW)])


def test_a_higher_epoch_inside_an_append_starts_at_zero_too() -> None:
    entry = append(known(9), data(20, 10, epoch=5), data(21, 0, epoch=6), data(22, 1, epoch=6)).entry
    assert [batch.last_offset for batch in entry.batches] == [21, 22]
    with pytest.raises(OutOfOrderSequenceError):
        append(known(9), data(20, 10, epoch=5), data(21, 11, epoch=6))


@behaviour("PSM-003", "PSM-008")
@pytest.mark.parametrize(("epoch", "sequence", "error"), [
    (4, 0, InvalidProducerEpochError),
    (5, 17, OutOfOrderSequenceError),
    (5, 2, OutOfOrderSequenceError),
    (6, 2, OutOfOrderSequenceError),
    (5, 0, None),
    (6, 0, None),
])  # fmt: skip
def test_behind_a_marker_an_epoch_starts_at_zero(epoch: int, sequence: int, error: type[AppendError] | None) -> None:
    batch = data(30, sequence, epoch=epoch)
    if error is None:
        assert append(after_marker(5), batch).entry.last_sequence == 0
    else:
        with pytest.raises(error):
            append(after_marker(5), batch)


# -- verification --------------------------------------------------------------------------------------------------


@behaviour("PSM-043")
def test_a_sequence_above_the_one_being_verified_is_out_of_order() -> None:
    info = ProducerAppendInfo(PRODUCER, None, CLIENT, VerificationEntry(NOW, 0, 0, supports_epoch_bump=False))
    with pytest.raises(OutOfOrderSequenceError, match="while 0 is being verified"):
        info.append(data(0, 4, is_transactional=True))
    info.append(data(0, 0, is_transactional=True))
    assert info.entry.txn_first_offset == 0


@pytest.mark.parametrize("current", [None, after_marker(0)])
def test_in_transactions_of_version_2_an_unknown_producer_begins_with_zero(current: ProducerEntry | None) -> None:
    def info(*, supports_epoch_bump: bool) -> ProducerAppendInfo:
        verification = VerificationEntry(NOW, 7, 1, supports_epoch_bump)
        return ProducerAppendInfo(PRODUCER, current, CLIENT, verification)

    batch = data(0, 7, epoch=1, is_transactional=True)
    with pytest.raises(OutOfOrderSequenceError, match="begins with 0"):
        info(supports_epoch_bump=True).append(batch)
    info(supports_epoch_bump=True).append(data(0, 0, epoch=1, is_transactional=True))
    if current is None:
        info(supports_epoch_bump=False).append(batch)  # as before version 2


# -- transactions --------------------------------------------------------------------------------------------------


@behaviour("PSM-012")
def test_a_transaction_begins_with_its_first_batch_and_ends_with_its_marker() -> None:
    info = ProducerAppendInfo(PRODUCER, known(0, epoch=0), CLIENT)
    info.append(data(16, 1, count=5, is_transactional=True))
    info.append(data(26, 6, count=5, is_transactional=True))
    batches = [BatchMetadata(5, 20, 4, NOW), BatchMetadata(10, 30, 4, NOW)]
    assert (info.entry.txn_first_offset, info.entry.batches) == (16, batches)

    completed = info.append(marker(40, timestamp_ms=NOW + 7), EndTxnMarker(COMMIT, 15))
    assert completed == CompletedTxn(PRODUCER, 16, 40, is_aborted=False)
    assert (info.entry.txn_first_offset, info.entry.batches) == (None, batches)
    assert (info.entry.coordinator_epoch, info.entry.last_timestamp_ms) == (15, NOW + 7)
    assert info.started == (ProducerTxn(PRODUCER, OffsetMetadata(16)),)


@behaviour("PSM-013")
@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR, REPLICATION])
def test_a_plain_batch_inside_a_transaction_is_refused(origin: AppendOrigin) -> None:
    with pytest.raises(InvalidTxnStateError):
        append(known(9, txn_first_offset=3), data(20, 10, epoch=5), origin=origin)


@behaviour("PSM-046")
def test_markers_without_data_complete_nothing() -> None:
    info = ProducerAppendInfo(PRODUCER, known(4, epoch=0, txn_first_offset=16), CLIENT)

    def end(offset: int, kind: EndTxnMarker) -> CompletedTxn | None:
        return info.append(marker(offset), kind)

    commit, abort = EndTxnMarker(COMMIT, 0), EndTxnMarker(ABORT, 0)
    assert end(21, commit) == CompletedTxn(PRODUCER, 16, 21, is_aborted=False)
    assert end(22, commit) is None
    assert end(23, abort) is None
    info.append(data(24, 5, count=4, is_transactional=True))
    assert end(28, abort) == CompletedTxn(PRODUCER, 24, 28, is_aborted=True)
    assert end(29, abort) is None
    info.append(data(30, 9, count=2, is_transactional=True))
    assert [txn.first_offset for txn in info.started] == [24, 30]
    assert info.entry.txn_first_offset == 30


@behaviour("PSM-037")
def test_a_control_batch_that_compaction_emptied_changes_nothing() -> None:
    batch = batch_info(
        empty_batch(
            base_offset=15,
            last_offset=15,
            max_timestamp_ms=NOW,
            producer_id=PRODUCER,
            producer_epoch=9,
            attributes=BatchAttributes(is_transactional=True, is_control=True),
        )
    )
    assert (batch.is_control, batch.records_count) == (True, 0)
    info = ProducerAppendInfo(PRODUCER, known(9, txn_first_offset=3), CLIENT)
    assert info.append(batch) is None
    assert info.entry == ProducerEntry(PRODUCER, 5, -1, NOW, 3)
    assert info.started == ()
    assert append(None, batch).entry == ProducerEntry(PRODUCER)


def test_a_data_batch_that_compaction_emptied_counts_as_it_was() -> None:
    batch = empty_batch(
        base_offset=100,
        last_offset=104,
        max_timestamp_ms=NOW,
        producer_id=PRODUCER,
        producer_epoch=1,
        base_sequence=10,
    )
    entry = append(None, batch_info(batch), origin=REPLICATION).entry
    assert entry.batches == [BatchMetadata(14, 104, 4, NOW)]
    assert (entry.first_sequence, entry.first_offset) == (10, 100)


# -- markers -------------------------------------------------------------------------------------------------------


def end(
    current: ProducerEntry | None,
    epoch: int,
    *,
    coordinator_epoch: int = 0,
    version: int = 0,
    origin: AppendOrigin = COORDINATOR,
) -> ProducerEntry:
    info = ProducerAppendInfo(PRODUCER, current, origin)
    info.append(marker(50, epoch=epoch), EndTxnMarker(COMMIT, coordinator_epoch), transaction_version=version)
    return info.entry


@behaviour("PSM-002")
def test_a_marker_makes_an_unknown_producer_known() -> None:
    entry = end(None, 2)
    assert (entry.producer_id, entry.epoch, entry.last_sequence, entry.last_offset) == (PRODUCER, 2, -1, -1)


@behaviour("PSM-034")
def test_a_marker_of_an_older_epoch_is_refused() -> None:
    with pytest.raises(InvalidProducerEpochError):
        end(known(epoch=5, txn_first_offset=3), 3)
    assert end(known(epoch=5, txn_first_offset=3), 3, origin=REPLICATION).epoch == 3


@behaviour("PSM-007")
def test_a_marker_of_a_higher_epoch_forgets_the_batches() -> None:
    current = known(epoch=5, txn_first_offset=3)
    current.take_over(end(current, 6))
    assert (current.epoch, current.batches, current.txn_first_offset) == (6, [], None)
    assert (current.first_sequence, current.last_sequence) == (-1, -1)
    current.take_over(append(current, data(60, 0, epoch=6)).entry)
    assert current.first_sequence == 0


def test_a_marker_of_the_same_epoch_keeps_the_batches() -> None:
    current = known(9, txn_first_offset=3)
    current.take_over(end(current, 5))
    assert (current.last_sequence, current.txn_first_offset) == (9, None)


@behaviour("PSM-035")
def test_a_marker_of_an_older_coordinator_is_refused() -> None:
    current = known(epoch=5, coordinator_epoch=1)
    assert end(current, 5, coordinator_epoch=1).coordinator_epoch == 1
    assert end(current, 5, coordinator_epoch=2).coordinator_epoch == 2
    with pytest.raises(CoordinatorFencedError):
        end(current, 5, coordinator_epoch=0)
    assert end(current, 5, coordinator_epoch=0, origin=REPLICATION).coordinator_epoch == 0


@behaviour("PSM-048")
@pytest.mark.parametrize(("version", "epoch", "marker_epoch", "is_open", "passes"), [
    (0, 5, 5, True, True),
    (1, 5, 5, True, True),
    (1, 5, 4, True, False),
    (2, 5, 6, True, True),
    (2, 5, 5, True, False),
    (2, 5, 4, True, False),
    (2, 5, 6, False, True),
    (2, 5, 5, False, True),  # sent again
    (2, 5, 4, False, False),
    (3, 5, 5, True, False),
    (2, MAX_EPOCH, MAX_EPOCH, True, True),  # it can go no higher
    (2, MAX_EPOCH, MAX_EPOCH - 1, True, False),
])  # fmt: skip
def test_since_version_2_a_transaction_ends_with_a_higher_epoch(
    version: int, epoch: int, marker_epoch: int, is_open: bool, passes: bool
) -> None:
    current = known(epoch=epoch, txn_first_offset=3 if is_open else None)
    if passes:
        assert end(current, marker_epoch, version=version).txn_first_offset is None
    else:
        with pytest.raises(InvalidProducerEpochError):
            end(current, marker_epoch, version=version)
    assert end(current, marker_epoch, version=version, origin=REPLICATION).epoch == marker_epoch
