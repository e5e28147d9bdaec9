"""The batches of a piece, wherever they lie by the time it is read.

First the place that was planned is read. If the file is gone, or what lies there is not what lay there when the plan
was made, the next offset that is wanted is looked up in the directory as it is now. A broker that compacts swaps files
under the same name, one that deletes renames them: what was open stays readable, what was not yet open is found again
or is gone, as it is for a consumer.
"""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tidelog.columns.chunks import Chunk, read_chunks
from tidelog.errors import CorruptionError, CorruptRecordError, StorageError
from tidelog.log.files import ReadFile
from tidelog.view.files import ViewFiles
from tidelog.view.partition import PartitionView
from tidelog.view.row_choice import Int64Array, last_offsets

if TYPE_CHECKING:
    from tidelog.view.pieces import Piece

__all__ = ["PieceWalk", "Window"]


class Window(NamedTuple):
    """Some batches of a segment, and the offset from which on their records are wanted."""

    segment: int
    path: str
    chunk: Chunk
    first_offset: int


class PieceWalk:
    """The windows of a piece. A window is valid until the next one is asked for.

    Where a list of notices is given, stretches that are no batches are noted there and passed over.
    """

    def __init__(self, files: ViewFiles, piece: "Piece", notices: list[str] | None = None) -> None:
        self._files = files
        self._piece = piece
        self._notices = notices
        self._next_offset = piece.first_offset  # everything below was delivered

    def __iter__(self) -> Iterator[Window]:
        if (yield from self._read_planned()):
            return
        while self._next_offset < self._piece.limit_offset:
            partition = PartitionView.at(self._files.fresh(), self._piece.directory)
            try:
                yield from self._read_as_it_is(partition)
                return
            except CorruptionError as error:
                self._pass_over(partition, error)

    def _read_planned(self) -> Generator[Window, None, bool]:
        """Read what was planned; whether all of it was there, and the same as then."""
        piece = self._piece
        try:
            windows = self._read(piece.segment, self._files.open(piece.path), piece.start, piece.end)
            first = next(windows, None)
            if first is None or int(first.chunk.scan.rows["base_offset"][0]) != piece.start_offset:
                return False
            yield first
            return (yield from windows) == piece.end or self._next_offset >= piece.limit_offset
        except (StorageError, CorruptionError):  # if it lasts, whoever looks again will meet it
            return False

    def _read_as_it_is(self, partition: PartitionView) -> Iterator[Window]:
        """What the log holds by now of the offsets that are still wanted."""
        for stretch in partition.stretches(self._next_offset, self._piece.limit_offset):
            yield from self._read(stretch.segment.base_offset, stretch.reader.log.file, stretch.start, stretch.end)

    def _read(self, segment: int, file: ReadFile, start: int, end: int) -> Generator[Window, None, int]:
        """The batches between two positions, up to the limit, and then how far they reach."""
        position = start
        try:
            for chunk in read_chunks(file, start=start, end=end):
                last = last_offsets(chunk.scan)
                in_order = _how_many_increase(last, self._next_offset - 1)
                if in_order:
                    yield Window(segment, file.path, chunk._replace(scan=chunk.scan.first(in_order)), self._next_offset)
                    self._next_offset = int(last[in_order - 1]) + 1
                if in_order < len(last):
                    at = chunk.position + int(chunk.scan.positions[in_order])
                    raise CorruptRecordError(f"position {at}: offset {last[in_order]} behind {self._next_offset - 1}")
                position = chunk.position + chunk.scan.end
                if self._next_offset >= self._piece.limit_offset:
                    break
        except CorruptionError as error:
            raise type(error)(f"{file.path}, {error}") from None
        return position

    def _pass_over(self, partition: PartitionView, error: CorruptionError) -> None:
        """Go on in the segment behind, if that is wanted."""
        if self._notices is None:
            raise error
        later = (segment.base_offset for segment in partition.segments if segment.base_offset > self._next_offset)
        following = min(next(later, self._piece.limit_offset), self._piece.limit_offset)
        self._notices.append(f"{error}: offsets {self._next_offset} to {following - 1} are left out")
        self._next_offset = following


def _how_many_increase(offsets: Int64Array, before: int) -> int:
    """How many offsets at the front are each above the one before it."""
    wrong = np.flatnonzero(np.diff(offsets, prepend=before) <= 0)
    return int(wrong[0]) if len(wrong) else len(offsets)
