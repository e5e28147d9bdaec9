"""Opening a directory after a clean stop or a crash: what is read again, what is made anew, what goes."""

import random
import struct
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.segments_language import ABORT, COMMIT, Partition, bases, batch, marker, offsets_in, offsets_of
from tidelog.log import UnifiedLog
from tidelog.log.names import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records import Codec, NewRecord, build_batch, build_message_set
from tidelog.records.java import MAX_INT32

ALL = 1 << 20
_PRODUCER_ID_POSITION = 43


def follow(log: UnifiedLog, data: bytearray) -> None:
    log.append_as_follower(memoryview(data))
    log.update_high_watermark(log.log_end_offset)


def by(producer_id: int, offset: int, sequence: int = 0) -> bytearray:
    """A batch of one record, of an idempotent producer."""
    return batch(offset, producer_id=producer_id, sequence=sequence)


def filled(partition: Partition, *segments: Iterable[bytearray]) -> UnifiedLog:
    """A log with these segments, flushed and with snapshots as rolls make them."""
    log = partition.open()
    for number, batches in enumerate(segments):
        if number:
            log.roll()
        for data in batches:
            follow(log, data)
    log.tick()
    return log


def four_producers(partition: Partition) -> UnifiedLog:
    """Producer n writes two records, and only into the n-th segment, for n = 0, 1, 2, 3."""
    return filled(partition, *([by(n, 2 * n), by(n, 2 * n + 1, 1)] for n in range(4)))


def snapshots(partition: Partition) -> list[int]:
    return [int(name[:20]) for name in partition.files(SNAPSHOT_SUFFIX)]


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


# -- indexes ---------------------------------------------------------------------------------------------------------


def indexed(root: Path) -> Partition:
    return Partition(root, segment_bytes=2000, segment_index_bytes=400, index_interval_bytes=150)


def with_hundred(partition: Partition) -> UnifiedLog:
    return filled(partition, [batch(offset) for offset in range(100)])


def assert_all_found(log: UnifiedLog, last: int = 99) -> None:
    """Every offset and every time is found where it was appended."""
    for offset in range(last + 1):
        assert offsets_in(log.read(offset, 1))[0] == offset
        found = log.offset_for_time(offset * 10)
        assert found is not None
        assert found.offset == offset


@behaviour("LDR-015")
@pytest.mark.parametrize("recovery_point", [100, 10])
def test_a_log_that_is_opened_again_has_the_same_entries(tmp_path: Path, recovery_point: int) -> None:
    partition = indexed(tmp_path)
    log = with_hundred(partition)
    entries = [list(segment.offset_index.reader()) for segment in log.segments]
    assert len(log.segments) > 3
    log.close()
    times = {name: partition.read(name) for name in partition.files(".timeindex")}
    log = partition.open(recovery_point=recovery_point)
    assert log.log_end_offset == 100
    assert [list(segment.offset_index.reader()) for segment in log.segments] == entries
    assert log.active_segment.time_index.last_entry == (990, 99)
    log.close()
    assert {name: partition.read(name) for name in partition.files(".timeindex")} == times


@behaviour("LDR-017")
@pytest.mark.parametrize("clean", [True, False])
def test_indexes_that_are_gone_are_made_anew(tmp_path: Path, clean: bool) -> None:
    partition = indexed(tmp_path)
    with_hundred(partition).close()
    before = partition.contents
    partition.remove(".index")
    partition.remove(".timeindex")
    log = partition.open(recovery_point=100, clean=clean)
    assert_all_found(log)
    log.close()
    assert partition.contents == before


@behaviour("LDR-017")
def test_a_time_index_alone_that_is_gone_is_not_made_anew_but_times_are_found(tmp_path: Path) -> None:
    partition = indexed(tmp_path)
    with_hundred(partition).close()
    partition.remove(".timeindex")
    assert_all_found(partition.open(recovery_point=100, clean=True))


@behaviour("LDR-018")
@pytest.mark.parametrize("magic", [0, 1])
def test_a_segment_without_timestamps_gets_an_empty_time_index(tmp_path: Path, magic: int) -> None:
    partition = indexed(tmp_path)
    log = partition.open()
    for offset in range(50):
        log.append_as_follower(
            memoryview(build_message_set(magic, [NewRecord(b"k", b"v" * 50, -1)], base_offset=offset))
        )
    assert len(log.segments) > 1
    log.close()
    partition.remove(".index")
    partition.remove(".timeindex")
    partition.open(recovery_point=50).close()
    names = partition.files(".timeindex")
    assert [len(partition.read(name)) for name in names] == [0] * len(names)
    assert len(partition.read(partition.files(".index")[0])) > 0


@behaviour("LDR-019")
def test_indexes_of_two_spaces_are_made_anew_by_recovery(tmp_path: Path) -> None:
    partition = indexed(tmp_path)
    with_hundred(partition).close()
    before = partition.contents
    for name in partition.files("index"):
        partition.write(name, b"  ")
    log = partition.open()
    assert_all_found(log)
    log.close()
    assert partition.contents == before


@behaviour("LDR-020")
def test_index_files_without_a_log_go_and_their_base_can_be_used(tmp_path: Path) -> None:
    partition = indexed(tmp_path)
    partition.open().close()
    for base in (0, 5):
        partition.remove(file_name(base, LOG_SUFFIX))
        for suffix in (".index", ".timeindex", ".txnindex"):
            partition.write(file_name(base, suffix), b"  ")
    log = partition.open()
    assert bases(log) == [0]
    assert [name for name in partition.files() if name.startswith(f"{5:020}")] == []
    for offset in range(5):
        follow(log, batch(offset))
    log.roll()
    assert (bases(log), log.active_segment.offset_index.entries) == ([0, 5], 0)
    assert offsets_of(log) == list(range(5))


