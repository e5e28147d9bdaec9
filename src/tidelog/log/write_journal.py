"""The journal of a root: the directory that says that a load, or a write of Spark's, is not finished.

    <root>/unfinished-write.run-tidelog-recover/journal

The write is one step because of it. A commit of Spark's is decided when the journal appears: whoever finds one finishes
it. A load is done when the journal goes: whoever finds one takes the load back. Until then readers see the logs as they
were (`tidelog.view`), and neither Kafka nor `LogManager` starts on the root: the name of the directory is not that of a
partition, and a start ends at such a name before it has touched a log. So no broker serves, appends to, or deletes
what is half written.

The directory is written under a name that Kafka removes by itself, and gets its own name in one step; it goes the same
way. A crash at any point leaves the journal or nothing.
"""

import json
import os

from tidelog.errors import CheckpointError, StorageError
from tidelog.log.checkpoints import read_epochs, read_offsets
from tidelog.log.files import FileSystem, ReadFileSystem, join, opened, write_atomically
from tidelog.log.journal_format import (
    MOST_BYTES,
    VERSION,
    LoadGroup,
    PartitionNote,
    Piece,
    WriteJournal,
    WriteKind,
    decode,
    encode,
    ensure_fits,
)
from tidelog.log.local_files import LocalFileSystem, ensure_plain_files, leads_nowhere, own_as, storage_error
from tidelog.log.names import (
    HIGH_WATERMARK_CHECKPOINT,
    JOURNAL_ASIDE,
    JOURNAL_FILE,
    LEADER_EPOCH_CHECKPOINT,
    OLD_JOURNALS,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    UNFINISHED_WRITE,
)
from tidelog.log.partition_metadata import read_topic_id

__all__ = [
    "LoadGroup",
    "PartitionNote",
    "Piece",
    "WriteJournal",
    "WriteKind",
    "ensure_fits",
    "ensure_no_unfinished_write",
    "ensure_untouched",
    "journal_path",
    "read_journal",
    "remove_journal",
    "write_journal",
]

_MOST_FIRST_BYTES = 1 << 20  # of the first line


def journal_path(fs: ReadFileSystem, root: str) -> str | None:
    """Where the journal of a root lies, readable or not; None if there is none.

    A link that leads nowhere counts: the disk that holds the journal may not be mounted.
    """
    for name in (UNFINISHED_WRITE, *OLD_JOURNALS):
        path = join(root, name)
        if fs.stat(path) is not None or leads_nowhere(path):
            return path
    return None


def read_journal(fs: ReadFileSystem, root: str) -> WriteJournal | None:
    """The journal of a root; None if there is none. Raises CheckpointError if it is not one of this release."""
    path = journal_path(fs, root)
    if path is None:
        return None
    advice = f"if no write is unfinished, move {path} out of the log directory"
    if leads_nowhere(path):
        raise CheckpointError(
            f"{path}: a symbolic link that leads nowhere, in the place of the journal of an unfinished write: mount "
            f"the disk that it points to; {advice}"
        )
    if not path.endswith(UNFINISHED_WRITE):
        raise CheckpointError(
            f"{path}: this release does not read journals of earlier builds of tidelog; run `tidelog load` of the "
            f"build that wrote it, which settles the write; {advice}"
        )
    content = b""
    try:
        content = _content(fs, join(path, JOURNAL_FILE))
        return decode(content)
    except CheckpointError as error:
        if _is_of_other_version(content):
            raise CheckpointError(
                f"{path}: the journal of an unfinished write cannot be read: {error}; run `tidelog recover` of the "
                f"release that wrote it; {advice}"
            ) from None
        raise CheckpointError(
            f"{path}: the journal of an unfinished write is damaged: {error}; restore {join(path, JOURNAL_FILE)} or "
            f"the log directory from a backup; {advice}"
        ) from None


