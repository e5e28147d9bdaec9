"""Arrow to batches: rows as a producer would send them, or as a log stores them.

    columns -> addresses -> one kernel call cuts and writes many batches -> each is compressed where a codec is given

The columns read are `key`, `value`, `timestamp` and `headers`; any of them may be missing. The other columns that a
decoder gives (offset, codec, ...) are passed over, a column of any other name is refused. The end of a RecordBatch ends
the open batch, as a flush does.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.columns.compressor import BatchCompressor
from tidelog.columns.inputs import Inputs
from tidelog.errors import InvalidRequestError
from tidelog.kernels.encode import CUT_WORDS, TOO_LARGE, Input
from tidelog.kernels.encode import encode as encode_rows
from tidelog.kernels.memory import SLACK
from tidelog.records.batch import (
    BATCH_HEADER_SIZE,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchAttributes,
)
from tidelog.records.builder import DEFAULT_BATCH_SIZE, check_producer
from tidelog.records.compression import Codec
from tidelog.records.java import MAX_INT32, increment_sequence
from tidelog.records.record import NO_SEQUENCE

__all__ = ["ColumnEncoder", "EncodedBatches", "encode"]

Int64Array = np.ndarray[Any, np.dtype[np.int64]]

_TARGET_SIZE = 8 << 20
_SMALLEST_BATCH = BATCH_HEADER_SIZE + 7


class EncodedBatches(NamedTuple):
    """Batches back to back, and what each of them is."""

    data: memoryview
    sizes: Int64Array
    counts: Int64Array

    def batches(self) -> Iterator[memoryview]:
        """The batches one by one."""
        position = 0
        for size in self.sizes.tolist():
            yield self.data[position : position + size]
            position += size


def encode(rows: pa.RecordBatch | pa.Table, **options: Any) -> bytes:
    """All rows as one stretch of batches; the options are those of `ColumnEncoder`.

    >>> from tidelog.records import read_batches
    >>> log = encode(pa.table({"key": [b"k1", None], "value": [b"v1", b"v2"]}), base_offset=7)
    >>> [(record.offset, record.key, record.value) for batch in read_batches(log) for record in batch]
    [(7, b'k1', b'v1'), (8, None, b'v2')]
    """
    return b"".join(part.data for part in ColumnEncoder(**options).encode(rows))


class ColumnEncoder:
    """Encodes rows into version 2 batches; offsets and sequences go on from call to call. For one thread at a time.

    Args:
        batch_size: the producer's `batch.size`: bytes of a batch before compression, unless one record needs more.
        codec, level: how bodies are compressed; a codec may be given by its name, "zstd".
        base_offset: offset of the first row, from which the others follow; None makes batches as a producer sends
            them, each of which begins at offset 0.
        partition_leader_epoch: -1 as a producer sends it.
        producer_id, producer_epoch, base_sequence, is_transactional: as in `BatchBuilder`.
        any_time: take times before 1970, too. Kafka's producers do not send them, its brokers store them.
    """

    def __init__(
        self,
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        codec: Codec | str = Codec.NONE,
        level: int | None = None,
        base_offset: int | None = 0,
        partition_leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        any_time: bool = False,
    ) -> None:
        codec = Codec.from_name(codec) if isinstance(codec, str) else Codec.from_id(codec)
        check_producer(producer_id, producer_epoch, base_sequence, is_transactional, is_control=False)
        for name, value, smallest, bits in (
            ("base_offset", base_offset or 0, 0, 64),
            ("batch_size", batch_size, 0, 32),
            ("partition_leader_epoch", partition_leader_epoch, NO_LEADER_EPOCH, 32),
            ("producer_id", producer_id, NO_PRODUCER_ID, 64),
            ("producer_epoch", producer_epoch, NO_PRODUCER_EPOCH, 16),
            ("base_sequence", base_sequence, NO_SEQUENCE, 32),
        ):
            if not smallest <= value < 1 << bits - 1:
                raise InvalidRequestError(f"{name} {value}: it lies between {smallest} and 2**{bits - 1} - 1")
        self.next_offset = base_offset
        self.next_sequence = base_sequence
        self._any_time = any_time
        self._compressor = BatchCompressor(codec, level)
        self._words = np.zeros(Input.WORDS, np.int64)
        self._words[Input.BATCH_SIZE] = batch_size
        self._words[Input.LEADER_EPOCH] = partition_leader_epoch
        self._words[Input.PRODUCER_ID] = producer_id
        self._words[Input.PRODUCER_EPOCH] = producer_epoch
        self._words[Input.ATTRIBUTES] = BatchAttributes(codec, is_transactional=is_transactional).pack()

    def encode(self, rows: pa.RecordBatch | pa.Table) -> Iterator[EncodedBatches]:
        """The batches of `rows`, in stretches of some megabytes."""
        if not isinstance(rows, pa.RecordBatch | pa.Table):
            raise InvalidRequestError(
                f"rows are a pyarrow Table or RecordBatch, not a {type(rows).__name__}; "
                "a DataFrame becomes one with pyarrow.Table.from_pandas"
            )
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
            yield from self.encode_some(Inputs(batch, any_time=self._any_time))

    def encode_some(self, inputs: Inputs, order: Int64Array | None = None) -> Iterator[EncodedBatches]:
        """The batches of some rows of a RecordBatch, by their numbers and in that order; without `order` of all rows.

        Whoever deals rows out to several encoders saves a copy of them.
        """
        rows = inputs.rows if order is None else len(order)
        if order is not None:
            order = np.ascontiguousarray(order, np.int64)
            if rows and not 0 <= int(order.min()) <= int(order.max()) < inputs.rows:
                raise InvalidRequestError(f"rows have the numbers 0 to {inputs.rows - 1}")
        if self.next_offset is not None and self.next_offset + rows > 2**63:
            raise InvalidRequestError(f"{rows} rows from offset {self.next_offset} on: offsets end at 2**63 - 1")
        words = self._words.copy()  # of this call alone: another may begin before this one is read to its end
        inputs.fill(words)
        words[Input.ROWS] = rows
        words[Input.ORDER] = 0 if order is None else order.ctypes.data
        row = 0
        target_size = min(_TARGET_SIZE, inputs.max_encoded_size())
        if rows < inputs.rows:  # about their share; more is asked for where they are larger than others
            target_size = target_size * rows // inputs.rows + int(words[Input.BATCH_SIZE])
        while row < rows:
            target = np.empty(target_size + SLACK, np.uint8)
            cuts = np.empty((target_size // _SMALLEST_BATCH + 1, CUT_WORDS), np.int64)
            words[Input.TARGET] = target.ctypes.data
            words[Input.CAPACITY] = target_size
            words[Input.CUTS] = cuts.ctypes.data
            words[Input.MAX_CUTS] = len(cuts)
            # The kernel counts from the first row of this call.
            words[Input.BASE_OFFSET] = -1 if self.next_offset is None else self.next_offset - row
            words[Input.BASE_SEQUENCE] = -1 if self.next_sequence < 0 else (self.next_sequence - row) & MAX_INT32
            following, size, made = encode_rows(words.ctypes.data, row)
            if following == TOO_LARGE:
                raise InvalidRequestError("a row with more than 2 GiB of key, value and headers fits no batch")
            if not made:  # one batch needs more than the whole target
                target_size = 2 * target_size + int(words[Input.BATCH_SIZE])
                continue
            encoded = EncodedBatches(target[:size].data, cuts[:made, 1], cuts[:made, 2])
            # What is handed out counts, whether or not the rest is ever asked for.
            if self.next_offset is not None:
                self.next_offset += following - row
            if self.next_sequence != NO_SEQUENCE:
                self.next_sequence = increment_sequence(self.next_sequence, following - row)
            row = following
            yield self._compressor.compress(encoded)