@behaviour("LDR-038")
@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_active_segment_without_index_gets_one(tmp_path: Path, clean: bool) -> None:
    partition = indexed(tmp_path)
    log = filled(partition, [batch(0), batch(1)])
    log.roll()
    partition.crash(log)
    assert partition.files(file_name(2, ".log")) != []
    partition.remove(file_name(2, ".index"))
    log = partition.open(recovery_point=2, clean=clean)
    assert partition.files(file_name(2, ".index")) != []
    assert log.active_segment.time_index.entries == 0
    assert (bases(log), log.log_end_offset) == ([0, 2], 2)


@behaviour("LDR-039")
def test_a_forced_flush_creates_the_indexes_of_an_empty_active_segment(tmp_path: Path) -> None:
    partition = indexed(tmp_path)
    log = filled(partition, [batch(0)])
    log.roll()
    index = file_name(1, ".index")
    log.flush()
    assert partition.files(index) == []
    log.flush(force=True)
    assert partition.files(index) == [index]
    log.active_segment.check(is_time_index_new=False)


# -- leftovers and damage --------------------------------------------------------------------------------------------


@behaviour("LDR-021")
def test_a_log_can_be_truncated_right_after_it_was_opened(tmp_path: Path) -> None:
    partition = indexed(tmp_path)
    with_hundred(partition).close()
    log = partition.open(clean=True)
    log.truncate_to(3)
    assert (bases(log), log.log_end_offset, offsets_of(log)) == ([0], 3, [0, 1, 2])
    follow(log, batch(3))
    assert offsets_in(log.read(0, ALL)) == [0, 1, 2, 3]


@behaviour("LDR-022")
def test_files_on_their_way_out_are_removed(tmp_path: Path) -> None:
    partition = indexed(tmp_path)
    with_hundred(partition).close()
    kept = partition.files()
    for name in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        partition.write(file_name(7, name) + ".deleted", b"x")
    log = partition.open(clean=True)
    assert sorted(set(partition.files()) - set(kept)) == []
    assert log.log_end_offset == 100


@behaviour("LDR-023")
@pytest.mark.parametrize("seed", range(10))
def test_random_bytes_behind_log_and_index_are_cut_off(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    partition = indexed(tmp_path)
    with_hundred(partition).close()
    before = partition.contents
    for suffix in (".log", ".index", ".timeindex"):
        name = partition.files(suffix)[-1]
        partition.write(name, partition.read(name) + rng.randbytes(rng.randrange(1, 1024)))
    log = partition.open(recovery_point=100)
    assert offsets_of(log) == list(range(100))
    assert_all_found(log)
    log.close()
    assert partition.contents == before


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


# -- epochs and transactions -----------------------------------------------------------------------------------------


@behaviour("LDR-034")
def test_leader_epochs_are_found_again_in_the_batches(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    batches = [batch(offset, epoch=epoch) for offset, epoch in enumerate([1, 2, 2, 3])]
    filled(partition, batches).close()
    checkpoint = partition.read("leader-epoch-checkpoint")
    partition.write("leader-epoch-checkpoint", b"0\n1\n1 0\n")
    log = partition.open()
    assert log.leader_epochs.entries == ((1, 0), (2, 1), (3, 3))
    log.close()
    assert partition.read("leader-epoch-checkpoint") == checkpoint
    partition.write("leader-epoch-checkpoint", b"0\n0\n")
    assert partition.open().leader_epochs.entries == ((1, 0), (2, 1), (3, 3))


ABORTED = [AbortedTxnEntry(1, 0, 29, 8), AbortedTxnEntry(2, 8, 74, 36)]


def with_aborted(partition: Partition) -> UnifiedLog:
    """Producer 1 aborts at 29 what it began at 0, 2 at 74 what it began at 8, and 3 has been at work since 36."""
    log = partition.open()
    sequences = {1: 0, 2: 0, 3: 0}

    def write(producer_id: int, start: int, end: int) -> None:
        for offset in range(start, end):
            data = batch(offset, producer_id=producer_id, sequence=sequences[producer_id], is_transactional=True)
            sequences[producer_id] += 1
            follow(log, data)

    write(1, 0, 5)
    for offset in range(5, 8):
        follow(log, batch(offset))
    write(2, 8, 12)
    write(1, 12, 29)
    follow(log, marker(29, ABORT, 1))
    write(2, 30, 36)
    write(3, 36, 50)
    write(2, 50, 74)
    follow(log, marker(74, ABORT, 2))
    write(3, 75, 80)
    return log


def aborted_of(log: UnifiedLog) -> list[AbortedTxnEntry]:
    return list(log.local.collect_aborted(0, log.log_end_offset))


@behaviour("LDR-035")
@pytest.mark.parametrize("only_last", [True, False])
@pytest.mark.parametrize("with_snapshots", [True, False])
def test_aborted_transactions_are_found_again(tmp_path: Path, only_last: bool, with_snapshots: bool) -> None:
    partition = Partition(tmp_path, segment_bytes=2000, segment_index_bytes=400)
    log = with_aborted(partition)
    assert len(log.segments) > 3
    assert aborted_of(log) == ABORTED
    log.close()
    before = partition.contents
    last = file_name(log.active_segment.base_offset, "")
    for suffix in (".index", ".txnindex"):
        partition.remove(last + suffix if only_last else suffix)
    if not with_snapshots:
        partition.remove(SNAPSHOT_SUFFIX)
    log = partition.open(recovery_point=log.log_end_offset)
    assert aborted_of(log) == ABORTED
    assert log.first_unstable_offset == 36
    log.close()
    indexes = [name for name in before if name.endswith("index")]
    assert {name: partition.read(name) for name in indexes} == {name: before[name] for name in indexes}


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
