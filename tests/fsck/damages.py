"""The ways in which files of a root are damaged: each kind of file by each kind of damage, places by chance.

The case of a number depends on the number alone: `damage_of(number)` is done to a copy of the world.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from tests.fsck.world import PARTITIONS, ROOT, directory_of, world
from tidelog.log.files import join, parent_of, read_whole
from tidelog.log.names import LOG_SUFFIX, TopicPartition
from tidelog.testing.disk import SimulatedFileSystem

ROOT_FILES = (
    "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint",
    "cleaner-offset-checkpoint", "meta.properties", ".kafka_cleanshutdown",
)  # fmt: skip
KINDS = (
    ".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata",
    *ROOT_FILES,
)  # fmt: skip
_OF_PARTITION = KINDS[:7]


class Case(NamedTuple):
    """Damage that was done."""

    number: int
    kind: str  # of file
    deed: str
    path: str
    what: str

    def __str__(self) -> str:
        return f"case {self.number}: {self.path.removeprefix(ROOT)}: {self.what}"

    @property
    def partition(self) -> TopicPartition | None:
        """The partition that was damaged; None where a file of the root was."""
        name = parent_of(self.path).rpartition("/")[2]
        return next((partition for partition in PARTITIONS if str(partition) == name), None)


@cache
def files_of(kind: str) -> tuple[str, ...]:
    """The paths of all files of a kind."""
    if kind not in _OF_PARTITION:
        return (join(ROOT, kind),)
    return tuple(
        join(directory_of(partition), name)
        for partition in PARTITIONS
        for name in world().list(directory_of(partition))
        if name.endswith(kind)
    )


def _content(disk: SimulatedFileSystem, path: str) -> bytes:
    return read_whole(disk, path)


def write(disk: SimulatedFileSystem, path: str, data: bytes) -> None:
    file = disk.open_write(path)
    file.resize(0)
    file.write_at(0, data)
    file.sync()


Deed = Callable[[SimulatedFileSystem, str, random.Random], str]


def flip_a_bit(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    data = bytearray(_content(disk, path))
    if not data:
        return append_zeros(disk, path, rng)
    position, bit = rng.randrange(len(data)), rng.randrange(8)
    data[position] ^= 1 << bit
    write(disk, path, bytes(data))
    return f"bit {bit} at {position} flipped"


def flip_a_header_bit(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    """A bit that no checksum covers, if the file is a log: bytes 0 to 16 of a batch."""
    data = bytearray(_content(disk, path))
    starts = _batch_starts(bytes(data)) if path.endswith(LOG_SUFFIX) else list(range(0, len(data), 8))
    if not starts:
        return append_zeros(disk, path, rng)
    position = min(rng.choice(starts) + rng.randrange(17), len(data) - 1)
    bit = rng.randrange(8)
    data[position] ^= 1 << bit
    write(disk, path, bytes(data))
    return f"bit {bit} at {position}, in a header, flipped"


def _batch_starts(data: bytes) -> list[int]:
    starts, position = [], 0
    while position < len(data):
        starts.append(position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return starts


def cut(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    size = len(_content(disk, path))
    at = rng.randrange(size) if size else 0
    disk.open_write(path).resize(at)
    return f"cut from {size} to {at}"


def cut_between(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    """Where a batch or an entry ends: what is left is sound."""
    data = _content(disk, path)
    step = {".index": 8, ".timeindex": 12, ".txnindex": 34}.get(path[path.rfind(".") :])
    ends = _batch_starts(data) if path.endswith(LOG_SUFFIX) else list(range(0, len(data), step or 7))
    at = rng.choice(ends) if ends else 0
    disk.open_write(path).resize(at)
    return f"cut from {len(data)} to {at}, where something ends"


def zero_the_tail(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    data = _content(disk, path)
    at = rng.randrange(len(data)) if data else 0
    write(disk, path, data[:at] + bytes(len(data) - at))
    return f"zeros from {at} to the end at {len(data)}"


def append_zeros(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    data, count = _content(disk, path), rng.choice((1, 7, 8, 12, 17, 18, 34, 61, 300))
    write(disk, path, data + bytes(count))
    return f"{count} zeros behind the end"


def append_garbage(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    data, count = _content(disk, path), rng.choice((1, 8, 12, 40, 200))
    write(disk, path, data + rng.randbytes(count))
    return f"{count} bytes of anything behind the end"


def overwrite(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    data = bytearray(_content(disk, path))
    at = rng.randrange(len(data)) if data else 0
    count = min(rng.choice((1, 4, 16, 64, 300)), len(data) - at)
    data[at : at + count] = rng.randbytes(count)
    write(disk, path, bytes(data))
    return f"{count} bytes at {at} overwritten"


def remove(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    disk.remove(path)
    return "removed"


def empty(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    write(disk, path, b"")
    return "emptied"


def swap(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    """Exchanged with another of its kind, of the same partition or another."""
    kind = next(kind for kind in KINDS if path.endswith(kind))
    others = [other for other in files_of(kind) if other != path and _content(disk, other) != _content(disk, path)]
    near = [other for other in others if parent_of(other) == parent_of(path)]
    if not others:
        return flip_a_bit(disk, path, rng)
    other = rng.choice(near if near and rng.random() < 0.7 else others)
    one, two = _content(disk, path), _content(disk, other)
    write(disk, path, two)
    write(disk, other, one)
    return f"exchanged with {other.removeprefix(ROOT)}"


def replace(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    """Put another file of its kind in its place, which stays where it is too."""
    kind = next(kind for kind in KINDS if path.endswith(kind))
    others = [other for other in files_of(kind) if _content(disk, other) != _content(disk, path)]
    if not others:
        return remove(disk, path, rng)
    other = rng.choice(others)
    write(disk, path, _content(disk, other))
    return f"replaced by a copy of {other.removeprefix(ROOT)}"


def rename_segment(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    """The number in the name changed a little: segments overlap, or leave a gap."""
    name = path.rpartition("/")[2]
    if not name[:20].isdecimal():
        return remove(disk, path, rng)
    offset = max(int(name[:20]) + rng.choice((-4, -1, 1, 3, 5)), 0)
    target = join(parent_of(path), f"{offset:020}{name[20:]}")
    if disk.stat(target) is not None:
        return flip_a_bit(disk, path, rng)
    disk.rename(path, target)
    return f"renamed to {target.rpartition('/')[2]}"


def add_foreign(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    """Something that Kafka did not write, beside the file."""
    names = ("notes.txt", "backup.log", "old.index", "00000000000000000003.log.bak", "lost", "x.snapshot")
    target = join(parent_of(path), rng.choice(names))
    if rng.random() < 0.3:
        disk.make_directory(f"{target}.d")
        target = join(f"{target}.d", "inside")
    write(disk, target, rng.randbytes(rng.randrange(50)))
    return f"{target.removeprefix(ROOT)} added"


def leave_leftovers(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    """What an interrupted compaction or deletion leaves."""
    suffix = rng.choice((".cleaned", ".deleted", ".swap"))
    name = path.rpartition("/")[2]
    if suffix == ".swap" and (not name[:20].isdecimal() or not name.endswith(LOG_SUFFIX)):
        suffix = ".deleted"
    write(disk, path + suffix, _content(disk, path))
    return f"a copy of it as {suffix}"


def swallow(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    """The length of a batch leads to another than the next one: those between seem to be a part of it."""
    data = bytearray(_content(disk, path))
    ends = [*_batch_starts(bytes(data)), len(data)] if path.endswith(LOG_SUFFIX) else []
    if len(ends) < 4:
        return overwrite(disk, path, rng)
    number = rng.randrange(len(ends) - 2)
    start, end = ends[number], rng.choice(ends[number + 2 :])
    data[start + 8 : start + 12] = (end - start - 12).to_bytes(4, "big")
    write(disk, path, bytes(data))
    return f"the length at {start} leads to {end}"


def insert_garbage(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    """Bytes of anything between two batches, or two entries."""
    data = _content(disk, path)
    at = rng.choice(_batch_starts(data) or [0]) if path.endswith(LOG_SUFFIX) else rng.randrange(len(data) + 1)
    count = rng.choice((1, 17, 300, 5000))
    write(disk, path, data[:at] + rng.randbytes(count) + data[at:])
    return f"{count} bytes of anything put in at {at}"


def spoil_all(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    """A flipped bit in every file of its kind of the partition: of a log in its first batch, its last, or any."""
    kind = next(kind for kind in KINDS if path.endswith(kind))
    told = []
    for other in files_of(kind):
        data = bytearray(_content(disk, other))
        if parent_of(other) != parent_of(path) or not data:
            continue
        starts = _batch_starts(bytes(data)) if kind == LOG_SUFFIX else [0]
        low, high = rng.choice(((0, (*starts, len(data))[1]), (starts[-1], len(data)), (0, len(data))))
        position = rng.randrange(low, high)
        data[position] ^= 1 << rng.randrange(8)
        write(disk, other, bytes(data))
        told.append(f"{other.rpartition('/')[2]} at {position}")
    return f"a bit flipped in {', '.join(told)}"


def replace_set(disk: SimulatedFileSystem, path: str, rng: random.Random) -> str:
    """A log together with its indexes, replaced by those of another partition that begin with the same offset."""
    name = path.rpartition("/")[2]
    others = [other for other in files_of(LOG_SUFFIX) if other.endswith(f"/{name}") and other != path]
    if not path.endswith(LOG_SUFFIX) or not others:
        return replace(disk, path, rng)
    other = rng.choice(others)
    for suffix in (LOG_SUFFIX, ".index", ".timeindex", ".txnindex"):
        source = other.removesuffix(LOG_SUFFIX) + suffix
        if disk.stat(source) is not None:
            write(disk, path.removesuffix(LOG_SUFFIX) + suffix, _content(disk, source))
        else:
            disk.remove(path.removesuffix(LOG_SUFFIX) + suffix)
    return f"replaced, with its indexes, by a copy of {other.removeprefix(ROOT)}"


DEEDS: tuple[Deed, ...] = (
    flip_a_bit, flip_a_header_bit, cut, cut_between, zero_the_tail, append_zeros, append_garbage, overwrite, remove,
    empty, swap, replace, rename_segment, add_foreign, leave_leftovers, swallow, insert_garbage, spoil_all, replace_set,
)  # fmt: skip


def damage_of(number: int) -> tuple[Case, SimulatedFileSystem]:
    """A case, and the world it was done to."""
    rng = random.Random(number)
    half = number // 2
    # Logs matter most: every second case is one of theirs.
    kind = ".log" if number % 2 else KINDS[half % len(KINDS)]
    deed = DEEDS[(half // len(KINDS) + (number if number % 2 else half)) % len(DEEDS)]
    disk = world().copy()
    path = rng.choice(files_of(kind))
    what = deed(disk, path, rng)
    return Case(number, kind, deed.__name__, path, what), disk


def partitions_touched(case: Case, disk: SimulatedFileSystem) -> Sequence[TopicPartition]:
    """The partitions whose readers may see something else."""
    return [
        partition
        for partition in PARTITIONS
        if case.partition is None or tree(disk, directory_of(partition)) != tree(world(), directory_of(partition))
    ]


def tree(disk: SimulatedFileSystem, directory: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in disk.list(directory):
        path = join(directory, name)
        stat = disk.stat(path)
        assert stat is not None
        if stat.is_directory:
            found |= tree(disk, path)
        else:
            found[path] = _content(disk, path)
    return found
