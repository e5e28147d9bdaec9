"""The largest size that each kind of file can sensibly have.

Small files are read whole, and anybody who can write to a log directory can make one of them any size: a sparse file of
50 GB costs him nothing and the reader all of its memory. A file that is larger than its kind allows is reported and
not read, and none is written that could not be read again.

The sizes are generous: a file that a broker wrote in earnest is far below them.
"""

from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.log.names import (
    CLEAN_SHUTDOWN,
    CLEANED,
    COMMITTED_BATCHES,
    DELETED,
    INDEX_SUFFIX,
    JOURNAL_FILE,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    SWAP,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from tidelog.records.java import MAX_INT32

__all__ = ["FileKind", "check_size", "kind_of"]

_MIB = 1 << 20
_ON_ITS_WAY = (".tmp", SWAP, CLEANED, DELETED)


class FileKind(NamedTuple):
    """A kind of file, recognised by how its name ends."""

    ends: tuple[str, ...]
    largest: int
    what: str
    remedy: str = "move it away"


# The first that fits. A batch takes 61 bytes at least, so a segment of 2 GiB has at most 35 million of them and its
# offset index 282 MB, with an entry for each. An index may be preallocated, too (segment.index.bytes, 10 MiB).
KINDS = (
    FileKind((PARTITION_METADATA,), 64 << 10, "partition.metadata"),
    FileKind((META_PROPERTIES, CLEAN_SHUTDOWN, "quorum-state"), _MIB, "a file of properties"),
    FileKind((LEADER_EPOCH_CHECKPOINT,), 32 * _MIB, "a checkpoint of leader epochs"),
    FileKind(("-offset-checkpoint",), 64 * _MIB, "a checkpoint of offsets"),
    FileKind((JOURNAL_FILE,), 64 * _MIB, "a journal"),
    FileKind((COMMITTED_BATCHES,), 64 * _MIB, "a list of committed batches"),
    FileKind((SNAPSHOT_SUFFIX,), 256 * _MIB, "a producer snapshot"),
    FileKind((INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX), 512 * _MIB, "an index"),
    FileKind((".checkpoint",), 1024 * _MIB, "a snapshot of the metadata log"),
    # Not read whole, but from its first byte to its last. Kafka: FileRecords refuses to open a larger one.
    FileKind((LOG_SUFFIX,), MAX_INT32, "a segment", "restore it from a replica or a backup"),
)
_OTHER = FileKind(("",), MAX_INT32, "a file that is read whole")


def kind_of(path: str) -> FileKind:
    """The kind of a file, by its name; temporary names count as the name they will have.

    >>> kind_of("/data/orders-0/00000000000000000000.index.swap").what
    'an index'
    """
    for suffix in _ON_ITS_WAY:
        path = path.removesuffix(suffix)
    return next((kind for kind in KINDS if path.endswith(kind.ends)), _OTHER)


def check_size(path: str, size: int) -> None:
    """Raise StorageError for a file that is larger than its kind can be."""
    kind = kind_of(path)
    if size > kind.largest:
        raise StorageError(
            f"{path}: {size} bytes, and {kind.what} has at most {kind.largest}: the file is damaged, {kind.remedy}"
        )
