"""The record formats, readable: bytes to values and back, with no file, socket or clock.

This room is the truth about the formats; `tidelog.kernels` does the same at memory speed and is proven equal to it.
Open the files in this order:

    varint.py, fields.py, checksum.py, java.py   the small change: numbers, CRCs, Java's arithmetic
    record.py                          one record of version 2
    batch.py                           the record batch, version 2
    compression.py                     the codecs; gzip_stream, snappy_stream, lz4_frame, zstd_stream beside it
    legacy.py                          messages of magic 0 and 1
    batches.py                         where one batch ends and the next begins
    builder.py                         batches as a producer makes them
    control.py, committed.py           markers of transactions, and what they hide

>>> from tidelog.records import NewRecord, build_batch, read_batches
>>> log = build_batch([NewRecord(b"k1", b"v1", 1_700_000_000_000), NewRecord(b"k2", None, 1_700_000_000_005)])
>>> for batch in read_batches(log):
...     for record in batch:
...         print(record.offset, record.timestamp_ms, record.key, record.value)
0 1700000000000 b'k1' b'v1'
1 1700000000005 b'k2' None
"""

from tidelog.records.batch import BATCH_HEADER_SIZE, BatchAttributes, BatchHeader, RecordBatch, empty_batch
from tidelog.records.batches import Batch, batch_of, first_batch_size, read_batches, read_memory_batches
from tidelog.records.builder import BatchBuilder, build_batch, build_message_set, cut_batches, plain_batch_size
from tidelog.records.committed import AbortedTxn, committed_batches
from tidelog.records.compression import Codec, compress, decompress
from tidelog.records.control import (
    ControlType,
    EndTxnMarker,
    build_control_batch,
    build_end_txn_marker,
    end_txn_marker_of,
)
from tidelog.records.legacy import LegacyBatch
from tidelog.records.record import Header, NewRecord, Record, TimestampType, record_size

__all__ = [
    "BATCH_HEADER_SIZE",
    "AbortedTxn",
    "Batch",
    "BatchAttributes",
    "BatchBuilder",
    "BatchHeader",
    "Codec",
    "ControlType",
    "EndTxnMarker",
    "Header",
    "LegacyBatch",
    "NewRecord",
    "Record",
    "RecordBatch",
    "TimestampType",
    "batch_of",
    "build_batch",
    "build_control_batch",
    "build_end_txn_marker",
    "build_message_set",
    "committed_batches",
    "compress",
    "cut_batches",
    "decompress",
    "empty_batch",
    "end_txn_marker_of",
    "first_batch_size",
    "plain_batch_size",
    "read_batches",
    "read_memory_batches",
    "record_size",
]
