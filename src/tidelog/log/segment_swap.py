"""Putting new segments in the place of old ones so that a crash leaves either set and never a mix.

New segments are written under names that end in `.cleaned`. Renaming them to `.swap`, the last one first, commits: as
long as one `.cleaned` is left, start-up throws all of them away; once none is, start-up completes the swap
(leftovers.py). Then the old files get `.deleted` behind their names and the new ones their final names. Each step is
on the disk before the next begins: a file system may forget one rename and keep a later one.

Kafka: LocalLog.replaceSegments.
"""

from collections.abc import Sequence

from tidelog.log.config import LogConfig
from tidelog.log.deletion import Deletion
from tidelog.log.files import FileSystem, no_turning_back
from tidelog.log.names import CLEANED, DELETED, SWAP
from tidelog.log.segment import LogSegment
from tidelog.log.segments import LogSegments
from tidelog.log.tasks import Later

__all__ = ["rename_deleted", "replace_segments"]


def rename_deleted(fs: FileSystem, directory: str, segments: Sequence[LogSegment]) -> None:
    """Give the files of segments names that end in `.deleted`, one segment after the other, in the order given.

    The name of a log is on the disk before its indexes, and before the next log, get theirs. So what a crash leaves is
    the end of the list, and no log without its indexes, also where the file system keeps no order among renames.

    That costs one fsync of the directory per segment, in the thread of the owner: some 2 ms, so that a truncation of
    1,400 segments takes seconds. Fewer will not do. Of two renames between two fsyncs either one may be all that is
    left, and one of the two cases is a hole, which start-up cannot tell from what compaction leaves.
    """
    for segment in segments:
        segment.change_log_suffix("", DELETED)
        fs.sync_directory(directory)
        segment.change_index_suffixes("", DELETED)


def replace_segments(
    fs: FileSystem,
    directory: str,
    segments: LogSegments[LogSegment],
    new: Sequence[LogSegment],
    old: Sequence[LogSegment],
    config: LogConfig,
    later: Later,
) -> list[LogSegment]:
    """Replace `old`, which are part of the log or not loaded yet, by `new`, whose files end in `.cleaned`.

    Gives back the segments whose base offset is in use no longer; their files go after file.delete.delay.ms.
    """
    with no_turning_back():  # start-up would complete a `.swap` that is left, whatever has happened since
        in_order = sorted(new, key=lambda segment: segment.base_offset)
        for segment in reversed(in_order):
            segment.change_suffix(CLEANED, SWAP)
            fs.sync_directory(directory)
        kept = {segment.base_offset for segment in in_order}
        # One that retention has deleted meanwhile has its name, and its end, already.
        replaced = sorted(
            (segment for segment in old if not segment.log.path.endswith(DELETED)),
            key=lambda segment: segment.base_offset,
        )
        segments.change(remove=[segment.base_offset for segment in replaced], add=in_order)
        # In order: where the new one ends early, start-up keeps old ones that are left after it, and among these no
        # value may outlive the tombstone that follows it.
        rename_deleted(fs, directory, replaced)
        fs.sync_directory(directory)

        later.after(config.file_delete_delay_ms, Deletion(fs, replaced))
        for segment in in_order:
            segment.change_suffix(SWAP, "")
            fs.sync_directory(directory)
        return [segment for segment in replaced if segment.base_offset not in kept]
