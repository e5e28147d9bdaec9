"""Take back a load: truncate every log to where the journal says that it ended.

The journal records, step by step:

    1. before the clean shutdown marker is removed: the marker, and which partitions will be written
    2. before the first record of a partition: where its log ends, or that the partition is new
    3. before the checkpoints of the root are written: where each log ends now
    4. it is removed last: from then on the load is committed

A process that finds a journal, with the root locked, takes the load back: a load that was killed or lost its power has
not happened. A load that fails takes itself back in the same way.
"""

import random
from collections.abc import Callable
from dataclasses import replace

from tidelog.errors import CorruptionError, StorageError
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint, read_offsets
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.cut_back import cut_back, trim_indexes
from tidelog.log.files import FileSystem, join, write_atomically
from tidelog.log.names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    TopicPartition,
    file_name,
)
from tidelog.log.offline_root import OfflineRoot
from tidelog.log.unified_log import UnifiedLog
from tidelog.log.write_journal import (
    LoadGroup,
    PartitionNote,
    WriteJournal,
    journal_path,
    read_journal,
    remove_journal,
    write_journal,
)

__all__ = ["is_decided", "settle_load", "take_back"]

_FILES_OF_A_ROOT = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
    CLEAN_SHUTDOWN,
)


OnNotice = Callable[[str], None]


def _nobody_listens(sentence: str) -> None:
    """For callers that have nobody to tell."""


def settle_load(
    fs: FileSystem, path: str, journal: WriteJournal, clock: Clock, on_notice: OnNotice = _nobody_listens
) -> bool:
    """Settle an interrupted load; whether it was taken back, and not finished.

    Removing the journal of the first directory commits a load into several. After that the others are finished by
    removing their journals, since all data was flushed before. Before that all are taken back, the first one last. In
    both cases the first directory is synced first: the journal that was, or was not, found there must be so after a
    power loss, too.
    """
    group = journal.group
    if group is not None and group.number and fs.stat(group.roots[0]) is not None:
        fs.sync_directory(group.roots[0])
    if is_decided(fs, journal):
        remove_journal(fs, path)
        return False
    if group is not None and not group.number:
        for other in group.roots[1:]:
            if _is_of_group(fs, other, group):
                raise StorageError(
                    f"{path}: a load into several log directories was interrupted; recover all of them at once: "
                    f"`tidelog recover {' '.join(group.roots)}`"
                )
    take_back(fs, path, journal, clock, on_notice)
    return True


def is_decided(fs: FileSystem, journal: WriteJournal) -> bool:
    """Whether a load into several directories is committed in the first, and this is the journal of another one.

    Raises StorageError if the first has neither the journal nor what the load has written there.
    """
    group = journal.group
    if group is None or not group.number or _is_of_group(fs, group.roots[0], group):
        return False
    _ensure_done_in_first(fs, group)
    return True


def _ensure_done_in_first(fs: FileSystem, group: LoadGroup) -> None:
    """Raise unless the logs of the first directory reach as far as the load has written them."""
    root = group.roots[0]
    points = read_offsets(fs, join(root, RECOVERY_POINT_CHECKPOINT))
    for place, end in group.first_ends.items():
        if fs.stat(join(root, str(place))) is None or points.get(place, -1) < end:
            raise StorageError(
                f"{root} does not hold {place} up to offset {end}, so it does not show how far a load into "
                f"{', '.join(group.roots)} came that was interrupted. Perhaps it is not mounted: mount it, or restore "
                f"it, and run `tidelog recover {' '.join(group.roots)}`"
            )


def _is_of_group(fs: FileSystem, root: str, group: LoadGroup) -> bool:
    """Whether a log directory has a journal of a load that went into several."""
    if fs.stat(root) is None:
        raise StorageError(
            f"{root} is not there: a load into {', '.join(group.roots)} was interrupted, and only all of them together "
            "show how far it came"
        )
    found = read_journal(fs, root)
    return found is not None and found.group is not None and found.group.id == group.id


