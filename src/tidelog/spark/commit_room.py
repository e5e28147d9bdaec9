"""Whether a disk can take what a journal asks for: told while nothing is decided.

What is staged is copied, and goes only when all of it is there. So a commit takes room for the batches once more, for
the indexes beside them, and for the files of new segments and partitions.
"""

import os
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem
from tidelog.log.local_files import LocalFileSystem, storage_error
from tidelog.log.write_journal import PartitionNote, WriteJournal
from tidelog.records.batch import BATCH_HEADER_SIZE

__all__ = ["Room", "ensure_room", "room_for"]

_ENTRIES_BYTES = 8 + 12  # of an offset index and of a time index
_FILES_OF_A_SEGMENT = 4  # log, offset index, time index, snapshot of the producers
_FILES_OF_A_PARTITION = 3  # its directory, epochs, topic id
_FILES_OF_A_ROOT = 8  # journal, marker, checkpoints, batches of streams


class Room(NamedTuple):
    """What something takes of a disk."""

    size: int  # in bytes
    files: int


def room_for(journal: WriteJournal) -> Room:
    """What the commit of a journal takes beside what is staged for it, unless times that lie far apart end segments."""
    config = LogConfig.from_properties(journal.configs)
    parts = [_room_for_partition(note, config) for note in journal.partitions.values()]
    return Room(sum(part.size for part in parts), _FILES_OF_A_ROOT + sum(part.files for part in parts))


def _room_for_partition(note: PartitionNote, config: LogConfig) -> Room:
    size = sum(piece.size for piece in note.pieces)
    entries = size // max(config.index_interval_bytes, BATCH_HEADER_SIZE)
    # A segment ends before the batch that does not fit: two neighbours together are always larger than one may be.
    segments = 1 + 2 * size // config.segment_bytes
    return Room(size + _ENTRIES_BYTES * (entries + segments), _FILES_OF_A_SEGMENT * segments + _FILES_OF_A_PARTITION)


def ensure_room(fs: FileSystem, root: str, journal: WriteJournal) -> None:
    """Raise if the disk is too full for what is to be committed."""
    if not isinstance(fs, LocalFileSystem):
        return
    try:
        about = os.statvfs(root)
    except OSError as error:
        raise storage_error(root, error) from error
    needed = room_for(journal)
    if needed.size > about.f_bavail * about.f_frsize:
        raise StorageError(f"{root} has no room for the {needed.size} bytes that are to be committed: make some")
    if about.f_files and needed.files > about.f_favail:  # not every file system counts them
        raise StorageError(
            f"{root} has no room for the {needed.files} files that are to be committed: make some, or write to "
            "fewer partitions, with larger segments"
        )
