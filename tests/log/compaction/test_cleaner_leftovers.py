"""Rounds that do not end as they began: given up, overtaken by deletion or truncation, or cut by a crash."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.compaction.compacting import (
    a_cleaner,
    a_compacted_log,
    all_offsets,
    compact,
    contents_of,
    files_of,
    fill_segments,
    finished,
    keys_in,
    put,
    put_each,
    settle,
    to_clean,
)
from tests.log.logs import all_replicated, bases_of, clock_of, names_in, opened_again
from tidelog.errors import CleaningAbortedError
from tidelog.log import UnifiedLog
from tidelog.log.compaction.cleaner import CleanedRound
from tidelog.log.names import CLEANED, DELETED, SEGMENT_SUFFIXES, SWAP, TIME_INDEX_SUFFIX
from tidelog.testing.disk import SimulatedFileSystem

# -- given up ----------------------------------------------------------------------------------------------------------


def several_groups() -> UnifiedLog:
    """A log of several groups, in which half of the keys come twice."""
    log = a_compacted_log("/data", fs=SimulatedFileSystem(), segment_bytes=300)
    fill_segments(log, 6)
    put_each(log, *range(0, log.log_end_offset, 2))
    log.roll()
    all_replicated(log)
    return log


@behaviour("CLN-041")
def test_a_round_that_is_given_up_leaves_the_old_segments() -> None:
    log = several_groups()
    before = files_of(log)
    work = a_cleaner(log).clean(to_clean(log))
    while not names_in(log, CLEANED):
        next(work)
    work.close()
    assert files_of(log) == before
    assert finished(a_cleaner(log).clean(to_clean(log))).end_offset == log.active_segment.base_offset


def test_a_round_can_be_given_up_wherever_it_waits_and_taken_up_again() -> None:
    steps = len(list(a_cleaner(log := several_groups()).clean(to_clean(log))))
    whole = keys_in(log), all_offsets(log)
    assert steps > 10
    swapped = []
    for step in range(steps + 1):
        log = several_groups()
        work = a_cleaner(log).clean(to_clean(log))
        for _ in range(step):
            next(work)
        work.close()
        assert not [name for name in names_in(log) if name.endswith((CLEANED, SWAP))]
        assert {*keys_in(log)} == {*whole[0]}
        swapped.append(len(names_in(log, f".log{DELETED}")))
        compact(log)
        assert (keys_in(log), all_offsets(log)) == whole
    assert swapped == sorted(swapped)
    assert len({*swapped}) > 3


@pytest.mark.parametrize("back", [1, 8, 20])
def test_a_round_ends_when_the_log_was_truncated_under_it(back: int) -> None:
    steps = len(list(a_cleaner(log := several_groups()).clean(to_clean(log))))
    for step in range(1, steps + 1):
        log = several_groups()
        work = a_cleaner(log).clean(to_clean(log))
        for _ in range(step):
            next(work)
        log.truncate_to(log.log_end_offset - back)
        left = all_offsets(log)
        for _ in range(3):
            put(log, 1000)  # what is there now is not what was read
        with pytest.raises(CleaningAbortedError, match="truncated"):
            finished(work)
        assert all_offsets(log)[: len(left)] == left
        assert not names_in(log, CLEANED)
        log.release()


# -- overtaken ---------------------------------------------------------------------------------------------------------


@behaviour("CLN-007")
def test_segments_that_retention_deletes_before_the_swap_are_set_aside_once(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, cleanup_policy=("compact", "delete"))
    for _ in range(2):
        put(log, 0)
        log.roll()
    put(log, 1)
    all_replicated(log)
    first = log.segments[0].log
    work = a_cleaner(log).clean(to_clean(log))
    while not names_in(log, CLEANED):
        next(work)
    log.delete_records(2)
    assert log.delete_old_segments() == 2
    assert first.path.endswith(f".log{DELETED}")
    done = finished(work)
    assert done.end_offset == 2
    assert first.path.endswith(f".log{DELETED}")
    assert not first.path.endswith(DELETED * 2)
    assert bases_of(log) == [0, 2]  # the new one, below the log start: the next pass of retention takes it
    assert [record.key for record in log.records()] == [b"1"]
    assert log.delete_old_segments() == 1
    settle(log)
    assert bases_of(log) == [2]
    assert not [name for name in names_in(log) if name.endswith((DELETED, CLEANED, SWAP))]


def test_a_log_is_appended_to_while_it_is_cleaned() -> None:
    log = several_groups()
    cleanable = to_clean(log)
    work = a_cleaner(log).clean(cleanable)
    appended = []

    def between() -> CleanedRound:
        while True:
            appended.append(log.log_end_offset)
            put(log, 0)
            try:
                next(work)
            except StopIteration as done:
                result: CleanedRound = done.value
                return result

    end = between().end_offset
    assert end == cleanable.first_uncleanable_offset == appended[0]
    assert all_offsets(log)[-len(appended) :] == appended  # above the end of the round nothing is touched
    assert len({*keys_in(log)}) == len([offset for offset in all_offsets(log) if offset < end])


# -- crashes -----------------------------------------------------------------------------------------------------------


class Crash:
    """A log before a round and after it, and directories as a crash between the two can leave them."""

    def __init__(self, root: Path) -> None:
        self.log = a_compacted_log(root, segment_bytes=2000, file_delete_delay_ms=10)
        self.log.roll()
        for number in range(3):
            put_each(self.log, *range(4), 10 + number)
            self.log.roll()
        put(self.log, 99)
        self.log.flush()
        self.old, self.old_keys = files_of(self.log), keys_in(self.log)
        compact(self.log)
        self.new, self.new_keys = files_of(self.log), keys_in(self.log)
        self.log.release()
        assert bases_of(self.log) == [0, 15]
        assert self.old_keys != self.new_keys

    def of_first(self, files: dict[str, bytes]) -> dict[str, bytes]:
        """The files of what is replaced, or of what replaces it."""
        return {name: data for name, data in files.items() if name.endswith(SEGMENT_SUFFIXES) and int(name[:20]) < 15}

    def leave(self, replaced: dict[str, bytes], *, suffix: str = "", old_suffix: str | None = None) -> None:
        """Lay the directory out: what is not touched, the replacement, and the old files if they have a suffix."""
        directory = Path(self.log.directory)
        for path in directory.iterdir():
            path.unlink()
        rest = {name: data for name, data in self.old.items() if name not in self.of_first(self.old)}
        laid = {**rest, **{name + suffix: data for name, data in replaced.items()}}
        if old_suffix is not None:
            laid |= {name + old_suffix: data for name, data in self.of_first(self.old).items()}
        for name, data in laid.items():
            (directory / name).write_bytes(data)

    def recovered(self) -> list[int]:
        """The keys that are there after a start, and nothing else is."""
        log = opened_again(self.log)
        keys = keys_in(log)
        clock_of(log).advance(log.config.file_delete_delay_ms)
        log.tick()
        assert not [name for name in names_in(log) if name.endswith((CLEANED, SWAP, DELETED))]
        settled = contents_of(log.local.fs, log.directory)
        log.release()
        again = opened_again(log)
        assert (keys_in(again), contents_of(log.local.fs, log.directory)) == (keys, settled)
        compact(again)
        assert keys_in(again) == self.new_keys
        again.release()
        return keys


@pytest.fixture
def crash(tmp_path: Path) -> Crash:
    return Crash(tmp_path)


@behaviour("CLN-051")
def test_a_crash_with_the_new_segment_not_yet_committed_drops_it(crash: Crash) -> None:
    crash.leave(crash.of_first(crash.new), suffix=CLEANED, old_suffix="")
    assert crash.recovered() == crash.old_keys


@behaviour("CLN-052")
def test_a_crash_among_the_renames_that_commit_drops_the_new_segment(crash: Crash) -> None:
    new = crash.of_first(crash.new)
    for count in range(1, len(new)):
        crash.leave({}, old_suffix="")
        for number, (name, data) in enumerate(new.items()):
            Path(crash.log.directory, name + (SWAP if number < count else CLEANED)).write_bytes(data)
        assert crash.recovered() == crash.old_keys


@behaviour("CLN-053")
@pytest.mark.parametrize("old_suffix", ["", DELETED, None])
def test_a_crash_behind_the_commit_completes_the_swap(crash: Crash, old_suffix: str | None) -> None:
    crash.leave(crash.of_first(crash.new), suffix=SWAP, old_suffix=old_suffix)
    assert crash.recovered() == crash.new_keys


@behaviour("CLN-054")
@pytest.mark.parametrize(
    "is_late", [lambda name: name.endswith(TIME_INDEX_SUFFIX), lambda name: not name.endswith(".log")]
)
def test_a_crash_among_the_last_renames_completes_them(crash: Crash, is_late: Callable[[str], bool]) -> None:
    new = crash.of_first(crash.new)
    crash.leave({name + (SWAP if is_late(name) else ""): data for name, data in new.items()}, old_suffix=DELETED)
    assert crash.recovered() == crash.new_keys
    assert {name: data for name, data in crash.of_first(files_of(crash.log)).items() if name in new} == new


@behaviour("CLN-055")
def test_a_crash_before_the_old_files_are_deleted_keeps_the_new_segment(crash: Crash) -> None:
    crash.leave(crash.of_first(crash.new), old_suffix=DELETED)
    assert crash.recovered() == crash.new_keys
