"""Opening a directory after a clean stop or a crash: what is read again, what is made anew, what goes."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.segments_language import (
    ABORT,
    COMMIT,
    Partition,
    bases,
    batch,
    by,
    filled,
    follow,
    marker,
    offsets_of,
    snapshots,
)
from tidelog.log import UnifiedLog
from tidelog.log.names import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name
from tidelog.records import Codec, NewRecord, build_batch, build_message_set
from tidelog.records.java import MAX_INT32

ALL = 1 << 20
_PRODUCER_ID_POSITION = 43


def four_producers(partition: Partition) -> UnifiedLog:
    """Producer n writes two records, and only into the n-th segment, for n = 0, 1, 2, 3."""
    return filled(partition, *([by(n, 2 * n), by(n, 2 * n + 1, 1)] for n in range(4)))


def disguise(partition: Partition, base_offset: int, producer_id: int = 999) -> None:
    """Change the producer in the first batch of a segment, and not the checksum: who reads it again tells."""
    name = file_name(base_offset, LOG_SUFFIX)
    data = bytearray(partition.read(name))
    struct.pack_into(">q", data, _PRODUCER_ID_POSITION, producer_id)
    partition.write(name, bytes(data))


def damage(partition: Partition, base_offset: int, position: int = 70) -> None:
    """Flip a bit in a segment."""
    name = file_name(base_offset, LOG_SUFFIX)
    data = bytearray(partition.read(name))
    data[position] ^= 1
    partition.write(name, bytes(data))


# -- what is recovered -----------------------------------------------------------------------------------------------


@behaviour("LDR-005")
@pytest.mark.parametrize(
    ("recovery_point", "damaged", "end"),
    [(0, 0, 0), (1, 0, 0), (2, 0, 8), (3, 0, 8), (3, 2, 2), (4, 2, 8), (5, 4, 4), (7, 6, 6), (8, 6, 6)],
)
def test_recovery_reads_the_segments_from_the_one_of_the_recovery_point_on(
    tmp_path: Path, recovery_point: int, damaged: int, end: int
) -> None:
    partition = Partition(tmp_path)
    partition.crash(four_producers(partition))
    damage(partition, damaged)
    log = partition.open(recovery_point=recovery_point)
    assert log.log_end_offset == end
    assert bases(log) == [base for base in (0, 2, 4, 6) if base <= end]


@behaviour("LDR-005")
def test_what_follows_a_cut_goes_with_its_snapshot_and_its_files_after_the_delay(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.crash(four_producers(partition))
    damage(partition, 2, 70 + len(by(1, 2)))
    log = partition.open()
    assert (bases(log), log.log_end_offset, offsets_of(log)) == ([0, 2], 3, [0, 1, 2])
    assert sorted(log.producers.producers) == [0, 1]
    gone = [name for name in partition.files(".deleted") if ".log" in name]
    assert gone == [file_name(base, LOG_SUFFIX) + ".deleted" for base in (4, 6)]
    partition.clock.advance(partition.config.file_delete_delay_ms)
    log.tick()
    assert partition.files(".deleted") == []
    assert [base for base in snapshots(partition) if base > 3] == []


@behaviour("LDR-006")
def test_without_earlier_snapshots_all_earlier_segments_are_read_for_their_producers(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.crash(four_producers(partition))
    for base in snapshots(partition):
        if base not in (4, 6):
            partition.remove(file_name(base, SNAPSHOT_SUFFIX))
    disguise(partition, 0)
    log = partition.open(recovery_point=2)
    assert 999 in log.producers.producers
    assert (log.log_end_offset, sorted(log.producers.producers)) == (8, [0, 1, 2, 3, 999])


@behaviour("LDR-007")
def test_with_a_snapshot_at_the_recovery_point_nothing_before_it_is_read(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.crash(four_producers(partition))
    disguise(partition, 0)
    disguise(partition, 2)
    log = partition.open(recovery_point=4)
    assert sorted(log.producers.producers) == [0, 1, 2, 3]
    assert log.log_end_offset == 8


@behaviour("LDR-008")
def test_recovery_leaves_snapshots_at_the_ends_of_what_it_recovered(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.crash(four_producers(partition))
    partition.remove(SNAPSHOT_SUFFIX)
    partition.open(recovery_point=2)
    assert {4, 6, 8} <= set(snapshots(partition))


@behaviour("LDR-009")
def test_an_empty_log_is_loaded_and_truncated_without_a_look_at_its_batches(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    log = partition.open()
    assert (log.producers.is_empty, log.producers.map_end_offset, snapshots(partition)) == (True, 0, [])
    follow(log, batch(0))
    follow(log, batch(1))
    log.truncate_to(1)
    assert (log.producers.is_empty, log.producers.map_end_offset, snapshots(partition)) == (True, 1, [1])


@behaviour("LDR-010")
def test_recovery_takes_a_marker_of_an_older_coordinator(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    log = filled(
        partition,
        [
            batch(0, producer_id=5, sequence=0, is_transactional=True),
            marker(1, ABORT, 5, coordinator_epoch=6),
            marker(2, COMMIT, 5, coordinator_epoch=5),
        ],
    )
    partition.crash(log)
    partition.remove(SNAPSHOT_SUFFIX)
    log = partition.open()
    assert (log.log_end_offset, log.producers.producers[5].coordinator_epoch) == (3, 5)


@behaviour("LDR-011")
def test_after_a_clean_stop_without_snapshot_there_was_no_producer(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    four_producers(partition).close()
    partition.remove(SNAPSHOT_SUFFIX)
    log = partition.open(clean=True)
    assert log.producers.is_empty
    assert snapshots(partition) == [4, 6, 8]
    assert len({partition.read(file_name(base, SNAPSHOT_SUFFIX)) for base in (4, 6, 8)}) == 1


@behaviour("LDR-012")
def test_producers_of_a_segment_that_is_partly_deleted_are_still_known_after_a_crash(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    log = filled(partition, [by(1, 0), by(2, 1)])
    log.delete_records(1)
    partition.crash(log)
    log = partition.open(log_start_offset=1)
    assert sorted(log.producers.producers) == [1, 2]


@behaviour("LDR-013")
def test_a_producer_of_a_deleted_segment_is_forgotten_after_a_crash(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    log = filled(partition, [by(1, 0)], [by(2, 1)])
    log.delete_records(1)
    log.delete_old_segments()
    assert bases(log) == [1]
    partition.clock.advance(partition.config.file_delete_delay_ms)
    log.tick()
    partition.crash(log)
    log = partition.open(log_start_offset=1)
    assert (log.log_start_offset, log.log_end_offset, sorted(log.producers.producers)) == (1, 2, [2])


@behaviour("LDR-014")
def test_a_snapshot_at_no_segment_goes_and_the_largest_stays(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    log = filled(partition, [by(1, 0)], [by(1, 1, 1)], [by(1, 2, 2), by(1, 3, 3)])
    log.close()
    assert snapshots(partition) == [1, 2, 4]
    partition.write(file_name(3, SNAPSHOT_SUFFIX), partition.read(file_name(2, SNAPSHOT_SUFFIX)))
    partition.open(clean=True)
    assert snapshots(partition) == [1, 2, 4]


@behaviour("LDR-016")
@pytest.mark.parametrize("recovery_point", [0, 3, 8])
def test_recovery_does_not_move_the_recovery_point(tmp_path: Path, recovery_point: int) -> None:
    partition = Partition(tmp_path)
    partition.crash(four_producers(partition))
    log = partition.open(recovery_point=recovery_point)
    assert log.recovery_point == recovery_point
    log.flush()
    assert log.recovery_point == 8


@behaviour("LDR-033")
def test_after_a_clean_stop_nothing_is_recovered_whatever_the_recovery_point(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    four_producers(partition).close()
    damage(partition, 2)
    log = partition.open(recovery_point=0, clean=True)
    assert (log.log_end_offset, log.recovery_point, bases(log)) == (8, 8, [0, 2, 4, 6])


# -- offsets far apart -----------------------------------------------------------------------------------------------

FAR = MAX_INT32 + 2


@behaviour("LDR-024")
def test_an_offset_too_far_above_the_base_begins_a_segment(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    log = filled(partition, [by(1, 0), by(1, FAR, 1)])
    assert (bases(log), log.log_end_offset) == ([0, FAR], FAR + 1)
    assert snapshots(partition) == [FAR]
    partition.crash(log)
    log = partition.open()
    assert (bases(log), offsets_of(log)) == ([0, FAR], [0, FAR])


@behaviour("LDR-025")
def test_a_compressed_batch_too_far_above_the_base_begins_a_segment_with_its_first_offset(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    records = [NewRecord(b"k", b"v", 1)] * 2
    log = filled(
        partition, [batch(0), build_batch(records, codec=Codec.GZIP, base_offset=FAR, partition_leader_epoch=0)]
    )
    assert (bases(log), log.log_end_offset) == ([0, FAR], FAR + 2)
    assert snapshots(partition) == [FAR]


@behaviour("LDR-026")
def test_a_legacy_wrapper_too_far_above_the_base_begins_a_segment_as_low_as_its_first_offset_could_be(
    tmp_path: Path,
) -> None:
    partition = Partition(tmp_path)
    records = [NewRecord(b"k", b"v", 1)] * 2
    log = partition.open()
    for base in (0, FAR, 2 * FAR):
        follow(log, build_message_set(1, records, codec=Codec.GZIP, base_offset=base))
    assert bases(log) == [0, FAR + 1 - MAX_INT32, 2 * FAR + 1 - MAX_INT32]
    assert bases(log)[1] == 3
    assert snapshots(partition) == bases(log)[1:]
    assert offsets_of(log) == [0, 1, FAR, FAR + 1, 2 * FAR, 2 * FAR + 1]


# -- the log start ---------------------------------------------------------------------------------------------------


def below_the_start(partition: Partition) -> UnifiedLog:
    """A log that starts at 7, in the last of its segments, opened after the first was damaged."""
    log = four_producers(partition)
    log.delete_records(7)
    partition.crash(log)
    damage(partition, 0)
    return partition.open(log_start_offset=7)


@behaviour("LDR-036")
def test_a_log_that_ends_before_its_start_begins_anew_at_the_start(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    log = below_the_start(partition)
    assert (bases(log), log.log_start_offset, log.log_end_offset, log.size) == ([7], 7, 7, 0)
    assert log.leader_epochs.entries == ()
    assert log.producers.is_empty
    follow(log, batch(7))
    assert offsets_of(log) == [7]


@behaviour("LDR-037")
def test_snapshots_made_after_that_are_not_removed_by_the_deletions_that_wait(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    log = below_the_start(partition)
    assert [base for base in snapshots(partition) if base != 7] == []
    for n in range(3):
        follow(log, by(4, 7 + n, n))
        log.roll()
    assert set(snapshots(partition)) >= {8, 9, 10}
    partition.clock.advance(partition.config.file_delete_delay_ms)
    log.tick()
    assert partition.files(".deleted") == []
    assert set(snapshots(partition)) >= {8, 9, 10}
    partition.crash(log)
    assert sorted(partition.open(log_start_offset=7).producers.producers) == [4]


@behaviour("LDR-040")
@pytest.mark.parametrize(("checkpoint", "start"), [(0, 2), (1, 2), (2, 2), (3, 3), (6, 6)])
def test_the_log_starts_at_the_checkpoint_or_the_first_segment_whichever_is_higher(
    tmp_path: Path, checkpoint: int, start: int
) -> None:
    partition = Partition(tmp_path)
    four_producers(partition).close()
    partition.remove(file_name(0, LOG_SUFFIX))
    log = partition.open(log_start_offset=checkpoint, clean=True)
    assert (log.log_start_offset, log.log_end_offset) == (start, 8)
    assert min(offsets_of(log)) == start


@behaviour("LDR-040")
def test_with_tiering_the_log_starts_at_the_checkpoint(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    four_producers(partition).close()
    partition.remove(file_name(0, LOG_SUFFIX))
    partition.config = replace(partition.config, remote_storage_enable=True)
    log = partition.open(log_start_offset=1, clean=True)
    assert (log.log_start_offset, log.log_end_offset) == (1, 8)
