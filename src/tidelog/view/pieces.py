"""What one task of a scan reads: a stretch of one segment, with all that must be known to read it alone.

    plan (pruning.py) -> pieces -> read_piece, here, in another thread or on another machine -> RecordBatches

A piece says where its batches lay when it was planned, and which offsets are its own. The places are a short cut: if
the file is gone by the time the piece is read, or holds something else there, because a broker compacted or deleted in
the meantime, the offsets are looked up anew. So each row is in one piece, whatever happens to the files.
"""

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.columns.decoder import DEFAULT_MAX_BYTES, DEFAULT_MAX_ROWS, ColumnDecoder
from tidelog.columns.schema import TimestampUnit, schema_of
from tidelog.errors import CorruptionError, InvalidRequestError
from tidelog.kernels.headers import HeaderScan, Seen
from tidelog.log.offsets import MAX_OFFSET
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.view.files import ReadOnlyFiles, ViewFiles
from tidelog.view.piece_walk import PieceWalk, Window, left_out
from tidelog.view.request import RowChoice
from tidelog.view.row_choice import BatchChoice, last_offsets, wanted_rows

__all__ = [
    "ALL_SCAN_COLUMNS",
    "SCAN_COLUMNS",
    "OnCorruption",
    "Piece",
    "PieceReader",
    "count_piece",
    "read_piece",
    "scan_schema",
]

OnCorruption = Literal["raise", "skip"]

SCAN_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_SEGMENT = "segment"  # the base offset of the segment: the one column that only a scan knows
_ON_DEMAND = (
    "leaderEpoch",
    "producerId",
    "producerEpoch",
    "sequence",
    "isTransactional",
    "codec",
    _SEGMENT,
    "position",
)
ALL_SCAN_COLUMNS = (*SCAN_COLUMNS, *_ON_DEMAND)  # in the order of docs/scan.md; control records are no rows


class Piece(NamedTuple):
    """Batches of one segment. It can be pickled."""

    topic: str
    partition: int
    directory: str  # of the partition
    segment: int  # its base offset
    path: str  # of its `.log`
    start: int  # position of the first batch
    end: int  # position behind the last
    start_offset: int  # what the first batch says its base offset is
    first_offset: int  # records below are not wanted,
    limit_offset: int  # nor are those from here on
    aborted: tuple[AbortedTxnEntry, ...] = ()  # transactions to leave out
    rows: RowChoice = RowChoice()
    told_from: int = 0  # damage that begins with offsets below is another piece's to tell of
    segment_limit: int = MAX_OFFSET  # the first offset of the next segment: a batch that reaches it is damaged
    is_after_end: bool = False  # whether the log ends before it, because its checksums fail

    @property
    def size(self) -> int:
        """Bytes to read."""
        return self.end - self.start


def scan_schema(columns: Sequence[str] | None = None, timestamp_unit: TimestampUnit = "ms") -> pa.Schema:
    """The schema of a choice of columns; without one, of the eight of Spark's Kafka source."""
    names = SCAN_COLUMNS if columns is None else columns
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        known = ", ".join(ALL_SCAN_COLUMNS)
        raise InvalidRequestError(f"columns are a list of names, not {names!r}; there are {known}")
    if not len(names):
        raise InvalidRequestError("no column is asked for; to learn how many rows there are, ask count()")
    if isinstance(names, str):
        raise InvalidRequestError(f"columns are a list of names; for one column write [{names!r}]")
    for name in names:
        if name not in ALL_SCAN_COLUMNS:
            near = get_close_matches(name, ALL_SCAN_COLUMNS, 1)
            hint = f", do you mean {near[0]!r}?" if near else ";"
            raise InvalidRequestError(f"no column {name!r}{hint} there are {', '.join(ALL_SCAN_COLUMNS)}")
    if len(set(names)) != len(names):
        raise InvalidRequestError(f"a column is named twice: {', '.join(names)}")
    schema = schema_of([name for name in names if name != _SEGMENT], timestamp_unit)
    if _SEGMENT in names:
        schema = schema.insert(list(names).index(_SEGMENT), pa.field(_SEGMENT, pa.int64()))
    return schema


