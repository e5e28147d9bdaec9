"""Check the bytes of metadata snapshots and of `bootstrap.checkpoint`, which has the same format.

    header    a control batch at offset 0
    records   batches, each at the offset after the one before, all of one leader epoch
    footer    a control batch

Kafka does not notice all damage. It verifies no checksum of `bootstrap.checkpoint`, ignores the offsets and epochs of
batches and an incomplete batch at the end, and needs no footer. Such damage is a warning.

Kafka: BatchFileReader, BatchFileWriter, RecordsSnapshotReader.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.errors import CorruptionError, StorageError, TidelogError, UnsupportedError
from tidelog.fsck.findings import Severity
from tidelog.fsck.metadata_log import Snapshot, Unstartable, check_snapshot, read_bootstrap
from tidelog.fsck.root_files import RootFiles
from tidelog.log.files import ReadFileSystem, join, read_whole
from tidelog.log.names import BOOTSTRAP_CHECKPOINT
from tidelog.records.batch import MAGIC
from tidelog.records.batches import Batch, read_batches
from tidelog.records.control import ControlType

__all__ = ["Flaw", "check_bootstrap", "check_snapshots", "first_flaw"]


class Flaw(NamedTuple):
    """Damaged bytes. `size` is None for what is not there."""

    position: int
    size: int | None
    what: str


def check_bootstrap(fs: ReadFileSystem, root: RootFiles, *, has_metadata: bool) -> None:
    """Check `bootstrap.checkpoint` of a root: an error if Kafka does not start, a warning if only bytes are damaged."""
    try:
        read_bootstrap(fs, root.place.path)
    except Unstartable as error:
        severity = None if has_metadata else Severity.WARNING  # Kafka reads the one beside the metadata log
        _note(fs, root, "META-BOOTSTRAP", error.path, error.reason, severity)
    else:
        _note(fs, root, "META-BOOTSTRAP", join(root.place.path, BOOTSTRAP_CHECKPOINT))


def check_snapshots(fs: ReadFileSystem, root: RootFiles, directory: str, snapshots: Sequence[Snapshot]) -> None:
    """Check the snapshots of a metadata log, the newest last."""
    for snapshot in snapshots:
        path = join(directory, snapshot.name)
        try:
            check_snapshot(fs, path, snapshot.end_offset)
        except Unstartable as error:
            severity = None if snapshot is snapshots[-1] else Severity.WARNING
            _note(fs, root, "META-SNAPSHOT", error.path, error.reason, severity)
        else:
            _note(fs, root, "META-SNAPSHOT", path)


def _note(
    fs: ReadFileSystem, root: RootFiles, code: str, path: str, reason: str = "",
    severity: Severity | None = Severity.WARNING,
) -> None:  # fmt: skip
    """Note why a file cannot be used, with its first damaged bytes, or these alone; nothing if it is sound."""
    try:
        flaw = first_flaw(read_whole(fs, path)) if fs.stat(path) is not None else None
    except StorageError:
        flaw = None
    if flaw is not None:
        reason = f"{reason}; {flaw.what}" if reason else f"{flaw.what}; Kafka does not notice"
        root.notes.add(code, path, reason, position=flaw.position, size=flaw.size, severity=severity)
    elif reason:
        root.notes.add(code, path, reason, severity=severity)


def first_flaw(data: bytes) -> Flaw | None:
    """The first damaged bytes of a snapshot or `bootstrap.checkpoint`; None if all are as Kafka writes them."""
    position, offset, epoch, last = 0, 0, None, None
    try:
        for batch in read_batches(data):
            epoch = batch.partition_leader_epoch if epoch is None else epoch
            what = _flaw_of(batch, offset, epoch)
            if what is not None:
                return Flaw(position, batch.size_in_bytes, what)
            position, offset, last = position + batch.size_in_bytes, batch.next_offset, batch
    except TidelogError:
        return Flaw(position, len(data) - position, "here is no batch")
    if position < len(data):
        return Flaw(position, len(data) - position, "the file ends inside a batch")
    if last is None or not _is_control(last, ControlType.SNAPSHOT_FOOTER):
        return Flaw(position, None, "the file does not end with a footer")
    return None


def _flaw_of(batch: Batch, offset: int, epoch: int) -> str | None:
    """What is wrong with a batch; None if it is sound."""
    if batch.magic != MAGIC:
        return f"a batch of version {batch.magic}, expected is {MAGIC}"
    if not batch.is_valid:
        return "the checksum of the batch does not match its bytes"
    if batch.base_offset != offset:
        return f"the batch begins at offset {batch.base_offset}, expected is {offset}"
    if batch.partition_leader_epoch != epoch:
        return f"the batch has leader epoch {batch.partition_leader_epoch}, those before it have {epoch}"
    if offset == 0 and not _is_control(batch, ControlType.SNAPSHOT_HEADER):
        return "the file does not begin with the header of a snapshot"
    return None


def _is_control(batch: Batch, kind: ControlType) -> bool:
    """Whether a batch is a control batch of a kind; one whose records cannot be read is none."""
    try:
        return batch.is_control and any(ControlType.parse(record.key) is kind for record in batch)
    except (CorruptionError, UnsupportedError):
        return False
