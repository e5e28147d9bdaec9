"""Opening a directory: indexes, epochs and transactions are made anew from the batches; garbage goes."""

import random
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.segments_language import (
    ABORT,
    Partition,
    bases,
    batch,
    filled,
    follow,
    marker,
    offsets_in,
    offsets_of,
)
from tidelog.log import UnifiedLog
from tidelog.log.names import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records import NewRecord, build_message_set

ALL = 1 << 20


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
