"""Which field of which format a byte of a file belongs to, and the small files of a root.

Text files have no fields of their own: what is damaged there is a digit, a letter or what parts them.
"""

from functools import cache
from itertools import accumulate

from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.files import join, read_whole
from tidelog.log.names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    TopicPartition,
)
from tidelog.records import read_batches
from tidelog.testing.disk import SimulatedFileSystem

ROOT = "/root"
DIRECTORY = "/root/orders-0"
OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
OFFSET_CHECKPOINT = "*-offset-checkpoint"
ROOT_FILES = (*OFFSET_CHECKPOINTS, CLEAN_SHUTDOWN)

_Fields = tuple[tuple[int, str], ...]  # where each begins

_BATCH: _Fields = (
    (0, "base offset"), (8, "length"), (12, "leader epoch"), (16, "magic"), (17, "checksum"), (21, "attributes"),
    (23, "last offset delta"), (27, "timestamps"), (43, "producer"), (57, "record count"), (61, "records"),
)  # fmt: skip
_ROWS: dict[str, tuple[int, _Fields]] = {
    INDEX_SUFFIX: (8, ((0, "offset"), (4, "position"))),
    TIME_INDEX_SUFFIX: (12, ((0, "timestamp"), (8, "offset"))),
    TXN_INDEX_SUFFIX: (
        34,
        ((0, "version"), (2, "producer id"), (10, "first offset"), (18, "last offset"), (26, "last stable offset")),
    ),
}
_SNAPSHOT: _Fields = ((0, "version"), (2, "checksum"), (6, "count"), (10, "entries"))
FIELDS = list(
    dict.fromkeys(name for fields in (_BATCH, *(row[1] for row in _ROWS.values()), _SNAPSHOT) for _, name in fields)
) + ["text", "cut"]


def kind_of(name: str) -> str:
    """What kind of file a name means: its suffix, or the name where there is but one of them."""
    if name in OFFSET_CHECKPOINTS:
        return OFFSET_CHECKPOINT
    return "." + name.rpartition(".")[2] if name[0].isdigit() else name


def field_at(disk: SimulatedFileSystem, name: str, position: int) -> str:
    """The field that a byte of a sound file belongs to."""
    kind = kind_of(name)
    if kind == LOG_SUFFIX:
        start = max(start for start in batch_starts(disk, name) if start <= position)
        return _in(_BATCH, position - start)
    if kind in _ROWS:
        size, fields = _ROWS[kind]
        return _in(fields, position % size)
    if kind == SNAPSHOT_SUFFIX:
        return _in(_SNAPSHOT, position)
    return "text"


def _in(fields: _Fields, position: int) -> str:
    return [name for start, name in fields if start <= position][-1]


@cache
def batch_starts(disk: SimulatedFileSystem, name: str) -> list[int]:
    """Where the batches of a segment begin."""
    sizes = [batch.size_in_bytes for batch in read_batches(read_whole(disk, join(DIRECTORY, name)))]
    return list(accumulate(sizes, initial=0))[:-1]


@cache
def root_image() -> SimulatedFileSystem:
    """The files of a root, with two partitions in each checkpoint."""
    disk = SimulatedFileSystem()
    disk.make_directory(ROOT)
    for name in OFFSET_CHECKPOINTS:
        offsets = {TopicPartition("orders", 0): 15, TopicPartition("orders", 12): 4711}
        OffsetCheckpoint(disk, join(ROOT, name)).write(offsets)
    CleanShutdownFile(disk, ROOT).write(14)
    return disk


def read_root_file(disk: SimulatedFileSystem, name: str) -> object:
    """What a file of the root says."""
    if name == CLEAN_SHUTDOWN:
        marker = CleanShutdownFile(disk, ROOT)
        return marker.exists(), marker.read()
    return OffsetCheckpoint(disk, join(ROOT, name)).read()
