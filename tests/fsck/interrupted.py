"""Repairs that are interrupted: at every call that changes something, the power goes, or the disk is full.

What must hold then: no byte of a sound batch is lost, the next repair comes to its end, and readers are given what they
would have been given had nothing happened. A repair on a full disk says so.
"""

import random
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tests.fsck.campaign import Broken
from tests.fsck.damages import tree, write
from tests.fsck.reader import view_of
from tests.fsck.world import CONFIG, NOW, ORDERS, ROOT, directory_of, small_world
from tidelog.errors import StorageError
from tidelog.fsck import RepairResult, check
from tidelog.fsck.mending import repair
from tidelog.fsck.quarantine import MANIFEST
from tidelog.log import ManualClock
from tidelog.log.files import join, read_whole
from tidelog.log.names import LOG_SUFFIX
from tidelog.records import read_batches
from tidelog.testing.disk import PowerLost, SimulatedFileSystem

Harm = Callable[[SimulatedFileSystem], None]
_MOST_CALLS = 2000


def _path(number: int, suffix: str = LOG_SUFFIX) -> str:
    names = [name for name in small_world().list(directory_of(ORDERS)) if name.endswith(suffix)]
    return join(directory_of(ORDERS), names[number])


def _flip(disk: SimulatedFileSystem, path: str, position: int) -> None:
    data = bytearray(read_whole(disk, path))
    data[position] ^= 4
    write(disk, path, bytes(data))


def corrupt_batch(disk: SimulatedFileSystem) -> None:
    _flip(disk, _path(1), 70)


def corrupt_everywhere(disk: SimulatedFileSystem) -> None:
    for number in range(3):
        _flip(disk, _path(number), 70)
        write(disk, _path(number), read_whole(disk, _path(number)) + b"garbage" * 9)


def leave_swap(disk: SimulatedFileSystem) -> None:
    """The output of a compaction that kept all but the first batch."""
    data = read_whole(disk, _path(1))
    first = next(read_batches(data))
    write(disk, _path(1) + ".swap", data[first.size_in_bytes :])


def rename_segment(disk: SimulatedFileSystem) -> None:
    path = _path(1)
    disk.rename(path, path.replace(path[-24:-4], f"{int(path[-24:-4]) + 1:020}"))


def exchange_segments(disk: SimulatedFileSystem) -> None:
    one, two = read_whole(disk, _path(0)), read_whole(disk, _path(1))
    write(disk, _path(0), two)
    write(disk, _path(1), one)


def exchange_distant_segments(disk: SimulatedFileSystem) -> None:
    """Between them lies one that stays as it is."""
    one, two = read_whole(disk, _path(0)), read_whole(disk, _path(2))
    write(disk, _path(0), two)
    write(disk, _path(2), one)


def lose_logs(disk: SimulatedFileSystem) -> None:
    for number in range(3):
        disk.remove(_path(number))


def shift_offset(disk: SimulatedFileSystem) -> None:
    first = next(read_batches(read_whole(disk, _path(1))))
    _flip(disk, _path(1), first.size_in_bytes + 6)


def spoil_indexes(disk: SimulatedFileSystem) -> None:
    _flip(disk, _path(1, ".index"), 7)
    _flip(disk, _path(2, ".timeindex"), 3)
    _flip(disk, _path(1, ".snapshot"), 12)
    write(disk, join(directory_of(ORDERS), "leader-epoch-checkpoint"), b"?")


def spoil_checkpoints(disk: SimulatedFileSystem) -> None:
    write(disk, join(ROOT, "replication-offset-checkpoint"), b"0\n1\norders 0 9000\n")
    write(disk, join(ROOT, "recovery-point-offset-checkpoint"), b"nonsense")
    disk.make_directory(join(ROOT, "backup"))
    write(disk, join(ROOT, "backup/file"), b"mine")


HARMS: tuple[Harm, ...] = (
    corrupt_batch, corrupt_everywhere, leave_swap, rename_segment, exchange_segments, shift_offset, spoil_indexes,
    spoil_checkpoints, exchange_distant_segments, lose_logs,
)  # fmt: skip


