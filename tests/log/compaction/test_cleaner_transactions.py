"""What a round does with producers and transactions: whose batches stay, what is aborted, when a marker may go."""

from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.compaction.compacting import (
    RETENTION,
    Producer,
    a_compacted_log,
    aborted_in,
    all_offsets,
    base_offsets,
    batches_in,
    compact,
    compact_twice,
    horizons_in,
    keys_in,
    last_offsets,
    put,
    put_each,
    stored_sequences,
    transactional,
)
from tests.log.logs import (
    COMMIT,
    COORDINATOR,
    NOW,
    all_replicated,
    batch,
    clock_of,
    end_txn,
    last_sequences,
    lead,
    of_producer,
    opened_again,
    remove_snapshots,
)
from tidelog.log import Isolation, UnifiedLog
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records import NewRecord

# -- producers ---------------------------------------------------------------------------------------------------------


def reloaded(log: UnifiedLog) -> UnifiedLog:
    """The log as it is after a crash, known from its batches alone."""
    log.flush()
    log.release()
    remove_snapshots(log)
    return opened_again(log)


@behaviour("CLN-009", "CLN-010", "CLN-011")
def test_the_last_batch_of_a_producer_is_known_again_whatever_is_left_of_it(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=2048)
    producers = [Producer(log, producer_id) for producer_id in (1, 2, 3)]
    for producer, keys in zip(producers, [(1, 2, 3), (3, 1, 4), (1, 4)], strict=True):
        producer(*keys)
    log.roll()
    compact(log)
    assert last_offsets(log) == [2, 5, 7]
    assert stored_sequences(log) == {1: 2, 2: 2, 3: 1}
    assert (keys_in(log), all_offsets(log)) == ([2, 3, 1, 4], [1, 3, 6, 7])

    log = reloaded(log)
    assert last_sequences(log) == {1: 2, 2: 2, 3: 1}
    for producer, offsets in zip(producers, [(0, 2), (3, 5), (6, 7)], strict=True):
        again = lead(log, producer.last)
        assert (again.first_offset, again.last_offset) == offsets
    assert log.log_end_offset == 8

    Producer(log, 4)(2)  # the first producer loses what it has left
    log.roll()
    compact(log)
    assert stored_sequences(log) == {1: 2, 2: 2, 3: 1, 4: 0}
    assert last_offsets(log) == [2, 5, 7, 8]
    assert (keys_in(log), all_offsets(log)) == ([3, 1, 4, 2], [3, 6, 7, 8])

    log = reloaded(log)
    again = lead(log, producers[0].last)
    assert (again.first_offset, again.last_offset, log.log_end_offset) == (0, 2, 9)


