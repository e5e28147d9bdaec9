"""Idempotent producers of a log: repetitions and gaps, what is remembered of whom, and snapshots of it."""

from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.logs import (
    MEGABYTE,
    NOW,
    a_log,
    all_replicated,
    bases_of,
    batch,
    clock_of,
    end_txn,
    follow,
    in_txn,
    last_sequences,
    lead,
    names_in,
    of_producer,
    opened_again,
    remove_snapshots,
    snapshots_of,
)
from tidelog.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from tidelog.log import LogConfig, UnifiedLog
from tidelog.log.names import SNAPSHOT_SUFFIX, file_name
from tidelog.log.producer_state import ActiveProducer
from tidelog.records import BatchBuilder, NewRecord, empty_batch

ONE = len(batch(1))


# -- repetitions and gaps ----------------------------------------------------------------------------------------------


@behaviour("LOG-024")
def test_a_gap_in_the_sequence_is_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, of_producer(1, 0))
    with pytest.raises(OutOfOrderSequenceError) as refusal:
        lead(log, of_producer(1, 2))
    assert refusal.value.error_code == 45
    assert log.log_end_offset == 1


@pytest.fixture
def repeated_to(tmp_path: Path) -> UnifiedLog:
    """Six batches of one record, then one of three: sequences 0 to 8."""
    log = a_log(tmp_path)
    for sequence in range(6):
        lead(log, of_producer(1, sequence))
    lead(log, of_producer(1, 6, 3))
    return log


@behaviour("LOG-047")
def test_the_newest_batch_sent_again_gets_the_old_answer_and_is_not_appended(repeated_to: UnifiedLog) -> None:
    again = lead(repeated_to, of_producer(1, 6, 3))
    assert (again.first_offset, again.last_offset, again.is_duplicate) == (6, 8, True)
    assert repeated_to.log_end_offset == 9


@behaviour("LOG-048")
def test_a_part_of_the_newest_batch_is_no_repetition(repeated_to: UnifiedLog) -> None:
    with pytest.raises(OutOfOrderSequenceError):
        lead(repeated_to, of_producer(1, 7, 2))
    assert repeated_to.log_end_offset == 9


@behaviour("LOG-049")
def test_of_the_five_newest_batches_each_may_be_sent_again_and_none_older(repeated_to: UnifiedLog) -> None:
    for sequence in (2, 3, 4, 5):
        assert lead(repeated_to, of_producer(1, sequence)).first_offset == sequence
    for sequence in (0, 1):
        with pytest.raises(OutOfOrderSequenceError):
            lead(repeated_to, of_producer(1, sequence))
    assert repeated_to.log_end_offset == 9


@behaviour("LOG-051")
def test_a_follower_takes_repeated_sequences_at_new_offsets(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    for offset in (0, 1):
        follow(log, of_producer(1, 0, base_offset=offset, partition_leader_epoch=0))
    sent = [
        of_producer(producer, sequence, base_offset=2 + number, partition_leader_epoch=0)
        for number, (producer, sequence) in enumerate([(1, 1), (2, 1), (1, 1), (2, 1)])
    ]
    follow(log, *sent)
    assert log.log_end_offset == 6
    assert log.active_segment.log.file.read(2 * len(sent[0]), MEGABYTE) == b"".join(sent)


@behaviour("LOG-052")
def test_a_batch_of_an_older_producer_epoch_is_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, of_producer(1, 0, epoch=1))
    with pytest.raises(InvalidProducerEpochError) as refusal:
        lead(log, of_producer(1, 0, epoch=0))
    assert refusal.value.error_code == 47


# -- what is told of producers -----------------------------------------------------------------------------------------


@behaviour("LOG-013", "LOG-014")
def test_producers_are_described_with_their_transactions(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, in_txn(1, 0, 5, epoch=5))
    assert log.producers.active_producers() == [ActiveProducer(1, 5, 4, NOW, -1, 0)]
    end_txn(log, 1, epoch=5, coordinator_epoch=15)
    assert log.producers.active_producers() == [ActiveProducer(1, 5, 4, NOW, 15, -1)]
    lead(log, of_producer(2, 0, 3, epoch=7))
    assert log.producers.active_producers()[1] == ActiveProducer(2, 7, 2, NOW, -1, -1)


@behaviour("LOG-042")
def test_a_producer_stays_known_when_the_segment_with_its_data_is_deleted(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=ONE, retention_bytes=2 * ONE)
    lead(log, of_producer(1, 0))
    lead(log, of_producer(2, 0))
    lead(log, of_producer(2, 1))
    all_replicated(log)
    assert log.delete_old_segments() == 1
    assert bases_of(log) == [1, 2]
    assert last_sequences(log) == {1: 0, 2: 1}


