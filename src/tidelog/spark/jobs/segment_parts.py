"""A `.log` file checked in parts, by several workers, with the result that one reading of the whole gives.

Parts begin where the offset index says that a batch does. Whether that is true need not be known beforehand: if every
part is sound to its last byte, then each of them ends where the next one begins, and one walk over the whole file would
have come by the same batches. If any part has something to tell, the segment is read once more, as a whole.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tidelog.errors import StorageError
from tidelog.fsck.segment_facts import Batches, ProducerStep, SegmentFacts
from tidelog.fsck.segment_scan import scan_segment
from tidelog.kernels.record_walk import COLUMNS
from tidelog.log.files import ReadFile, ReadFileSystem, opened, read_whole
from tidelog.log.names import INDEX_SUFFIX, LOG_SUFFIX

__all__ = ["SegmentPart", "joined", "parts_of", "scan_part"]

_POSITION = COLUMNS.index("position")


class SegmentPart(NamedTuple):
    """Bytes of a `.log` file. It can be pickled."""

    path: str
    base_offset: int
    start: int
    end: int | None  # None: to the end of the file, which may grow

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the file."""
        return self.start == 0 and self.end is None


def parts_of(fs: ReadFileSystem, path: str, base_offset: int, size: int, part_bytes: int) -> list[SegmentPart]:
    """A segment in parts of about `part_bytes`."""
    cuts = [0, *_cuts(fs, path, size, part_bytes)] if size > part_bytes + part_bytes // 2 else [0]
    return [SegmentPart(path, base_offset, start, end) for start, end in zip(cuts, [*cuts[1:], None], strict=True)]


def _cuts(fs: ReadFileSystem, path: str, size: int, part_bytes: int) -> Iterator[int]:
    """Positions where a batch begins, by the offset index, far enough from each other."""
    try:
        data = read_whole(fs, path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX)
    except StorageError:
        return
    positions = np.frombuffer(data[: len(data) // 8 * 8], ">i4")[1::2].astype(np.int64)
    before = 0
    for position in positions[np.diff(positions, prepend=0) > 0].tolist():  # a live index ends in zeros
        if before + part_bytes <= position <= size - part_bytes // 2:
            yield position
            before = position


def scan_part(fs: ReadFileSystem, part: SegmentPart, *, deep: bool) -> SegmentFacts:
    """What lies in a part. Positions are those in the file."""
    with opened(fs.open(part.path)) as file:
        if part.is_whole:
            return scan_segment(file, part.base_offset, deep=deep)
        found = scan_segment(_Slice(file, part.start, part.end), part.base_offset, deep=deep)
    columns = np.stack([found.batches[name] for name in COLUMNS])
    columns[_POSITION] += part.start
    found.batches = Batches(columns)
    found.remarks = [(position + part.start, code, words) for position, code, words in found.remarks]
    found.steps = [
        ProducerStep(batch._replace(position=batch.position + part.start), marker) for batch, marker in found.steps
    ]
    return found


def joined(parts: Sequence[tuple[SegmentPart, SegmentFacts]]) -> SegmentFacts | None:
    """What lies in a segment, of which all parts have been read; None if only a reading of the whole can tell."""
    parts = sorted(parts, key=lambda pair: pair[0].start)
    first, facts = parts[0]
    if first.is_whole:
        return facts
    if any(found.damage for _, found in parts):
        return None
    last, end = parts[-1]
    whole = SegmentFacts(facts.path, facts.base_offset, last.start + end.size)
    whole.batches = Batches.joined([np.stack([found.batches[name] for name in COLUMNS]) for _, found in parts])
    for _, found in parts:
        whole.remarks += found.remarks
        whole.steps += found.steps
        whole.records += found.records
        whole.has_producers |= found.has_producers
    return whole


class _Slice:
    """A file from one position to another, as a file."""

    def __init__(self, file: ReadFile, start: int, end: int | None) -> None:
        self.path = file.path
        self._file = file
        self._start = start
        self._size = max((file.size if end is None else min(end, file.size)) - start, 0)

    @property
    def size(self) -> int:
        return self._size

    @property
    def descriptor(self) -> int | None:
        return None

    def read(self, position: int, size: int) -> bytes:
        return self._file.read(self._start + position, max(min(size, self._size - position), 0))

    def read_into(self, position: int, target: memoryview) -> int:
        return self._file.read_into(self._start + position, target[: max(self._size - position, 0)])

    def close(self) -> None:
        self._file.close()
