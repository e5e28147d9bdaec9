"""Batches to Arrow: the records of a stretch of log as RecordBatches of the columns one wants.

    scan the headers -> cut into groups of at most 128 k rows and 8 MiB -> open the bodies of a group (decompress) ->
    one kernel call compares checksums and fills the columns of the records -> columns of the batch are repeated beside

Buffers come from Arrow's own pool and are handed over without a copy. What the kernels find broken is read again by
`tidelog.records`, which says what is wrong: both paths raise the same errors for the same bytes.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.columns.arrow_memory import as_numpy, fixed_array
from tidelog.columns.batch_columns import BatchColumns
from tidelog.columns.chunks import FileSource, read_chunks
from tidelog.columns.groups import Group, Stretch, groups_of
from tidelog.columns.record_columns import BrokenBatch, RecordColumns
from tidelog.columns.schema import CONSTANT_COLUMNS, TimestampUnit, schema_of
from tidelog.errors import CorruptionError, InvalidRecordError, InvalidRequestError
from tidelog.kernels.buffers import hold
from tidelog.kernels.headers import HeaderScan, Seen, check_headers, ensure_not_corrupt, scan_windows
from tidelog.kernels.memory import SLACK
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES

__all__ = ["DEFAULT_MAX_BYTES", "DEFAULT_MAX_ROWS", "ColumnDecoder", "decode", "decode_file"]

DEFAULT_MAX_ROWS = 131_072
DEFAULT_MAX_BYTES = 8 << 20
_MAX_BOUND = 2**31 - 1 - SLACK


def decode(buffer: Any, columns: Sequence[str] | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
    """The records of the complete batches in `buffer`; the options are those of `ColumnDecoder`.

    Bytes behind the last complete batch are not an error: a log may be read while it is written.
    `summarize` counts them.

    >>> from tidelog.records import NewRecord, build_batch
    >>> log = build_batch([NewRecord(b"k1", b"v1", 1_700_000_000_000), NewRecord(b"k2", None, 1_700_000_000_005)])
    >>> [batch.to_pylist() for batch in decode(log, ["offset", "key", "value"])]
    [[{'offset': 0, 'key': b'k1', 'value': b'v1'}, {'offset': 1, 'key': b'k2', 'value': None}]]
    """
    if isinstance(buffer, str | os.PathLike):
        raise InvalidRequestError(f"decode takes bytes; for the file {os.fspath(buffer)!r} there is decode_file")
    return ColumnDecoder(columns, **options).decode(buffer)


def decode_file(
    path: str | os.PathLike[str], columns: Sequence[str] | None = None, **options: Any
) -> Iterator[pa.RecordBatch]:
    """The records of the complete batches of a log file, read in chunks; the options are those of `ColumnDecoder`."""
    return _decode_file(path, ColumnDecoder(columns, **options))


def _decode_file(path: str | os.PathLike[str], decoder: "ColumnDecoder") -> Iterator[pa.RecordBatch]:
    with FileSource(path) as source:
        try:
            for chunk in read_chunks(source):
                yield from decoder.decode_scanned(chunk.data, chunk.scan, base_position=chunk.position)
        except CorruptionError as error:
            raise type(error)(f"{source.path}, {error}") from None


class ColumnDecoder:
    """Decodes stretches of log into RecordBatches of one schema.

    Args:
        columns: names from `tidelog.columns.schema`, in the order wanted; None for all that the bytes hold.
        constants: values of `topic` and `partition`, where those columns are asked for.
        timestamp_unit: "ms", as Kafka stores them, or "us", as Spark wants them.
        verify: compare every checksum.
        max_rows, max_bytes: bounds of one RecordBatch. A single batch of the log may exceed the bytes, never the rows.
        max_decompressed: refuse a batch that decompresses to more.

    Not safe for use by several threads at once; the kernels release the GIL, so give each thread its own.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        constants: Mapping[str, str | int] | None = None,
        timestamp_unit: TimestampUnit = "ms",
        verify: bool = True,
        max_rows: int = DEFAULT_MAX_ROWS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_decompressed: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.schema = schema_of(columns, timestamp_unit)
        self.constants = dict(constants or {})
        self._check(max_rows, max_bytes, max_decompressed)
        self.verify = verify
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.max_decompressed = max_decompressed
        self._wanted = frozenset(self.schema.names)
        self._unit = timestamp_unit
        self._repeated = BatchColumns()

    def _check(self, max_rows: int, max_bytes: int, max_decompressed: int) -> None:
        for name in self.constants.keys() - CONSTANT_COLUMNS.keys():
            raise InvalidRequestError(f"no constant {name!r}; there are {', '.join(CONSTANT_COLUMNS)}")
        for name in CONSTANT_COLUMNS.keys() & set(self.schema.names):
            if name not in self.constants:
                raise InvalidRequestError(f"column {name!r} needs a constant: the bytes of a log do not hold it")
            try:
                pa.scalar(self.constants[name], CONSTANT_COLUMNS[name])
            except (pa.ArrowException, OverflowError, TypeError) as error:
                raise InvalidRequestError(f"constant {self.constants[name]!r} of column {name!r}: {error}") from None
        for bound, value in (("max_rows", max_rows), ("max_bytes", max_bytes), ("max_decompressed", max_decompressed)):
            if not 1 <= value <= _MAX_BOUND:  # Arrow counts the bytes of a column in 32 bits
                raise InvalidRequestError(f"{bound} {value}: it lies between 1 and {_MAX_BOUND}")

    def decode(self, buffer: Any, *, base_position: int = 0) -> Iterator[pa.RecordBatch]:
        """The records of the complete batches in `buffer`. An incomplete one at the end ends the iteration.

        `base_position` is where the buffer begins in its file; the `position` column counts from there.
        """
        for scan in scan_windows(buffer):
            yield from self.decode_scanned(buffer, scan, base_position=base_position)
            ensure_not_corrupt(buffer, scan, base_position=base_position)

    def decode_scanned(self, buffer: Any, scan: HeaderScan, *, base_position: int = 0) -> Iterator[pa.RecordBatch]:
        """The records of those batches of `buffer` that a scan of it, or a selection of the scan, names.

        What is wrong with a batch is raised once the records before it have been delivered. Checksums that the scan
        did not compare are compared here, those of plain batches by the decoder itself.
        """
        buffer = hold(buffer)
        stretch = Stretch(buffer, base_position, self.max_decompressed, self.verify)
        if self.verify and scan.seen & (Seen.LEGACY | Seen.COMPRESSED):
            scan = check_headers(buffer, scan)
        for run in scan.runs():
            first_wrong = run.first_wrong()
            sound = run if first_wrong is None else run.first(first_wrong)
            if len(sound.rows):
                for group in groups_of(stretch, sound, self.max_rows, self.max_bytes):
                    yield from self._decode_group(group)
            if first_wrong is not None:
                stretch.explain(run, first_wrong)

    def _decode_group(self, group: Group) -> Iterator[pa.RecordBatch]:
        try:
            records = group.decode(self._wanted)
        except BrokenBatch as broken:
            yield from self._decode_group(group.pick(slice(broken.index)))
            group.explain(broken.index)
        if group.length:  # batches may all be empty
            yield from self._slices(self._record_batch(group, records))

    def _slices(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if batch.num_rows <= self.max_rows:
            yield batch
        else:  # one batch of the log with more records than a RecordBatch may have rows
            for start in range(0, batch.num_rows, self.max_rows):
                yield batch.slice(start, self.max_rows)

    def _record_batch(self, group: Group, records: RecordColumns) -> pa.RecordBatch:
        arrays = [self._column(name, group, records) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, group: Group, records: RecordColumns) -> pa.Array:
        length = group.length
        match name:
            case "key":
                return records.key
            case "value":
                return records.value
            case "headers":
                return records.headers
            case "offset":
                return fixed_array(pa.int64(), length, records.offsets)
            case "timestamp":
                if self._unit == "us":
                    _to_microseconds(as_numpy(records.timestamps, np.int64))
                return fixed_array(self.schema.field(name).type, length, records.timestamps)
            case "sequence":
                return group.sequences(records, self._repeated)
            case "topic" | "partition":
                return self._repeated.constant(name, self.constants[name], length)
            case "position":
                return self._repeated.repeat(name, group.positions(), group)
            case _:
                return self._repeated.repeat(name, group.batch_values(name), group)


def _to_microseconds(milliseconds: np.ndarray[Any, np.dtype[np.int64]]) -> None:
    """Multiply in place; a time that has no microseconds in 64 bits is refused, as Spark refuses it."""
    if milliseconds.size and max(-int(milliseconds.min()), int(milliseconds.max())) > (2**63 - 1) // 1000:
        raise InvalidRecordError("a timestamp beyond the year 294,246 does not fit microseconds; decode in 'ms'")
    np.multiply(milliseconds, 1000, out=milliseconds)
