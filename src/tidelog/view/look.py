"""The segments of a partition at one moment, while others may be rolling, deleting and compacting.

A listing of a directory is not taken at one moment: a file that is renamed meanwhile may be in it twice or not at all.
So a directory is listed until two listings in a row are equal; then there was a moment at which it was so.

What lies there is understood as a broker would that starts on it (log/leftovers.py), and nothing is changed:

    .deleted   is no part of the log any more
    .cleaned   is no part of it yet; with it goes every .swap of the same or a later base offset
    .swap      is a part of the log, and the plain segments whose base offsets it covers are not: some of them may be
               gone already. So no record is there twice, and none is missing, at whichever moment of a swap one looks.
               What it covers is the word of its last offset, which may be damaged: the active segment is never
               replaced, and a swap whose end cannot be told covers its own base offset only.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import TypeVar

from tidelog.errors import CorruptionError, SegmentGoneError, StorageError
from tidelog.log.names import (
    CLEANED,
    DELETED,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP,
    file_name,
    offset_of,
)
from tidelog.view.files import ViewFiles
from tidelog.view.segment import SegmentView

__all__ = ["Look", "looking_again", "take_look"]

Answer = TypeVar("Answer")

_MOST_LISTINGS = 200
_MOST_LOOKS = 100


class Look:
    """What was found in a partition directory."""

    def __init__(
        self,
        directory: str,
        segments: tuple[SegmentView, ...],
        snapshots: tuple[int, ...],
        notices: tuple[str, ...],
    ) -> None:
        self.directory = directory
        self.segments = segments
        self.snapshots = snapshots  # the offsets of the producer snapshots, ascending
        self.notices = notices
        self._bases = [segment.base_offset for segment in segments]

    def holding(self, offset: int) -> SegmentView | None:
        """The segment that an offset falls into, or the first one if it lies before all; None if there is none."""
        return self.segments[max(bisect_right(self._bases, offset) - 1, 0)] if self.segments else None

    def next_of(self, segment: SegmentView) -> SegmentView | None:
        """The segment that is listed behind another."""
        at = bisect_right(self._bases, segment.base_offset)
        return self.segments[at] if at < len(self.segments) else None

    def behind(self, segment: SegmentView, next_offset: int) -> SegmentView | None:
        """The segment to go on with at an offset, once `segment` has been read to its end."""
        at = max(bisect_right(self._bases, next_offset) - 1, bisect_right(self._bases, segment.base_offset))
        return self.segments[at] if at < len(self.segments) else None


def looking_again(question: Callable[[], Answer], look_again: Callable[[], object], path: str) -> Answer:
    """The answer to a question about segments; where one of them goes away under it, it is asked after another look.

    So it is where something seems damaged: a log may have been compacted, or cut, while it was read. What is wrong
    twice in the same way is damage.
    """
    doubt = ""
    for _ in range(_MOST_LOOKS):
        try:
            return question()
        except SegmentGoneError:
            look_again()
        except CorruptionError as error:
            if doubt == str(error):
                raise
            doubt = str(error)
            look_again()
    raise StorageError(f"{path} changes faster than it can be read: read a copy")


def take_look(files: ViewFiles, directory: str) -> Look:
    """The segments that are there now."""
    listed = _names_in(files, directory)
    for _ in range(_MOST_LISTINGS):
        again = _names_in(files, directory)
        if listed == again:
            try:
                return _understood(files, directory, listed)
            except SegmentGoneError:  # a swap that was completed just now
                again = _names_in(files, directory)
        listed = again
    raise StorageError(f"{directory} changes faster than it can be listed: copy it, and open the copy")


def _names_in(files: ViewFiles, directory: str) -> list[str]:
    """The names that make up a log; `.deleted` ones come and go beside it."""
    return [name for name in files.list(directory) if not name.endswith(DELETED) and "." in name]


def _understood(files: ViewFiles, directory: str, names: list[str]) -> Look:
    present: dict[int, dict[str, str]] = {}  # file names by base offset and suffix
    swapped: dict[int, dict[str, str]] = {}
    notices = []
    first_cleaned = min((offset for name in names if (offset := _offset(name, CLEANED)) is not None), default=None)
    for name in names:
        if name.endswith(SWAP):
            base = _offset(name, SWAP)
            if base is not None and (first_cleaned is None or base < first_cleaned):
                swapped.setdefault(base, {})[_suffix(name.removesuffix(SWAP))] = name
        elif name.endswith(SEGMENT_SUFFIXES):
            base = _offset(name, "")
            if base is None:
                notices.append(f"{name}: a segment is named after its base offset in 20 digits; this file is left out")
            else:
                present.setdefault(base, {})[_suffix(name)] = name
    logs = _settled(files, directory, present, swapped)
    last = max(logs, default=None)
    return Look(
        directory,
        tuple(SegmentView(files, directory, base, logs[base], is_active=base == last) for base in sorted(logs)),
        tuple(sorted(_snapshots_of(names))),
        tuple(notices),
    )


def _settled(
    files: ViewFiles, directory: str, present: dict[int, dict[str, str]], swapped: dict[int, dict[str, str]]
) -> dict[int, dict[str, str]]:
    """The files of each segment once the swaps are completed."""
    logs = {base: names for base, names in present.items() if LOG_SUFFIX in names}
    new = {base: names for base, names in swapped.items() if LOG_SUFFIX in names}
    if new:
        low = min(new)
        high = max(_end_of(SegmentView(files, directory, base, names)) for base, names in new.items())
        active = max(logs, default=low)
        logs = {
            base: names
            for base, names in logs.items()
            if not low <= base < high or (base == active and base > max(new))
        }
    for base, names in swapped.items():  # the log has its final name, an index may not have it yet
        if base in logs:
            logs[base] = logs[base] | names
    return logs | new


def _end_of(segment: SegmentView) -> int:
    """The offset after a segment; if the segment is damaged, its reader reports it."""
    try:
        return segment.next_offset
    except SegmentGoneError:
        raise
    except CorruptionError:
        return segment.base_offset + 1


def _snapshots_of(names: Iterable[str]) -> Iterable[int]:
    for name in names:
        if name.endswith(SNAPSHOT_SUFFIX):
            try:
                yield offset_of(name)
            except CorruptionError:
                continue


def _suffix(name: str) -> str:
    return name[name.rindex(".") :]


def _offset(name: str, mark: str) -> int | None:
    """The base offset of a segment file with a mark behind its name; None for any other file."""
    plain = name.removesuffix(mark)
    if (mark and plain == name) or not plain.endswith(SEGMENT_SUFFIXES):
        return None
    try:
        base = offset_of(plain)
    except CorruptionError:
        return None
    return base if plain == file_name(base, _suffix(plain)) else None
