"""Segments rewritten from what is sound, and put in the place of the old ones.

The new files are written beside the old ones under names that end in `.cleaned`, and take their place by way of
`.swap`, as the output of a compaction does (log/segment_swap.py): whatever interrupts this, the next start of a broker,
or the next repair, finds the old segments or the new ones. Indexes are not written here. A segment without them is
recovered by whoever loads it. A transaction index that knows more than the log does stays where it is.
"""

from collections.abc import Callable, Sequence

from tidelog.errors import TidelogError
from tidelog.fsck.plan import NewSegment
from tidelog.fsck.rehearsal import copy_range
from tidelog.log.files import FileSystem, create_anew, join, opened
from tidelog.log.names import CLEANED, DELETED, LOG_SUFFIX, SEGMENT_SUFFIXES, SWAP, TXN_INDEX_SUFFIX, file_name

__all__ = ["replace_group"]


def replace_group(
    fs: FileSystem, directory: str, group: Sequence[NewSegment], last_base: int, on_change: Callable[[], None]
) -> None:
    """Replace segments in one step. One that has nothing left goes, unless it is the last or keeps an index.

    Those in between are replaced as well though they stay the same, without their indexes: whoever finds the output of
    a compaction takes all segments for replaced that lie in its range.

    If there is no room for the new ones, nothing has happened. `on_change` is called before something does.
    """
    kept = [one for one in group if one.pieces or one.keeps_txn_index or one.base_offset == last_base]
    try:
        for segment in kept:
            _write(fs, directory, segment)
        fs.sync_directory(directory)
    except TidelogError:
        for segment in kept:
            fs.remove(join(directory, file_name(segment.base_offset, LOG_SUFFIX)) + CLEANED)
        raise
    on_change()
    for segment in reversed(kept):
        path = join(directory, file_name(segment.base_offset, LOG_SUFFIX))
        fs.rename(path + CLEANED, path + SWAP)
        fs.sync_directory(directory)
    old = [
        join(directory, file_name(segment.base_offset, suffix))
        for segment in group
        for suffix in (SEGMENT_SUFFIXES if not segment.is_same else (LOG_SUFFIX,))
        if not (segment.keeps_txn_index and suffix == TXN_INDEX_SUFFIX)
    ]
    there = [path for path in old if fs.stat(path) is not None]
    for path in there:
        fs.rename(path, path + DELETED)
    fs.sync_directory(directory)
    for segment in kept:
        path = join(directory, file_name(segment.base_offset, LOG_SUFFIX))
        fs.rename(path + SWAP, path)
        fs.sync_directory(directory)
    for path in there:
        fs.remove(path + DELETED)
    fs.sync_directory(directory)


def _write(fs: FileSystem, directory: str, segment: NewSegment) -> None:
    path = join(directory, file_name(segment.base_offset, LOG_SUFFIX))
    target = create_anew(fs, path + CLEANED)
    try:
        end = 0
        for piece in segment.pieces:
            size = piece.end - piece.start
            if piece.data:
                target.write_at(end, piece.data)
            else:
                with opened(fs.open(piece.path)) as source:
                    copy_range(source, piece.start, size, target, end)
            end += size
        target.sync()
    finally:
        target.close()
    before = fs.stat(path)
    if before is not None:
        fs.set_modified(path + CLEANED, before.modified_ms)  # what has no timestamps is found by it
