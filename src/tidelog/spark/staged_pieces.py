"""What an attempt of a task leaves for the commit: a file of batches for each partition that it has rows for.

    <root>/orders-3.<32 hexadecimal digits>-delete/staged.batches

Kafka takes such a directory for one that it has begun to delete, and removes it when it starts; no view lists it. The
first 16 digits are those of the job, the others of the attempt and the partition. The offsets of the batches count from
0: what they come to is known when the piece is committed, and stands outside the checksum of a batch.
"""

import random
import socket
from collections.abc import Iterator
from hashlib import sha256

from crc32c import crc32c

from tidelog.columns.chunks import Chunk, read_chunks
from tidelog.errors import CorruptionError, StorageError
from tidelog.log.files import FileSystem, join, opened
from tidelog.log.names import STAGED_FILE, TopicPartition, delete_directory_name, is_delete_directory
from tidelog.log.write_journal import Piece

__all__ = [
    "STAGED_FILE",
    "Piece",
    "attempt_name",
    "check_piece",
    "directory_for",
    "job_of",
    "job_of_batch",
    "new_job",
    "read_piece",
    "staged_directories",
]

_READ_BYTES = 1 << 20  # at once: what was read is still in the cache of the processor when it is used
_DIGITS = 16  # of a job, and of an attempt


def new_job(rng: random.Random) -> str:
    """The name of a job: digits that no other has."""
    return f"{rng.getrandbits(4 * _DIGITS):0{_DIGITS}x}"


def job_of_batch(query: str, batch: int) -> str:
    """The name of the job that writes a batch of a stream, however often that is tried."""
    return sha256(f"{query} {batch}".encode()).hexdigest()[:_DIGITS]


def attempt_name(job: str, rng: random.Random) -> str:
    """What tells the directories of an attempt from all others."""
    return f"{job}{new_job(rng)}"


def directory_for(place: TopicPartition, attempt: str) -> str:
    """The directory in which an attempt puts what it has for a partition."""
    return delete_directory_name(place, attempt)


def job_of(directory: str) -> str:
    """The job that a directory is of, if it is a staged one."""
    return directory.rpartition(".")[2][:_DIGITS]


def staged_directories(fs: FileSystem, root: str) -> Iterator[tuple[str, int]]:
    """The directories of a root that hold a staged piece, or nothing any more; and when they were last written to."""
    for name in fs.list(root):
        path = join(root, name)
        if is_delete_directory(name) and set(fs.list(path)) <= {STAGED_FILE}:
            times = [about.modified_ms for about in (fs.stat(path), fs.stat(join(path, STAGED_FILE))) if about]
            yield name, max(times, default=0)


def check_piece(fs: FileSystem, root: str, piece: Piece) -> None:
    """Raise if a staged file is not what its task has written."""
    path = piece.path(root)
    found = fs.stat(path)
    if found is None:
        here = socket.gethostname()
        if here == piece.host:
            raise StorageError(f"{path}, which a task has staged, is gone")
        raise StorageError(
            f"{path}, which a task has staged on {piece.host}, is not there on {here}: "
            f"{root} must be a directory that driver and executors share"
        )
    if found.size != piece.size:
        raise CorruptionError(f"{path} has {found.size} bytes, its task has staged {piece.size}")
    if _crc_of(fs, path, piece.size) != piece.crc:
        raise CorruptionError(f"{path} has not the checksum that its task has staged")


def _crc_of(fs: FileSystem, path: str, size: int) -> int:
    crc = 0
    buffer = memoryview(bytearray(min(size, _READ_BYTES)))
    with opened(fs.open(path)) as file:
        for position in range(0, size, _READ_BYTES):
            found = file.read_into(position, buffer[: size - position])
            crc = crc32c(buffer[:found], crc)
    return crc


def read_piece(fs: FileSystem, root: str, piece: Piece) -> Iterator[Chunk]:
    """The batches of a staged file; the chunks can be written to."""
    with opened(fs.open(piece.path(root))) as file:
        yield from read_chunks(file, chunk_size=_READ_BYTES)