def take_back(
    fs: FileSystem, path: str, journal: WriteJournal, clock: Clock, on_notice: OnNotice = _nobody_listens
) -> None:
    """Restore the root as the journal says it was, whatever a load has done, and remove the journal.

    The caller has the lock of the root and no log of it open. `on_notice` is told what is cut off besides.
    """
    root = OfflineRoot(path, fs=fs)
    if journal_path(fs, path) is None:
        write_journal(fs, path, journal)  # it was about to be removed
    with root.owners_kept(path):
        _restore_checkpoints(fs, path, journal)
        for place, note in journal.partitions.items():
            directory = join(path, str(place))
            if note.is_new:
                fs.remove_directory(directory)
            else:
                with root.owners_kept(directory):
                    _cut(fs, path, place, note, clock, on_notice)
        for name in _FILES_OF_A_ROOT:
            fs.remove(join(path, f"{name}.tmp"))
            if journal.was_empty:
                fs.remove(join(path, name))
        fs.sync_directory(path)
        marker = CleanShutdownFile(fs, path)
        if journal.marker is None:
            marker.delete()
        else:
            write_atomically(fs, marker.path, journal.marker)
    remove_journal(fs, path)


def _restore_checkpoints(fs: FileSystem, root: str, journal: WriteJournal) -> None:
    """Restore them before the logs are cut: no crash may leave an offset in the files that the log does not reach."""
    for name, attribute in (
        (RECOVERY_POINT_CHECKPOINT, "recovery_point"),
        (HIGH_WATERMARK_CHECKPOINT, "high_watermark"),
    ):
        checkpoint = OffsetCheckpoint(fs, join(root, name))
        before = {place: getattr(note, attribute) for place, note in journal.partitions.items()}
        now = checkpoint.read()
        wanted = {place: offset for place, offset in (now | before).items() if offset is not None}
        if wanted != now:
            checkpoint.write(wanted)


def _cut(
    fs: FileSystem, root: str, place: TopicPartition, note: PartitionNote, clock: Clock, on_notice: OnNotice
) -> None:
    """Cut one log back. Damage from before the load stays as it is: `fsck --repair` knows how to keep what follows."""
    directory = join(root, str(place))
    if not note.has_topic_id:
        fs.remove(join(directory, PARTITION_METADATA))
    if note.end is None:  # nothing was appended yet
        trim_indexes(fs, directory)
        return
    try:
        notice = cut_back(fs, directory, note.end, clock=clock, rng=random.Random())
        with _opened(fs, root, place, note, clock, clean_shutdown=True) as log:
            if log.log_end_offset != note.end:
                raise CorruptionError(f"{directory} ends at {log.log_end_offset}, and not at {note.end}")
            log.truncate_to(note.end)  # leader epochs that begin there
            notices = (notice, *log.notices)
    except CorruptionError as error:
        notices = (f"{error}; the log is recovered as Kafka does it", *_recover_and_cut(fs, root, place, note, clock))
    for notice in notices:
        if notice is not None:
            on_notice(notice)


def _recover_and_cut(
    fs: FileSystem, root: str, place: TopicPartition, note: PartitionNote, clock: Clock
) -> tuple[str, ...]:
    """Cut a log back that cannot be read up to where it ended: recovery ends it at the damage. What that has cut."""
    assert note.end is not None
    with _opened(fs, root, place, note, clock, clean_shutdown=False) as log:
        log.truncate_to(note.end)
        log.tick()  # the files of segments that were cut off go now: nobody reads them
        last = log.local.segments.active.base_offset
        notices = log.notices
    # The time that went with the cut may have been the only entry: made anew, the index knows the largest that is left.
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        fs.remove(join(join(root, str(place)), file_name(last, suffix)))
    _opened(fs, root, place, note, clock, clean_shutdown=False).close()
    return notices


def _opened(
    fs: FileSystem, root: str, place: TopicPartition, note: PartitionNote, clock: Clock, *, clean_shutdown: bool
) -> UnifiedLog:
    """The log of a partition, opened as after a clean stop, or as after a crash."""
    starts = OffsetCheckpoint(fs, join(root, LOG_START_CHECKPOINT)).read()
    return UnifiedLog.open(
        join(root, str(place)),
        replace(LogConfig(), file_delete_delay_ms=0),
        recovery_point=max(note.recovery_point or 0, 0),
        log_start_offset=max(starts.get(place, 0), 0),
        high_watermark=note.high_watermark,
        clean_shutdown=clean_shutdown,
        clock=clock,
        fs=fs,
        lock=False,
    )