@behaviour("CLN-034")
def test_the_last_batch_of_each_producer_stays_though_another_one_wrote_its_key(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    second = Producer(log, 2)
    put(log, 0)
    Producer(log, 1)(0)
    second(0)
    Producer(log, 3)(0)
    second(1)
    log.roll()
    compact(log)
    assert last_offsets(log) == [1, 3, 4]
    assert stored_sequences(log) == {1: 0, 2: 1, 3: 0}
    assert (keys_in(log), all_offsets(log)) == ([0, 1], [3, 4])


@behaviour("CLN-035")
def test_the_last_sequence_stays_though_its_transaction_was_aborted(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    (producer,) = transactional(log, 1)
    producer(1)
    producer(2, 3)
    producer.abort()
    log.roll()
    compact(log)
    assert (last_offsets(log), stored_sequences(log)) == ([2, 3], {1: 2})
    assert (keys_in(log), all_offsets(log)) == ([], [3])

    producer(1, 5)
    log.roll()
    compact(log)
    assert (last_offsets(log), stored_sequences(log)) == ([3, 5], {1: 4})
    assert (keys_in(log), all_offsets(log)) == ([1, 5], [3, 4, 5])


def test_a_producer_that_is_forgotten_keeps_no_batch(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    Producer(log, 1)(0)
    put(log, 0)
    log.roll()
    compact(log)
    assert last_offsets(log) == [0, 1]
    clock_of(log).advance(days=2)
    log.remove_expired_producers()
    compact(log)
    assert last_offsets(log) == [1]


# -- aborted transactions ----------------------------------------------------------------------------------------------


@behaviour("CLN-012", "CLN-013", "CLN-014", "CLN-015", "CLN-016")
def test_rounds_that_end_early_take_aborted_data_first_then_its_index_then_its_markers(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=4096)
    one, two = transactional(log, 1, 2)
    one(1, 2)  # offsets 0 and 1
    two(2, 3)
    one(3, 4)  # 4 and 5
    one.commit()
    two.commit()  # 7
    one(2, 3)
    one.abort()  # 10
    two(4, 5)
    one(5, 6)  # 13 and 14
    one.commit()
    two.abort()  # 16
    two(6, 7)
    two.commit()  # 19
    log.roll()
    aborted = [AbortedTxnEntry(1, 8, 10, 11), AbortedTxnEntry(2, 11, 16, 17)]
    assert aborted_in(log) == aborted

    first = compact(log, 0, capacity=3)
    assert first.end_offset == 4
    assert base_offsets(log) == [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19]
    assert all_offsets(log) == [0, 2, 3, 4, 5, 6, 7, 10, 13, 14, 15, 16, 17, 18, 19]
    assert aborted_in(log) == aborted

    second = compact(log, 4, capacity=3)
    assert second.end_offset == 14
    assert base_offsets(log) == [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19]
    assert all_offsets(log) == [0, 2, 4, 5, 6, 7, 10, 13, 14, 15, 16, 17, 18, 19]
    assert aborted_in(log) == []

    clock_of(log).advance(RETENTION)
    third = compact(log, 14, capacity=3)
    assert third.end_offset == 20
    assert base_offsets(log) == [0, 2, 4, 6, 7, 13, 15, 17, 19]
    assert all_offsets(log) == [0, 2, 4, 5, 6, 7, 13, 15, 17, 18, 19]
    assert aborted_in(log) == []


@behaviour("CLN-017")
def test_of_mixed_transactions_the_committed_keys_stay_and_readers_are_told_the_same(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=2048)
    one, two = transactional(log, 1, 2)
    one(1, 2)
    two(2, 3)
    one(3, 4)
    one.abort()
    two.commit()
    one(2)
    one.commit()
    aborted = aborted_in(log)
    log.roll()
    all_replicated(log)
    compact(log)
    assert (keys_in(log), all_offsets(log)) == ([3, 2], [3, 6, 7, 8, 9])
    assert aborted_in(log) == aborted == [AbortedTxnEntry(1, 0, 6, 2)]
    assert [record.key for record in log.records(isolation=Isolation.COMMITTED)] == [b"3", b"2"]


@behaviour("CLN-018")
def test_aborted_data_goes_with_its_own_segment_wherever_its_marker_is(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    one, two, three = transactional(log, 1, 2, 3)
    one(1, 2)
    three(2, 3)
    two(3, 4)
    log.roll()
    two(5, 6)
    three(6, 7)
    one(7, 8)
    two.abort()
    three(8, 9)
    three.commit()
    one(9, 10)
    one.abort()
    end = compact(log).end_offset  # of the first segment alone
    assert keys_in(log) == [2, 3, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10]
    log.roll()
    two(11)
    one(12)
    compact(log, end)
    assert keys_in(log) == [2, 3, 6, 7, 8, 9, 11, 12]


@behaviour("CLN-024")
def test_an_aborted_batch_that_is_the_last_of_its_producer_stays_empty_and_keeps_its_marker(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=128)
    (producer,) = transactional(log, 1)
    producer(1)
    log.roll()
    producer.abort()
    log.roll()
    for _ in range(2):
        compact(log)
        assert (all_offsets(log), last_offsets(log)) == ([1], [0, 1])
        clock_of(log).advance(days=1000)


@behaviour("CLN-025")
def test_the_marker_of_an_aborted_transaction_is_stamped_and_goes_when_its_time_is_up(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=256)
    (producer,) = transactional(log, 1)
    producer(1)
    producer(2, 3)
    producer.abort()
    producer(3)
    producer.commit()
    log.roll()
    end = compact(log).end_offset
    assert (keys_in(log), all_offsets(log), horizons_in(log)) == ([3], [3, 4, 5], [])
    assert end == 6
    compact(log)
    assert (all_offsets(log), horizons_in(log)) == ([3, 4, 5], [NOW + RETENTION])
    clock_of(log).advance(RETENTION)
    compact(log)
    assert (keys_in(log), all_offsets(log)) == ([3], [4, 5])


@behaviour("CLN-027", "CLN-028")
def test_the_marker_stays_a_round_longer_than_the_empty_batch_before_it(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=256)
    (producer,) = transactional(log, 1)
    producer(2, 3)
    producer.abort()
    log.roll()
    aborted = [AbortedTxnEntry(1, 0, 2, 3)]
    assert aborted_in(log) == aborted
    compact(log)
    for _ in range(2):
        assert (aborted_in(log), all_offsets(log), last_offsets(log)) == (aborted, [2], [1, 2])
        compact_twice(log)

    producer(1)
    log.roll()
    compact(log)
    assert (aborted_in(log), all_offsets(log), last_offsets(log)) == (aborted, [2, 3], [2, 3])
    compact_twice(log)
    assert (aborted_in(log), keys_in(log), last_offsets(log)) == ([], [1], [3])


# -- committed transactions --------------------------------------------------------------------------------------------


@behaviour("CLN-019")
def test_the_marker_of_a_commit_stays_while_a_record_of_it_is_left(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=256)
    (producer,) = transactional(log, 1)
    producer(1)
    producer(2, 3)
    producer.commit()
    producer(2)
    producer.commit()
    log.roll()
    end = compact(log).end_offset
    assert (keys_in(log), all_offsets(log)) == ([1, 3, 2], [0, 2, 3, 4, 5])

    producer(1, 3)
    producer.commit()
    log.roll()
    end = compact(log, end).end_offset  # the records were read in this round
    assert (keys_in(log), all_offsets(log), horizons_in(log)) == ([2, 1, 3], [3, 4, 5, 6, 7, 8], [])
    for _ in range(2):
        compact(log, 0)  # stamped, and not gone in the same moment
        assert (all_offsets(log), horizons_in(log)) == ([3, 4, 5, 6, 7, 8], [NOW + RETENTION])
    clock_of(log).advance(RETENTION - 1)
    compact(log, 0)
    assert all_offsets(log) == [3, 4, 5, 6, 7, 8]
    clock_of(log).advance(1)
    compact(log, 0)
    assert (keys_in(log), all_offsets(log), end) == ([2, 1, 3], [4, 5, 6, 7, 8], 9)


@behaviour("CLN-020")
@pytest.mark.parametrize("window", [61, 100, None])
def test_a_round_goes_on_where_all_that_was_read_at_once_is_dropped(tmp_path: Path, window: int | None) -> None:
    log = a_compacted_log(tmp_path)
    (producer,) = transactional(log, 1)
    producer(1)
    producer.abort()
    producer(2)
    producer(2)
    producer.commit()
    log.roll()
    compact(log, window=window)
    assert (keys_in(log), all_offsets(log)) == ([2], [1, 3, 4])
    compact_twice(log, window=window)
    assert (keys_in(log), all_offsets(log)) == ([2], [3, 4])


@behaviour("CLN-021")
def test_an_empty_batch_kept_for_its_producer_keeps_the_marker_too(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=256)
    one, two = transactional(log, 1, 2)
    one(2, 3)
    log.roll()
    two(2, 3)
    two.commit()
    log.roll()
    put_each(log, 2, 3)
    one.commit()
    log.roll()
    for _ in range(2):
        compact(log)
        assert (keys_in(log), all_offsets(log)) == ([2, 3], [4, 5, 6, 7])
        assert last_offsets(log) == [1, 3, 4, 5, 6, 7]

    two(1)
    two.commit()
    log.roll()
    compact(log)  # the empty batch goes first
    assert (keys_in(log), all_offsets(log)) == ([2, 3, 1], [4, 5, 6, 7, 8, 9])
    assert (last_offsets(log), horizons_in(log)) == ([1, 4, 5, 6, 7, 8, 9], [])
    compact_twice(log)
    assert (keys_in(log), all_offsets(log)) == ([2, 3, 1], [5, 6, 7, 8, 9])
    assert last_offsets(log) == [1, 5, 6, 7, 8, 9]


@behaviour("CLN-022")
def test_a_marker_that_is_all_there_is_of_a_producer_becomes_an_empty_batch(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=256)
    end_txn(log, 1, COMMIT)
    put_each(log, 2, 3)
    log.roll()
    compact_twice(log)
    for _ in range(2):
        assert (keys_in(log), all_offsets(log), last_offsets(log)) == ([2, 3], [1, 2], [0, 1, 2])
        first = next(iter(batches_in(log)))
        assert (first.is_control, first.producer_id) == (True, 1)
        clock_of(log).advance(days=1000)
        compact(log)


@behaviour("CLN-023")
def test_a_committed_record_and_its_marker_in_another_segment_both_stay(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=128)
    (producer,) = transactional(log, 1)
    producer(1)
    log.roll()
    producer.commit()
    log.roll()
    compact_twice(log)
    assert (all_offsets(log), last_offsets(log)) == ([0, 1], [0, 1])


@behaviour("CLN-026")
def test_where_every_transaction_begins_with_sequence_0_older_empty_batches_go(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=2048)
    for key in (1, 2):
        records = [NewRecord(b"%d" % key, b"%d" % key, NOW)]
        lead(log, of_producer(1, 0, records, is_transactional=True), origin=COORDINATOR)
        end_txn(log, 1, COMMIT)
    put_each(log, 1, 2)
    log.roll()
    compact(log)
    assert (all_offsets(log), last_offsets(log)) == ([1, 3, 4, 5], [1, 2, 3, 4, 5])
    compact_twice(log)
    assert (all_offsets(log), last_offsets(log)) == ([3, 4, 5], [2, 3, 4, 5])


@behaviour("CLN-036")
def test_a_key_that_looks_like_that_of_a_marker_is_another_key(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    (producer,) = transactional(log, 1)
    producer(1)
    producer.commit()
    (marker,) = [record for part in batches_in(log) if part.is_control for record in part.records()]
    records = [NewRecord(marker.key, b"foo", NOW)]
    lead(log, batch(records, producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True))
    end_txn(log, 2, COMMIT)
    log.roll()
    compact(log)
    assert (all_offsets(log), last_offsets(log)) == ([0, 1, 2, 3], [0, 1, 2, 3])