@behaviour("LOG-053")
def test_records_that_are_deleted_take_their_snapshots_along_but_no_producer(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, of_producer(1, 0))
    log.roll()
    lead(log, of_producer(2, 0))
    log.roll()
    assert snapshots_of(log) == [1, 2]
    all_replicated(log)
    log.delete_records(2)
    log.delete_old_segments()
    assert snapshots_of(log) == [2]
    assert names_in(log, ".snapshot.deleted") == ["00000000000000000001.snapshot.deleted"]
    clock_of(log).advance(log.config.file_delete_delay_ms)
    log.tick()
    assert names_in(log, ".deleted") == []
    assert last_sequences(log) == {1: 0, 2: 0}


# -- state out of the log ----------------------------------------------------------------------------------------------


def compacted_batch() -> bytearray:
    """Four records of sequences 0 to 3, of which compaction left the first and the third."""
    builder = BatchBuilder(base_offset=23, partition_leader_epoch=0, producer_id=1, producer_epoch=0, base_sequence=0)
    for offset in (23, 25):
        builder.append(NewRecord(None, b"v", NOW), offset)
    return builder.build(last_offset=26)


@behaviour("LOG-033")
def test_compaction_leaves_the_last_sequence_of_a_batch(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    follow(log, compacted_batch())
    assert last_sequences(log) == {1: 3}
    follow(log, batch(2, base_offset=27, partition_leader_epoch=0))
    log.truncate_to(27)
    assert last_sequences(log) == {1: 3}
    assert last_sequences(opened_again(log)) == {1: 3}


@behaviour("LOG-034")
def test_a_batch_without_records_leaves_the_last_sequence_of_its_producer(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    follow(
        log,
        empty_batch(
            base_offset=23,
            last_offset=24,
            max_timestamp_ms=NOW,
            partition_leader_epoch=0,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
        ),
    )
    follow(log, batch(2, base_offset=25, partition_leader_epoch=0))
    log.truncate_to(25)
    assert last_sequences(log) == {1: 1}


@behaviour("LOG-044")
def test_after_truncation_to_where_a_segment_began_the_producer_is_as_the_snapshot_has_it(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=ONE)
    lead(log, of_producer(1, 0))
    lead(log, of_producer(1, 1))
    assert (bases_of(log), snapshots_of(log)) == ([0, 1], [1])
    log.truncate_to(1)
    assert (bases_of(log), snapshots_of(log), log.active_segment.size) == ([0, 1], [1], 0)
    entry = log.producers.last_entry(1)
    assert entry is not None
    assert (entry.first_offset, entry.last_offset) == (0, 0)


@behaviour("LOG-027", "LOG-028", "LOG-029")
def test_missing_snapshots_are_taken_again_when_a_log_is_opened(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=10 * ONE)
    for _ in range(55):
        lead(log, 1)
    bases = bases_of(log)
    assert bases == [0, 10, 20, 30, 40, 50]

    log.close()
    remove_snapshots(log)
    log = opened_again(log, clean_shutdown=True, recovery_point=55)
    assert snapshots_of(log) == [40, 50, 55]

    log.close()
    remove_snapshots(log)
    log = opened_again(log, recovery_point=55)
    assert snapshots_of(log) == [40, 50, 55]

    log.close()
    remove_snapshots(log)
    log = opened_again(log, recovery_point=0)
    assert snapshots_of(log) == [*bases[1:], 55]


@behaviour("LOG-040")
def test_a_snapshot_above_the_log_end_is_removed_when_a_log_is_opened(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    (directory / file_name(42, SNAPSHOT_SUFFIX)).touch()
    log = a_log(tmp_path, config=LogConfig())
    assert log.log_end_offset == 0
    assert snapshots_of(log) == []


@behaviour("LOG-032")
def test_the_producers_follow_the_log_end_where_nobody_is_idempotent(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1)
    log.producers.take_snapshot()
    assert snapshots_of(log) == [1]


@behaviour("LOG-050")
def test_a_follower_takes_batches_of_several_producers_as_they_are(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    sent = [
        of_producer(producer, 0, 2, base_offset=2 * number, partition_leader_epoch=0)
        for number, producer in enumerate((1, 2, 3, 4))
    ]
    follow(log, *sent)
    assert log.active_segment.log.file.read(0, MEGABYTE) == b"".join(sent)
    assert last_sequences(log) == {1: 1, 2: 1, 3: 1, 4: 1}