def _is_of_other_version(content: bytes) -> bool:
    """Whether a journal says that another release wrote it. One of the present version is damaged."""
    try:
        first = json.loads(content[:_MOST_FIRST_BYTES].partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    version = first.get("version") if isinstance(first, dict) else None
    return type(version) is int and version != VERSION


def _content(fs: ReadFileSystem, path: str) -> bytes:
    about = fs.stat(path)
    if about is None or about.is_directory:
        raise CheckpointError(f"there is no file {JOURNAL_FILE}")
    if about.size > MOST_BYTES:
        raise CheckpointError(f"it has {about.size} bytes, a journal has {MOST_BYTES} at most")
    with opened(fs.open(path)) as file:
        return file.read(0, about.size)


def write_journal(fs: FileSystem, root: str, journal: WriteJournal) -> None:
    """Write the journal, or replace it. It is on the disk when this returns."""
    content = encode(journal)
    directory = join(root, UNFINISHED_WRITE)
    if fs.stat(directory) is not None:
        write_atomically(fs, join(directory, JOURNAL_FILE), content)
        return
    aside = join(root, JOURNAL_ASIDE)
    fs.remove_directory(aside)
    fs.make_directory(aside)
    write_atomically(fs, join(aside, JOURNAL_FILE), content)
    _give_to_owner(fs, root, aside)
    fs.rename(aside, directory)
    fs.sync_directory(root)


def remove_journal(fs: FileSystem, root: str) -> None:
    """Let the write be finished, or taken back, for good."""
    directory, aside = join(root, UNFINISHED_WRITE), join(root, JOURNAL_ASIDE)
    fs.remove_directory(aside)
    if fs.stat(directory) is not None:
        fs.rename(directory, aside)
        fs.sync_directory(root)
        fs.remove_directory(aside)
    fs.sync_directory(root)


def _give_to_owner(fs: FileSystem, root: str, directory: str) -> None:
    """Let the owner of the root recover what a process of the superuser has left."""
    if not isinstance(fs, LocalFileSystem) or os.geteuid() != 0:
        return
    try:
        model = os.stat(root)
    except OSError as error:
        raise storage_error(root, error) from error
    own_as(directory, model, 0o755)
    own_as(join(directory, JOURNAL_FILE), model, 0o644)


def ensure_no_unfinished_write(fs: ReadFileSystem, root: str) -> None:
    """Raise if a write into a root is unfinished: it is settled before anything else is done there."""
    if journal_path(fs, root) is not None:
        journal = read_journal(fs, root)
        words = "a write" if journal is None else journal.kind.words
        roots = (root,) if journal is None or journal.group is None else journal.group.roots
        raise StorageError(f"{root}: {words} was interrupted; run `tidelog recover {' '.join(roots)}` first")


def ensure_untouched(fs: FileSystem, root: str, journal: WriteJournal) -> None:
    """Raise if the logs are not as an interrupted write leaves them: gone, with links in them, or written to since.

    What somebody else has written must not be cut off.

    It takes somebody who has moved the journal away and back. A broker then leaves its traces: a new leader epoch,
    another topic id, or offsets in the checkpoints that no write of ours has noted.
    """
    recovery_points, high_watermarks = (
        read_offsets(fs, join(root, name)) for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
    )
    for place, note in journal.partitions.items():
        directory = join(root, str(place))
        if fs.stat(directory) is not None:
            ensure_plain_files(fs, directory)
        elif not note.is_new:
            raise StorageError(
                f"{directory} is gone, and {journal.kind.words} that was interrupted had appended to it; nothing was "
                "changed. Restore it and try again, or write again what is missing and remove "
                f"{join(root, UNFINISHED_WRITE)}"
            )
        epochs = read_epochs(fs, join(directory, LEADER_EPOCH_CHECKPOINT))
        ids = {read_topic_id(fs, join(directory, PARTITION_METADATA)), journal.topic_ids.get(place.topic)} - {None}
        if (
            len(ids) > 1
            or recovery_points.get(place) not in (None, note.recovery_point, note.end_then)
            or high_watermarks.get(place) not in (None, note.high_watermark, note.end_then)
            or max((entry.epoch for entry in epochs), default=0) > (note.epoch or 0)
        ):
            raise StorageError(
                f"{directory}: a broker has written to it since {journal.kind.words} into {root} was interrupted, and "
                f"some records of that write may lie there from offset {note.end or 0} on; nothing was changed. "
                "Compare the topic with the input, write what is missing again, and remove "
                f"{join(root, UNFINISHED_WRITE)}"
            )
