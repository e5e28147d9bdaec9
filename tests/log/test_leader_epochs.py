"""Leader epochs: which leader wrote which offsets."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tidelog.errors import CheckpointError, InvalidRequestError, StorageError
from tidelog.log.checkpoints import LeaderEpochCheckpoint
from tidelog.log.leader_epochs import UNDEFINED, EpochEnd, EpochEntry, LeaderEpochCache
from tidelog.log.local_files import LocalFileSystem


def cache_in(directory: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    """A cache on the file of a directory, with these epochs assigned to it."""
    cache = LeaderEpochCache(LeaderEpochCheckpoint(LocalFileSystem(), str(directory / "leader-epoch-checkpoint")))
    for epoch, start_offset in entries:
        cache.assign(epoch, start_offset)
    return cache


def file_in(directory: Path) -> list[EpochEntry]:
    return LeaderEpochCheckpoint(LocalFileSystem(), str(directory / "leader-epoch-checkpoint")).read()


@pytest.fixture
def three(tmp_path: Path) -> LeaderEpochCache:
    return cache_in(tmp_path, (2, 6), (3, 8), (4, 11))


# -- assigning -------------------------------------------------------------------------------------------------------


@behaviour("LEC-001")
def test_the_previous_epoch_is_the_one_below_the_latest(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    assert cache.previous_epoch is None
    cache.assign(2, 10)
    assert cache.previous_epoch is None
    cache.assign(4, 15)
    assert cache.previous_epoch == 2
    cache.assign(10, 20)
    assert cache.previous_epoch == 4
    cache.truncate_from_end(18)
    assert cache.previous_epoch == 2


@behaviour("LEC-002")
def test_an_assigned_epoch_is_the_latest_and_ends_with_the_log(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    assert (cache.latest, cache.latest_epoch, cache.earliest) == (None, None, None)
    assert cache.assign(2, 10)
    assert (cache.latest, cache.latest_epoch, cache.earliest) == ((2, 10), 2, (2, 10))
    assert cache.end_offset_for(2, 14) == (2, 14)


@behaviour("LEC-003")
def test_the_same_epoch_again_changes_nothing(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, (2, 10))
    (tmp_path / "leader-epoch-checkpoint").unlink()
    assert not cache.assign(2, 11)
    assert not cache.assign(2, 10)
    assert cache.entries == ((2, 10),)
    assert list(tmp_path.iterdir()) == []  # not written either


@behaviour("LEC-006")
def test_epochs_start_at_different_offsets(tmp_path: Path) -> None:
    assert cache_in(tmp_path, (2, 9), (3, 9)).entries == ((3, 9),)


@behaviour("LEC-009")
def test_an_epoch_that_starts_earlier_than_thought_drops_what_it_contradicts(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, (5, 11), (6, 12), (7, 13))
    assert cache.assign(7, 12)
    assert cache.entries == ((5, 11), (7, 12))
    assert cache.end_offset_for(5, 20) == cache.end_offset_for(6, 20) == (5, 12)


@behaviour("LEC-013")
def test_epochs_need_not_start_at_zero(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, (1000, 0))
    assert cache.end_offset_for(1000, 3) == (1000, 3)


@behaviour("LEC-015")
def test_an_older_epoch_at_a_later_offset_drops_the_newer(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, (1, 5), (2, 6))
    assert cache.latest_epoch == 2
    cache.assign(1, 7)
    assert cache.entries == ((1, 7),)
    assert cache.latest_epoch == 1
    assert cache.end_offset_for(2, 8) == UNDEFINED
    assert cache.end_offset_for(1, 8) == (1, 8)


@behaviour("LEC-016")
def test_a_newer_epoch_at_an_earlier_offset_drops_the_older(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, (2, 6), (3, 5))
    assert cache.entries == ((3, 5),)
    assert cache.end_offset_for(3, 9) == (3, 9)


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_are_refused(tmp_path: Path, epoch: int, start_offset: int) -> None:
    cache = cache_in(tmp_path)
    with pytest.raises(InvalidRequestError):
        cache.assign(epoch, start_offset)
    assert cache.entries == ()


# -- where an epoch ends ---------------------------------------------------------------------------------------------


@behaviour("LEC-004")
def test_the_latest_epoch_ends_where_the_log_does(three: LeaderEpochCache) -> None:
    assert three.end_offset_for(4, 11) == (4, 11)
    assert three.end_offset_for(4, 111) == (4, 111)


@behaviour("LEC-005", "LEC-007")
def test_nothing_is_known_of_epoch_minus_one_nor_of_any_without_entries(
    tmp_path: Path, three: LeaderEpochCache
) -> None:
    empty_directory = tmp_path / "empty"
    empty_directory.mkdir()
    empty = cache_in(empty_directory)
    assert three.end_offset_for(-1, 20) == empty.end_offset_for(-1, 20) == empty.end_offset_for(0, 20) == UNDEFINED
    assert (empty.epoch_for_offset(0), empty.next_epoch(-1), empty.previous_epoch) == (None, None, None)
    assert UNDEFINED == (-1, -1)


@behaviour("LEC-008")
def test_an_epoch_below_the_earliest_ends_where_the_earliest_begins(tmp_path: Path) -> None:
    assert cache_in(tmp_path, (5, 11), (6, 12), (7, 13)).end_offset_for(4, 20) == (4, 11)


@behaviour("LEC-010")
def test_an_epoch_ends_where_the_next_begins(tmp_path: Path) -> None:
    assert cache_in(tmp_path, (1, 11), (2, 13), (3, 15)).end_offset_for(2, 20) == (2, 15)


@behaviour("LEC-011")
def test_an_epoch_that_is_missing_is_answered_by_the_one_below(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, (0, 10), (2, 13), (4, 17))
    assert [cache.end_offset_for(epoch, 20) for epoch in (1, 2, 3)] == [(0, 13), (2, 17), (2, 17)]


@behaviour("LEC-012")
def test_nothing_is_known_of_an_epoch_above_the_latest(three: LeaderEpochCache) -> None:
    assert three.end_offset_for(5, 20) == UNDEFINED


@behaviour("LEC-017")
def test_a_leader_that_wrote_nothing_leaves_no_entry(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, (0, 0), (1, 0))
    assert cache.latest_epoch == 1
    assert cache.end_offset_for(1, 0) == (1, 0)
    assert cache.end_offset_for(0, 0) == (0, 0)
    assert cache.end_offset_for(1, 5) == (1, 5)
    assert cache.end_offset_for(0, 5) == (0, 0)


@behaviour("LEC-018")
def test_a_chain_of_leaders_answers_for_each(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, (0, 0), (1, 0), (2, 5))
    assert [cache.end_offset_for(epoch, 10).end_offset for epoch in (2, 1, 0)] == [10, 5, 0]


@behaviour("LEC-019")
def test_a_follower_answers_for_the_epochs_it_received(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, *((offset // 3, offset) for offset in range(9)))
    assert cache.entries == ((0, 0), (1, 3), (2, 6))
    assert [cache.end_offset_for(epoch, 9) for epoch in (0, 1, 2)] == [(0, 3), (1, 6), (2, 9)]


@behaviour("LEC-027")
def test_the_next_epoch_is_the_lowest_above(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, (0, 10), (1, 20), (2, 30))
    assert [cache.next_epoch(epoch) for epoch in (-1, 0, 1, 2, 100)] == [0, 1, 2, None, None]


@behaviour("LEC-028")
def test_an_offset_belongs_to_the_last_epoch_that_began_before_it(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, (0, 10), (1, 20), (5, 30))
    found = {offset: cache.epoch_for_offset(offset) for offset in (5, 9, 10, 19, 20, 25, 29, 30, 1000)}
    assert found == {5: None, 9: None, 10: 0, 19: 0, 20: 1, 25: 1, 29: 1, 30: 5, 1000: 5}


# -- truncation ------------------------------------------------------------------------------------------------------


@behaviour("LEC-020")
def test_truncating_from_the_end_drops_what_begins_there_or_behind(three: LeaderEpochCache) -> None:
    three.truncate_from_end(9)
    assert three.entries == ((2, 6), (3, 8))
    three.truncate_from_end(8)
    assert three.entries == ((2, 6),)
    assert three.latest == (2, 6)
    three.truncate_from_end(0)
    assert (three.entries, three.latest) == ((), None)


@behaviour("LEC-021")
@pytest.mark.parametrize(
    ("offset", "left"),
    [(8, ((3, 8), (4, 11))), (9, ((3, 9), (4, 11))), (11, ((4, 11),)), (15, ((4, 15),))],
)
def test_truncating_from_the_start_moves_the_epoch_of_the_offset(
    three: LeaderEpochCache, offset: int, left: tuple[tuple[int, int], ...]
) -> None:
    three.truncate_from_start(offset)
    assert three.entries == left
    assert (three.earliest, three.latest) == (left[0], left[-1])


@behaviour("LEC-022", "LEC-024")
def test_truncating_outside_the_entries_changes_nothing(three: LeaderEpochCache) -> None:
    three.truncate_from_start(1)
    three.truncate_from_start(6)
    three.truncate_from_start(-1)
    three.truncate_from_end(-1)
    three.truncate_from_end(12)
    assert three.entries == ((2, 6), (3, 8), (4, 11))
    assert not three.is_dirty


@behaviour("LEC-023")
def test_truncating_inside_the_first_epoch_moves_its_start(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, (0, 0), (1, 7), (2, 10))
    cache.truncate_from_start(5)
    assert cache.entries == ((0, 5), (1, 7), (2, 10))


@behaviour("LEC-025")
def test_truncating_no_entries_is_harmless(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.truncate_from_start(7)
    cache.truncate_from_end(7)
    assert (cache.entries, cache.is_dirty) == ((), False)


# -- the file --------------------------------------------------------------------------------------------------------


@behaviour("LEC-014")
def test_entries_survive_reopening(tmp_path: Path) -> None:
    cache_in(tmp_path, (2, 6), (3, 8))
    assert file_in(tmp_path) == [(2, 6), (3, 8)]
    assert cache_in(tmp_path).entries == ((2, 6), (3, 8))


@behaviour("LEC-026")
def test_clearing_reaches_the_file(tmp_path: Path, three: LeaderEpochCache) -> None:
    three.clear_and_flush()
    assert (three.entries, file_in(tmp_path), three.is_dirty) == ((), [], False)
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n0\n"


def test_clearing_memory_leaves_the_file_until_it_is_flushed(tmp_path: Path, three: LeaderEpochCache) -> None:
    three.clear()
    assert (three.entries, three.latest, three.is_dirty) == ((), None, True)
    assert len(file_in(tmp_path)) == 3
    three.flush()
    assert (file_in(tmp_path), three.is_dirty) == ([], False)


@behaviour("LEC-029")
def test_truncation_reaches_the_file_when_it_is_flushed(tmp_path: Path, three: LeaderEpochCache) -> None:
    three.truncate_from_end(11)
    assert three.is_dirty
    three.truncate_from_start(8)
    assert file_in(tmp_path) == [(2, 6), (3, 8), (4, 11)]
    three.flush()
    assert file_in(tmp_path) == [(3, 8)]
    assert not three.is_dirty


def test_an_assignment_brings_earlier_truncations_to_the_file(tmp_path: Path, three: LeaderEpochCache) -> None:
    three.truncate_from_end(11)
    assert three.assign(7, 10)
    assert file_in(tmp_path) == [(2, 6), (3, 8), (7, 10)]
    assert not three.is_dirty


def test_a_flush_of_nothing_new_leaves_the_file_alone(tmp_path: Path, three: LeaderEpochCache) -> None:
    (tmp_path / "leader-epoch-checkpoint").unlink()
    three.flush()
    assert list(tmp_path.iterdir()) == []


@behaviour("CKP-010")
def test_a_late_flush_into_a_directory_that_is_gone_is_skipped(tmp_path: Path) -> None:
    home = tmp_path / "t-0"
    home.mkdir()
    cache = cache_in(home, (1, 5), (2, 9))
    cache.truncate_from_end(9)
    home.rename(tmp_path / "t-0.uid-delete")
    cache.flush()
    assert [path.name for path in tmp_path.iterdir()] == ["t-0.uid-delete"]
    assert file_in(tmp_path / "t-0.uid-delete") == [(1, 5), (2, 9)]
    assert cache.is_dirty
    cache.checkpoint.path = str(tmp_path / "t-0.uid-delete" / "leader-epoch-checkpoint")
    cache.flush()
    assert file_in(tmp_path / "t-0.uid-delete") == [(1, 5)]


def test_a_flush_that_fails_in_a_directory_that_is_there_is_an_error(tmp_path: Path, three: LeaderEpochCache) -> None:
    three.truncate_from_end(9)
    (tmp_path / "leader-epoch-checkpoint.tmp").mkdir()  # so that the file beside cannot be written
    with pytest.raises(StorageError):
        three.flush()
    assert three.is_dirty
    (tmp_path / "leader-epoch-checkpoint.tmp").rmdir()
    three.flush()
    assert file_in(tmp_path) == [(2, 6), (3, 8)]


def test_an_assignment_into_a_directory_that_is_gone_is_an_error(tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "never-there")
    with pytest.raises(StorageError):
        cache.assign(1, 0)
    assert cache.is_dirty


def test_a_file_out_of_order_is_read_as_if_it_were_assigned(tmp_path: Path) -> None:
    file = tmp_path / "leader-epoch-checkpoint"
    file.write_bytes(b"0\n4\n1 5\n2 6\n2 8\n4 6\n")
    assert cache_in(tmp_path).entries == ((1, 5), (4, 6))
    file.write_bytes(b"0\n2\n-1 0\n1 5\n")
    with pytest.raises(CheckpointError, match="epoch -1"):
        cache_in(tmp_path)


# -- against a plain model -------------------------------------------------------------------------------------------

SMALL = st.integers(0, 12)
STEPS = st.lists(
    st.tuples(st.just("assign"), SMALL, SMALL)
    | st.tuples(st.sampled_from(["end", "start"]), st.integers(-1, 14), st.just(0)),
    max_size=12,
)


@given(STEPS)
def test_any_history_keeps_epochs_and_offsets_increasing_and_leaves_them_in_the_file(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    cache = cache_in(tmp_path_factory.mktemp("epochs"))
    model: dict[int, int] = {}
    for step, one, other in steps:
        if step == "assign":
            cache.assign(one, other)
            if not (model and max(model) == one and model[one] <= other):
                model = {epoch: start for epoch, start in model.items() if epoch < one and start < other}
                model[one] = other
        elif step == "end":
            cache.truncate_from_end(one)
            model = {epoch: start for epoch, start in model.items() if one < 0 or start < one}
        else:
            cache.truncate_from_start(one)
            gone = [epoch for epoch, start in model.items() if start <= one]
            kept = {epoch: start for epoch, start in model.items() if start > one}
            model = {max(gone): one, **kept} if gone else kept
        assert cache.entries == tuple(sorted(model.items()))
        assert cache.latest == (max(model.items()) if model else None)
    for epoch in range(-1, 14):
        assert cache.end_offset_for(epoch, 50) == end_by_model(model, epoch)
    cache.flush()
    assert cache.checkpoint.read() == list(cache.entries)


def end_by_model(model: dict[int, int], epoch: int) -> EpochEnd:
    below, above = [one for one in model if one <= epoch], [one for one in model if one > epoch]
    if epoch == -1 or not model or (not above and epoch not in model):
        return EpochEnd(-1, -1)
    return EpochEnd(max(below, default=epoch), model[min(above)] if above else 50)