def harmed(harm: Harm) -> SimulatedFileSystem:
    """The small world, harmed."""
    disk = small_world().copy()
    harm(disk)
    disk.sync_all()
    return disk


def mend(disk: SimulatedFileSystem, seconds: int = 0) -> RepairResult:
    return repair(ROOT, config=CONFIG, clock=ManualClock(NOW + 1000 * seconds), fs=disk, jobs=1)


class Whole(NamedTuple):
    """A repair that nothing interrupted."""

    calls: int
    records: object


@cache
def whole(harm: Harm) -> Whole:
    disk = harmed(harm)
    before = disk.calls
    result = mend(disk)
    assert result.is_clean, (result.failures, result.after.findings)
    assert disk.calls - before < _MOST_CALLS
    return Whole(disk.calls - before, view_of(disk, ORDERS)["records",])


def cut_power(harm: Harm, call: int) -> None:
    """Let the power go at a call of a repair, and repair again."""
    disk = harmed(harm)
    disk.cut_at(disk.calls + call)
    try:
        mend(disk)
    except PowerLost:
        pass
    else:
        raise Broken(f"{harm.__name__}: it has no call {call}")
    _ensure_completed(harm, disk.after_crash(random.Random(call)), f"the power cut at call {call}")


def fill_disk(harm: Harm, call: int, *, partly: bool = False, for_good: bool = False) -> None:
    """Let a call find the disk full, or that one and all behind it; then there is room, and it is repaired again."""
    disk = harmed(harm)
    first = disk.calls + call
    disk.fail(range(first, first + (_MOST_CALLS if for_good else 1)), partly=partly)
    when = f"the disk full at call {call}"
    try:
        result = mend(disk)
    except StorageError:
        is_told = True
    else:
        is_told = bool(result.failures) or result.is_clean
    if not is_told:
        raise Broken(f"{harm.__name__}: {when}, and nobody says so")
    disk.heal()
    _ensure_completed(harm, disk, when)


def _ensure_completed(harm: Harm, disk: SimulatedFileSystem, when: str) -> None:
    _ensure_nothing_lost(harm, disk, when)
    again = mend(disk, seconds=0)
    if not again.is_clean:
        raise Broken(f"{harm.__name__}, {when}: {again.failures}, {again.after.findings}")
    if not check(ROOT, deep=True, fs=disk, jobs=1).is_clean:
        raise Broken(f"{harm.__name__}, {when}: not clean when looked at again")
    if view_of(disk, ORDERS)["records",] != whole(harm).records:
        raise Broken(f"{harm.__name__}, {when}: readers are given something else")
    _ensure_nothing_lost(harm, disk, f"{when}, and repaired again")


def _ensure_nothing_lost(harm: Harm, disk: SimulatedFileSystem, when: str) -> None:
    """Every batch that could be read is in a file of the root or of the quarantine."""
    kept = tree(disk, f"{ROOT}.tidelog") if disk.stat(f"{ROOT}.tidelog") is not None else {}
    files = [*tree(disk, ROOT).values(), *(data for path, data in kept.items() if not path.endswith(MANIFEST))]
    sound = harmed(harm)
    logs = [read_whole(sound, path) for path in tree(sound, ROOT) if path.endswith((LOG_SUFFIX, ".swap"))]
    for data in (
        bytes(batch.buffer) for number in range(3) for batch in read_batches(read_whole(small_world(), _path(number)))
    ):
        if any(data in log for log in logs) and not any(data in file for file in files):
            raise Broken(f"{harm.__name__}, {when}: the batch {data[:20]!r} is nowhere any more")


def interrupt(number: int) -> str:
    """Interrupt some repair at some call; in two words how."""
    rng = random.Random(number)
    harm = HARMS[number % len(HARMS)]
    call = rng.randint(1, whole(harm).calls)
    if number // len(HARMS) % 2:
        fill_disk(harm, call, partly=rng.random() < 0.5, for_good=rng.random() < 0.3)
        return "full-disk"
    cut_power(harm, call)
    return "power-cut"