def read_piece(
    piece: Piece,
    columns: Sequence[str] | None = None,
    *,
    files: ViewFiles | None = None,
    verify: bool = True,
    timestamp_unit: TimestampUnit = "ms",
    on_corruption: OnCorruption = "raise",
    max_rows: int = DEFAULT_MAX_ROWS,
    max_bytes: int = DEFAULT_MAX_BYTES,
    notices: list[str] | None = None,
    on_loss: Callable[[str], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a piece.

    With `on_corruption="skip"` a batch that is damaged is left out, and told of in `notices`. Offsets that were deleted
    since they were planned are told to `on_loss`, or without it to `notices`.
    """
    reader = PieceReader(piece, columns, verify, timestamp_unit, max_rows, max_bytes)
    skipped = None if on_corruption == "raise" else [] if notices is None else notices
    if on_loss is None and notices is not None:
        on_loss = notices.append
    for window in PieceWalk(files or ReadOnlyFiles(), piece, verify=verify, notices=skipped, on_loss=on_loss):
        yield from reader.rows(window) if skipped is None else reader.sound_rows(window, skipped)


def count_piece(piece: Piece, *, files: ViewFiles | None = None) -> int:
    """How many rows a piece has, by the headers of its batches where those tell. No checksum is compared."""
    reader = PieceReader(piece, ("offset",), False, "ms", DEFAULT_MAX_ROWS, DEFAULT_MAX_BYTES)
    return sum(reader.count(window) for window in PieceWalk(files or ReadOnlyFiles(), piece, verify=False))


class PieceReader:
    """Decodes windows of a piece."""

    def __init__(
        self,
        piece: Piece,
        columns: Sequence[str] | None,
        verify: bool,
        unit: TimestampUnit,
        max_rows: int,
        max_bytes: int,
    ) -> None:
        self._piece = piece
        self._unit: TimestampUnit = unit
        self._verify = verify
        self._bounds = max_rows, max_bytes
        self._choice = BatchChoice(piece.limit_offset, piece.aborted, piece.rows)
        self._schema = scan_schema(columns, unit)
        self._stored = [name for name in self._schema.names if name != _SEGMENT]
        self._decoders: dict[tuple[str, ...], ColumnDecoder] = {}

    def rows(self, window: Window) -> Iterator[pa.RecordBatch]:
        """The rows of a window; what is wrong is raised behind those before it."""
        chosen, has_edges = self._choice.choose(window.chunk.scan, window.first_offset)
        try:
            for batch in self._decode(window, chosen, has_edges):
                yield self._finished(batch, window.segment)
        except CorruptionError as error:
            raise type(error)(f"{window.path}, {error}") from None

    def sound_rows(self, window: Window, notices: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows of the batches that can be read; of the others it is noted where they lie."""
        chosen, has_edges = self._choice.choose(window.chunk.scan, window.first_offset)
        try:
            batches = list(self._decode(window, chosen, has_edges))
        except CorruptionError:
            batches = list(self._decode_each(window, chosen, has_edges, notices))
        for batch in batches:
            yield self._finished(batch, window.segment)

    def _decode_each(
        self, window: Window, chosen: HeaderScan, has_edges: bool, notices: list[str]
    ) -> Iterator[pa.RecordBatch]:
        for index in range(len(chosen.rows)):
            one = chosen.pick(slice(index, index + 1))
            try:
                batches = list(self._decode(window, one, has_edges))
            except CorruptionError as error:
                if not int(one.rows["base_offset"][0]) < self._piece.told_from:
                    first, behind = _offsets_of(one, window)
                    notices.append(f"{window.path}, {error}: {left_out(int(one.sizes[0]), first, behind)}")
            else:
                yield from batches

    def _decode(self, window: Window, chosen: HeaderScan, has_edges: bool) -> Iterator[pa.RecordBatch]:
        choice = self._piece.rows
        needed = (*choice.columns, *(("offset",) if has_edges else ()))
        decoder = self._decoder(needed)
        chunk = window.chunk
        offsets = (window.first_offset, self._piece.limit_offset) if has_edges else None
        for batch in decoder.decode_scanned(chunk.data, chosen, base_position=chunk.position):
            if needed:
                batch = wanted_rows(batch, choice, offsets, self._unit)
            if batch.num_rows:
                yield batch

    def _decoder(self, needed: tuple[str, ...]) -> ColumnDecoder:
        if needed not in self._decoders:
            max_rows, max_bytes = self._bounds
            self._decoders[needed] = ColumnDecoder(
                [*self._stored, *(name for name in needed if name not in self._stored)],
                constants={"topic": self._piece.topic, "partition": self._piece.partition},
                timestamp_unit=self._unit,
                verify=self._verify,
                max_rows=max_rows,
                max_bytes=max_bytes,
            )
        return self._decoders[needed]

    def _finished(self, batch: pa.RecordBatch, segment: int) -> pa.RecordBatch:
        """The columns that were asked for, in their order."""
        if batch.schema.names == self._schema.names:
            return batch
        arrays = [
            pa.array(np.full(batch.num_rows, segment, np.int64)) if name == _SEGMENT else batch.column(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def count(self, window: Window) -> int:
        """How many rows a window has."""
        chosen, has_edges = self._choice.choose(window.chunk.scan, window.first_offset)
        if has_edges or self._piece.rows.columns or chosen.seen & Seen.LEGACY:
            try:
                return sum(batch.num_rows for batch in self._decode(window, chosen, has_edges))
            except CorruptionError as error:
                raise type(error)(f"{window.path}, {error}") from None
        return int(np.maximum(chosen.rows["records_count"], 0).sum(dtype=np.int64))


def _offsets_of(one: HeaderScan, window: Window) -> tuple[int, int]:
    """The first offset of one batch of a window, and that behind its last. An entry of the old formats may wrap all
    that follow the one before it."""
    first, last = int(one.rows["base_offset"][0]), int(last_offsets(one)[0])
    if one.is_legacy[0]:
        scan = window.chunk.scan
        before = last_offsets(scan)[scan.positions < one.positions[0]]
        first = int(before[-1]) + 1 if len(before) else min(window.first_offset, last)
    return first, last + 1
