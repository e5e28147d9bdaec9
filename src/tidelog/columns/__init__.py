"""Batches to Arrow columns and back, at memory speed.

    schema.py          the columns, their types
    decoder.py         bytes -> RecordBatches; groups.py, record_columns.py, batch_columns.py, arrow_memory.py below it
    encoder.py         rows -> batches; inputs.py, compressor.py below it
    chunks.py          a file as chunks of whole batches
    summary.py         what batch headers alone tell: counts, offsets, times
    partitioner.py     the partition of a key

The same bytes through `tidelog.records` give the same records, or the same errors.
"""

from tidelog.columns.chunks import Chunk, FileSource, Source, read_chunks
from tidelog.columns.decoder import ColumnDecoder, decode, decode_file
from tidelog.columns.encoder import ColumnEncoder, EncodedBatches, encode
from tidelog.columns.partitioner import partition_for_keys
from tidelog.columns.schema import schema_of
from tidelog.columns.summary import LogSummary, scan, summarize

__all__ = [
    "Chunk",
    "ColumnDecoder",
    "ColumnEncoder",
    "EncodedBatches",
    "FileSource",
    "LogSummary",
    "Source",
    "decode",
    "decode_file",
    "encode",
    "partition_for_keys",
    "read_chunks",
    "scan",
    "schema_of",
    "summarize",
]
