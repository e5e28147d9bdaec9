"""The simulated disk keeps what was synced, and does to the rest what a disk may do: lose, tear and reorder."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import StorageError, TidelogError
from tidelog.log.clock import ManualClock
from tidelog.log.files import FileSystem, read_whole, write_atomically
from tidelog.testing.disk import PowerLost, SimulatedFileSystem
from tidelog.testing.disk_image import SECTOR

CRASHES = 200


def disk_with(path: str, data: bytes) -> SimulatedFileSystem:
    """A disk with one file, synced."""
    disk = SimulatedFileSystem()
    disk.open_write(path).write_at(0, data)
    disk.sync_all()
    return disk


def outcomes(disk: SimulatedFileSystem, path: str) -> set[bytes | None]:
    """What many crashes leave of a file."""
    found: set[bytes | None] = set()
    for seed in range(CRASHES):
        after = disk.after_crash(Random(seed))
        found.add(read_whole(after, path) if after.stat(path) else None)
    return found


def names(disk: SimulatedFileSystem, path: str = "/") -> frozenset[str]:
    """All paths below a directory."""
    found: set[str] = set()
    for name in disk.list(path):
        below = f"{path.rstrip('/')}/{name}"
        found.add(below)
        stat = disk.stat(below)
        if stat is not None and stat.is_directory:
            found |= names(disk, below)
    return frozenset(found)


# Contents.


def test_what_was_not_synced_is_lost_kept_or_torn_at_a_sector() -> None:
    disk = disk_with("/a", b"")
    disk.open_write("/a").write_at(0, b"1" * SECTOR + b"2" * SECTOR + b"3" * 10)
    first, second, third = b"1" * SECTOR, b"2" * SECTOR, b"3" * 10
    zeros = bytes(SECTOR)
    found = outcomes(disk, "/a")
    assert {b"", first, first + second, first + second + third} <= found  # lost, shorter, shorter, kept
    assert {first + zeros, zeros + second, zeros + second + third, first + zeros + third} <= found  # with holes
    assert all(piece is not None and len(piece) in (0, 512, 1024, 1034) for piece in found)


def test_a_later_write_may_arrive_before_an_earlier_one() -> None:
    disk = disk_with("/a", bytes(3 * SECTOR))
    file = disk.open_write("/a")
    file.write_at(0, b"1" * SECTOR)
    file.write_at(2 * SECTOR, b"2" * SECTOR)
    assert bytes(2 * SECTOR) + b"2" * SECTOR in outcomes(disk, "/a")


def test_in_one_sector_a_later_write_brings_the_earlier_ones_along() -> None:
    disk = disk_with("/a", b"....")
    file = disk.open_write("/a")
    for position, data in enumerate([b"1", b"2", b"3"]):
        file.write_at(position, data)
    assert outcomes(disk, "/a") == {b"....", b"1...", b"12..", b"123."}


def test_two_files_do_not_wait_for_each_other() -> None:
    disk = SimulatedFileSystem()
    for path in ("/a", "/b"):
        disk.open_write(path)
    disk.sync_all()
    disk.open_write("/a").write_at(0, b"1")
    disk.open_write("/b").write_at(0, b"2")
    found = set()
    for seed in range(CRASHES):
        after = disk.after_crash(Random(seed))
        found.add((read_whole(after, "/a"), read_whole(after, "/b")))
    assert {(b"1", b"2"), (b"", b"2"), (b"1", b""), (b"", b"")} <= found


def test_bytes_written_after_a_cut_are_not_there_without_the_cut() -> None:
    disk = disk_with("/a", b"A" * 3 * SECTOR)
    file = disk.open_write("/a")
    file.resize(SECTOR)
    file.write_at(SECTOR, b"B" * SECTOR)
    kept = b"A" * SECTOR
    assert outcomes(disk, "/a") == {kept + b"A" * 2 * SECTOR, kept, kept + bytes(SECTOR), kept + b"B" * SECTOR}


def test_a_cut_inside_a_sector_may_clear_its_end_before_the_size_shrinks() -> None:
    disk = disk_with("/a", b"A" * SECTOR)
    disk.open_write("/a").resize(500)
    assert outcomes(disk, "/a") == {b"A" * SECTOR, b"A" * 500, b"A" * 500 + bytes(12)}


def test_an_extended_file_has_the_old_size_or_the_new_one() -> None:
    disk = disk_with("/a", b"A")
    disk.open_write("/a").resize(100_000)
    sizes = {len(data) for data in outcomes(disk, "/a") if data is not None}
    assert sizes == {1, 100_000}


_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2500), st.binary(min_size=1, max_size=8), st.integers(1, 200)),
        st.tuples(st.just("resize"), st.integers(0, 3000)),
        st.tuples(st.just("sync")),
    ),
    max_size=12,
)


@settings(max_examples=400, deadline=None)
@given(_CHANGES, st.randoms(use_true_random=False))
def test_every_sector_is_as_it_was_at_some_moment_since_the_sync(
    changes: list[tuple[object, ...]], rng: Random
) -> None:
    disk = disk_with("/a", b"old" * 500)
    file = disk.open_write("/a")
    versions = [read_whole(disk, "/a")]
    for name, *arguments in changes:
        if name == "write":
            position, piece, times = arguments
            file.write_at(position, piece * times)
        else:
            getattr(file, name)(*arguments)
        if name == "sync":
            versions.clear()
        versions.append(read_whole(disk, "/a"))
    after = read_whole(disk.after_crash(rng), "/a")
    sizes = [len(version) for version in versions]
    assert min(sizes) <= len(after) <= max(sizes)
    if len(versions) == 1:
        assert after == versions[0]
    for start in range(0, len(after), SECTOR):
        piece = after[start : start + SECTOR]
        padded = {version[start : start + SECTOR].ljust(SECTOR, b"\0")[: len(piece)] for version in versions}
        # A cut that is on the disk, over a sector that is older: its beginning, then zeros.
        cut = {
            version[start : start + SECTOR][: max(0, size - start)].ljust(SECTOR, b"\0")[: len(piece)]
            for version in versions
            for size in sizes
        }
        assert piece in padded | cut


@settings(max_examples=100, deadline=None)
@given(_CHANGES, st.randoms(use_true_random=False), st.booleans())
def test_everything_synced_survives(changes: list[tuple[object, ...]], rng: Random, unordered: bool) -> None:
    disk = SimulatedFileSystem(unordered_directories=unordered)
    disk.make_directory("/t-0")
    file = disk.open_write("/t-0/a")
    for name, *arguments in changes:
        if name == "write":
            position, piece, times = arguments
            file.write_at(position, piece * times)
        else:
            getattr(file, name)(*arguments)
    file.sync()
    disk.sync_directory("/t-0")
    disk.sync_directory("/")
    after = disk.after_crash(rng)
    assert read_whole(after, "/t-0/a") == read_whole(disk, "/t-0/a")
    assert after.stat("/t-0/a") == disk.stat("/t-0/a")
    again = after.after_crash(rng)
    assert read_whole(again, "/t-0/a") == read_whole(disk, "/t-0/a")


def test_a_cut_write_may_be_there_in_part() -> None:
    disk = disk_with("/a", b"")
    file = disk.open_write("/a")
    disk.cut_at(disk.calls + 1)
    with pytest.raises(PowerLost):
        file.write_at(0, b"1" * SECTOR + b"2" * SECTOR)
    assert {b"", b"1" * SECTOR, b"1" * SECTOR + b"2" * SECTOR} <= outcomes(disk, "/a")


def test_a_cut_sync_is_no_sync() -> None:
    disk = disk_with("/a", b"old")
    file = disk.open_write("/a")
    file.write_at(0, b"new")
    disk.cut_at(disk.calls + 1)
    with pytest.raises(PowerLost):
        file.sync()
    assert outcomes(disk, "/a") == {b"old", b"new"}


# Names.

_PATHS = st.sampled_from(["/a", "/b", "/d", "/e", "/d/a", "/d/b", "/e/a"])
_NAME_CALLS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["open_write", "remove", "make_directory", "remove_directory"]), _PATHS),
        st.tuples(st.just("rename"), _PATHS, _PATHS),
        st.tuples(st.just("sync_directory"), st.sampled_from(["/", "/d", "/e"])),
    ),
    max_size=20,
)


def states_of_names(disk: SimulatedFileSystem, calls: Iterable[tuple[str, ...]]) -> list[tuple[str, frozenset[str]]]:
    """The names before the calls and after each step of them, with the call: some take several steps."""
    states = [("", names(disk))]
    for name, *arguments in calls:
        count = disk.calls
        before = disk.copy()
        with suppress(TidelogError):
            getattr(disk, name)(*arguments)
        for step in range(1, disk.calls - count):
            trial = before.copy()
            trial.cut_at(step)
            with suppress(PowerLost):
                getattr(trial, name)(*arguments)
            states.append((name, names(trial)))
        states.append((" ".join([name, *arguments]), names(disk)))
    return states


@settings(max_examples=200, deadline=None)
@given(_NAME_CALLS, st.randoms(use_true_random=False))
def test_a_crash_leaves_the_names_of_some_moment_since_the_sync(calls: list[tuple[str, ...]], rng: Random) -> None:
    disk = SimulatedFileSystem()
    states = states_of_names(disk, calls)
    found = names(disk.after_crash(rng))
    assert found in [state for _, state in states]
    last_sync = max((index for index, (call, _) in enumerate(states) if call == "sync_directory /"), default=0)
    top_level = [{path for path in state if path.count("/") == 1} for _, state in states[last_sync:]]
    assert {path for path in found if path.count("/") == 1} in top_level
    disk.sync_all()
    assert names(disk.after_crash(rng)) == states[-1][1]


@settings(max_examples=200, deadline=None)
@given(_NAME_CALLS, st.randoms(use_true_random=False), st.booleans())
def test_a_directory_that_was_synced_is_as_it_was(calls: list[tuple[str, ...]], rng: Random, unordered: bool) -> None:
    disk = SimulatedFileSystem(unordered_directories=unordered)
    states_of_names(disk, calls)
    for path in ["/", *sorted(names(disk))]:
        stat = disk.stat(path)
        if stat is not None and stat.is_directory:
            disk.sync_directory(path)
    assert names(disk.after_crash(rng)) == names(disk)


def crashes_of_names(disk: SimulatedFileSystem) -> set[frozenset[str]]:
    return {names(disk.after_crash(Random(seed))) for seed in range(CRASHES)}


def test_names_are_kept_in_order() -> None:
    disk = SimulatedFileSystem()
    for path in ("/a", "/b", "/c"):
        disk.open_write(path)
    disk.rename("/a", "/d")
    wanted = [set(), {"/a"}, {"/a", "/b"}, {"/a", "/b", "/c"}, {"/b", "/c", "/d"}]
    assert crashes_of_names(disk) == set(map(frozenset, wanted))


def test_without_order_any_part_of_the_names_is_kept_but_changes_of_one_file_are_in_order() -> None:
    disk = SimulatedFileSystem(unordered_directories=True)
    for path in ("/a", "/b"):
        disk.open_write(path)
    disk.rename("/a", "/d")
    wanted = [set(), {"/a"}, {"/b"}, {"/a", "/b"}, {"/d"}, {"/b", "/d"}]
    assert crashes_of_names(disk) == set(map(frozenset, wanted))


def test_without_order_a_file_has_one_name_at_a_time() -> None:
    disk = SimulatedFileSystem(unordered_directories=True)
    disk.open_write("/a")
    disk.rename("/a", "/b")
    disk.rename("/b", "/c")
    assert crashes_of_names(disk) == {frozenset(), frozenset({"/a"}), frozenset({"/b"}), frozenset({"/c"})}


@pytest.mark.parametrize("unordered", [False, True])
def test_syncing_a_new_directory_makes_its_own_name_last_where_there_is_a_journal(unordered: bool) -> None:
    disk = SimulatedFileSystem(unordered_directories=unordered)
    disk.make_directory("/d")
    disk.sync_directory("/d")
    assert crashes_of_names(disk) == {frozenset({"/d"})} | ({frozenset()} if unordered else set())


def test_syncing_a_directory_carries_what_came_before_it_in_the_journal_and_nothing_later() -> None:
    disk = SimulatedFileSystem()
    disk.make_directory("/d")
    disk.make_directory("/e")
    disk.sync_all()
    disk.open_write("/e/first")
    disk.open_write("/d/second")
    disk.open_write("/e/third")
    disk.sync_directory("/d")
    always = frozenset({"/d", "/e", "/e/first", "/d/second"})
    assert crashes_of_names(disk) == {always, always | {"/e/third"}}


def test_without_order_syncing_a_directory_carries_its_names_only() -> None:
    disk = SimulatedFileSystem(unordered_directories=True)
    disk.make_directory("/d")
    disk.make_directory("/e")
    disk.sync_all()
    disk.open_write("/e/first")
    disk.open_write("/d/second")
    disk.sync_directory("/d")
    always = frozenset({"/d", "/e", "/d/second"})
    assert crashes_of_names(disk) == {always, always | {"/e/first"}}


@pytest.mark.parametrize("unordered", [False, True])
def test_syncing_a_new_file_makes_its_name_last_where_there_is_a_journal(unordered: bool) -> None:
    disk = SimulatedFileSystem(unordered_directories=unordered)
    disk.make_directory("/d")
    file = disk.open_write("/d/a")
    file.sync()
    disk.rename("/d/a", "/d/b")
    found = crashes_of_names(disk)
    lasting = {frozenset({"/d", "/d/a"}), frozenset({"/d", "/d/b"})}
    assert found == lasting | ({frozenset(), frozenset({"/d"})} if unordered else set())


def test_a_removed_file_that_comes_back_has_what_was_on_the_disk() -> None:
    disk = disk_with("/a", b"synced")
    disk.remove("/a")
    assert outcomes(disk, "/a") == {None, b"synced"}


def test_a_file_of_the_same_name_is_not_the_old_one() -> None:
    for unordered in (False, True):
        disk = SimulatedFileSystem(unordered_directories=unordered)
        disk.open_write("/a").write_at(0, b"old")
        disk.sync_all()
        disk.remove("/a")
        file = disk.open_write("/a")
        file.write_at(0, b"new")
        found = outcomes(disk, "/a")
        assert {b"old", None, b"", b"new"} <= found <= {b"old", None, b"", b"\0\0\0", b"new"}


# Cuts.


def crash_everywhere(work: Callable[[FileSystem], None], before: SimulatedFileSystem) -> Iterable[SimulatedFileSystem]:
    """What is left when the power goes at each call of some work, a few times each."""
    trial = before.copy()
    work(trial)
    for call in range(1, trial.calls + 1):
        disk = before.copy()
        disk.cut_at(call)
        with pytest.raises(PowerLost):
            work(disk)
        for seed in range(20):
            yield disk.after_crash(Random(seed))


@pytest.mark.parametrize("unordered", [False, True])
def test_a_file_that_is_replaced_as_a_whole_is_never_anything_in_between(unordered: bool) -> None:
    before = SimulatedFileSystem(unordered_directories=unordered)
    write_atomically(before, "/checkpoint", b"old" * 400)
    before.sync_all()
    new = b"new" * 400
    found = {
        read_whole(after, "/checkpoint")
        for after in crash_everywhere(lambda fs: write_atomically(fs, "/checkpoint", new), before)
    }
    assert found == {b"old" * 400, new}

    write_atomically(before, "/checkpoint", new)
    assert outcomes(before, "/checkpoint") == {new}


def without_sync(fs: FileSystem) -> None:
    file = fs.open_write("/checkpoint.tmp")
    file.write_at(0, b"new" * 400)
    fs.rename("/checkpoint.tmp", "/checkpoint")
    fs.sync_directory("/")


def without_directory(fs: FileSystem) -> None:
    file = fs.open_write("/checkpoint.tmp")
    file.write_at(0, b"new" * 400)
    file.sync()
    fs.rename("/checkpoint.tmp", "/checkpoint")


def in_place(fs: FileSystem) -> None:
    file = fs.open_write("/checkpoint")
    file.resize(0)
    file.write_at(0, b"new" * 400)
    file.sync()


def test_the_ways_to_replace_a_file_that_do_not_work_are_caught() -> None:
    old, new = b"old" * 400, b"new" * 400
    for work in (without_sync, in_place):
        found = {read_whole(after, "/checkpoint") for after in crash_everywhere(work, disk_with("/checkpoint", old))}
        assert not found <= {old, new}
    disk = disk_with("/checkpoint", old)
    without_directory(disk)
    assert outcomes(disk, "/checkpoint") == {old, new}  # it was said to be done


def test_a_cut_lets_the_calls_before_it_through_and_none_after() -> None:
    disk = SimulatedFileSystem()
    disk.cut_at(3)
    file = disk.open_write("/a")
    file.write_at(0, b"1")
    with pytest.raises(PowerLost):
        file.sync()
    attempts: list[Callable[[], object]] = [
        lambda: file.write_at(0, b"2"),
        lambda: file.resize(0),
        file.sync,
        lambda: disk.open_write("/b"),
        lambda: disk.lock("/.lock"),
        lambda: disk.rename("/a", "/b"),
        lambda: disk.remove("/a"),
        lambda: disk.make_directory("/d"),
        lambda: disk.remove_directory("/"),
        lambda: disk.set_modified("/a", 7),
        lambda: disk.sync_directory("/"),
    ]
    for attempt in attempts:
        with pytest.raises(PowerLost):
            attempt()
    assert read_whole(disk, "/a") == b"1"
    assert names(disk) == {"/a"}
    assert None in outcomes(disk, "/a")  # the sync that was cut did not happen


def test_nothing_that_catches_errors_catches_a_power_cut() -> None:
    assert not issubclass(PowerLost, Exception)
    disk = SimulatedFileSystem()
    disk.cut_at(1)
    with pytest.raises(PowerLost), suppress(Exception):
        disk.open_write("/a")


def test_a_cut_in_the_past_is_the_next_call_and_none_is_no_cut() -> None:
    disk = SimulatedFileSystem()
    file = disk.open_write("/a")
    file.write_at(0, b"1")
    disk.cut_at(1)
    with pytest.raises(PowerLost):
        file.write_at(0, b"2")
    disk.cut_at(None)
    file.write_at(0, b"3")
    assert disk.calls == 4


def test_removing_a_directory_can_be_cut_in_the_middle() -> None:
    disk = SimulatedFileSystem()
    disk.make_directory("/d")
    for name in "abc":
        disk.open_write(f"/d/{name}")
    disk.sync_all()
    disk.cut_at(disk.calls + 2)
    with pytest.raises(PowerLost):
        disk.remove_directory("/d")
    assert names(disk) == {"/d", "/d/c"}


def test_the_calls_are_counted_and_told() -> None:
    disk = SimulatedFileSystem()
    disk.make_directory("/d/e")
    file = disk.open_write("/d/e/a")
    file.write_at(5, b"abc")
    file.resize(2)
    file.sync()
    file.read(0, 2)
    disk.open_write("/d/e/a").close()
    disk.rename("/d/e/a", "/b")
    disk.set_modified("/b", 9)
    disk.sync_directory("/d")
    disk.sync_directory("/gone")
    disk.remove_directory("/d")
    disk.remove("/b")
    disk.remove("/b")
    assert disk.journal == [
        "1 make_directory /d",
        "2 make_directory /d/e",
        "3 create /d/e/a",
        "4 write /d/e/a 3 at 5",
        "5 resize /d/e/a to 2",
        "6 sync /d/e/a",
        "7 rename /d/e/a to /b",
        "8 set_modified /b to 9",
        "9 sync_directory /d",
        "10 remove_directory /d/e",
        "11 remove_directory /d",
        "12 remove /b",
    ]
    assert disk.calls == 12


def test_the_same_numbers_leave_the_same_disk() -> None:
    def work(seed: int) -> list[tuple[frozenset[str], bytes]]:
        disk = SimulatedFileSystem(seed=seed)
        disk.open_write("/a").write_at(0, bytes(range(256)) * 100)
        disk.sync_directory("/")
        disk.open_write("/b")
        return [(names(after), read_whole(after, "/a")) for after in (disk.after_crash() for _ in range(20))]

    assert work(1) == work(1)
    assert work(1) != work(2)
    assert len(set(work(1))) > 5


def test_a_crash_leaves_the_disk_it_is_taken_from_alone() -> None:
    disk = disk_with("/a", b"old")
    file = disk.open_write("/a")
    file.write_at(0, b"new")
    for seed in range(20):
        after = disk.after_crash(Random(seed))
        after.open_write("/a").write_at(0, b"xxx")
        after.remove("/a")
    assert read_whole(disk, "/a") == b"new"
    assert outcomes(disk, "/a") == {b"old", b"new"}


def test_a_copy_has_the_same_things_synced_and_its_own_life() -> None:
    disk = disk_with("/a", b"old")
    disk.open_write("/a").write_at(0, b"new")
    disk.open_write("/b")
    disk.lock("/a")
    disk.cut_at(1)
    copy = disk.copy()
    assert outcomes(copy, "/a") == {b"old", b"new"}
    assert outcomes(copy, "/b") == {None, b""}
    copy.lock("/a")
    copy.remove("/a")
    assert read_whole(disk, "/a") == b"new"


# The other levers.


def test_chosen_calls_fail_and_have_no_effect() -> None:
    disk = SimulatedFileSystem()
    disk.fail(calls={3})
    file = disk.open_write("/a")
    file.write_at(0, b"1")
    with pytest.raises(StorageError, match="^/a: the disk is full$") as caught:
        file.write_at(1, b"2")
    assert isinstance(caught.value.__cause__, OSError)
    file.write_at(2, b"3")
    assert file.read(0, 9) == b"1\x003"


def test_failures_are_chosen_by_operation_and_path_and_number_of_times() -> None:
    disk = SimulatedFileSystem()
    snapshot, log = disk.open_write("/1.snapshot"), disk.open_write("/1.log")
    disk.fail(error="Input/output error", operation="sync", path="*.snapshot", times=2)
    log.sync()
    snapshot.write_at(0, b"1")
    for _ in range(2):
        with pytest.raises(StorageError, match="Input/output error"):
            snapshot.sync()
    snapshot.sync()
    assert outcomes(disk, "/1.snapshot") == {b"1"}


def test_a_sync_that_fails_syncs_nothing() -> None:
    disk = disk_with("/a", b"old")
    file = disk.open_write("/a")
    file.write_at(0, b"new")
    disk.fail(operation="sync*")
    with pytest.raises(StorageError):
        file.sync()
    with pytest.raises(StorageError):
        disk.sync_directory("/")
    assert outcomes(disk, "/a") == {b"old", b"new"}


def test_reads_can_fail_until_the_disk_is_healed() -> None:
    disk = disk_with("/a", b"1")
    file = disk.open("/a")
    disk.fail(operation="read")
    with pytest.raises(StorageError):
        file.read(0, 1)
    with pytest.raises(StorageError):
        file.read_into(0, memoryview(bytearray(1)))
    disk.fail(operation="[los]*")
    attempts: list[Callable[[], object]] = [
        lambda: disk.list("/"),
        lambda: disk.stat("/a"),
        lambda: disk.open("/a"),
        lambda: disk.open_write("/a"),
    ]
    for attempt in attempts:
        with pytest.raises(StorageError):
            attempt()
    disk.heal()
    assert file.read(0, 1) == b"1"
    assert disk.list("/") == ["a"]


def test_a_disk_that_fills_up_leaves_the_first_half_of_a_write() -> None:
    disk = SimulatedFileSystem()
    file = disk.open_write("/a")
    disk.fail(operation="write", partly=True)
    with pytest.raises(StorageError):
        file.write_at(0, b"12345678")
    assert file.read(0, 9) == b"1234"


def test_failures_and_cuts_live_side_by_side() -> None:
    disk = SimulatedFileSystem()
    file = disk.open_write("/a")
    disk.fail(calls=range(2, 4))
    disk.cut_at(5)
    for _ in range(2):
        with pytest.raises(StorageError):
            file.write_at(0, b"1")
    file.write_at(0, b"2")
    with pytest.raises(PowerLost):
        file.write_at(0, b"3")


def test_times_come_from_the_clock_and_may_be_lost() -> None:
    clock = ManualClock(1_000)
    disk = SimulatedFileSystem(clock)
    file = disk.open_write("/a")
    file.sync()
    clock.advance(5)
    file.write_at(0, b"1")
    stat = disk.stat("/a")
    assert stat is not None
    assert stat.modified_ms == 1_005
    disk.set_modified("/a", 77)
    stats = [disk.after_crash(Random(seed)).stat("/a") for seed in range(CRASHES)]
    assert {stat.modified_ms for stat in stats if stat} == {1_000, 77}
    file.sync()
    stats = [disk.after_crash(Random(seed)).stat("/a") for seed in range(CRASHES)]
    assert {stat.modified_ms for stat in stats if stat} == {77}


def test_a_directory_of_the_local_disk_is_taken_over_and_given_back(tmp_path: Path) -> None:
    (tmp_path / "in" / "t-0").mkdir(parents=True)
    (tmp_path / "in" / "t-0" / "a.log").write_bytes(b"abc")
    (tmp_path / "in" / ".lock").touch()
    disk = SimulatedFileSystem.from_directory(str(tmp_path / "in"), "/data", unordered_directories=True)
    assert disk.calls == 0
    assert disk.journal == []
    after = disk.after_crash(Random(1))
    assert names(after) == {"/data", "/data/.lock", "/data/t-0", "/data/t-0/a.log"}
    after.open_write("/data/t-0/a.log").write_at(3, b"def")
    after.set_modified("/data/t-0/a.log", 1_700_000_000_123)
    after.to_directory(str(tmp_path / "out"), "/data")
    assert (tmp_path / "out" / "t-0" / "a.log").read_bytes() == b"abcdef"
    assert (tmp_path / "out" / "t-0" / "a.log").stat().st_mtime_ns == 1_700_000_000_123_000_000
    assert (tmp_path / "out" / ".lock").read_bytes() == b""
