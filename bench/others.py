"""The same work done with the libraries that people use today, into and out of Arrow."""

import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords


def _to_columns(batches: Iterator[Any], topic: str, partition: int) -> pa.RecordBatch:
    """Seven columns, as Spark's Kafka source has them, without headers."""
    keys, values, offsets, times, types = [], [], [], [], []
    for batch in batches:
        for record in batch:
            keys.append(record.key)
            values.append(record.value)
            offsets.append(record.offset)
            times.append(record.timestamp)
            types.append(record.timestamp_type)
    count = len(keys)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.repeat(topic, count),
            pa.repeat(partition, count),
            pa.array(offsets, pa.int64()),
            pa.array(times, pa.timestamp("ms", "UTC")),
            pa.array(types, pa.int32()),
        ],
        names=["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
    )


def _checked(records: Any) -> Iterator[Any]:
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise ValueError("wrong checksum")
        yield batch


def aiokafka_to_arrow(data: bytes) -> int:
    """Read with aiokafka's compiled reader, checksums compared; rows read."""
    return _to_columns(_checked(AiokafkaRecords(data)), "t", 0).num_rows


def kafka_python_to_arrow(data: bytes) -> int:
    """Read with kafka-python, checksums compared; rows read."""
    return _to_columns(_checked(KafkaPythonRecords(data)), "t", 0).num_rows


def aiokafka_from_rows(rows: list[tuple[Any, Any, Any]], batch_size: int) -> int:
    """Write with aiokafka's compiled builder; bytes written."""
    total = 0
    builder, offset = _new_builder(batch_size), 0
    for key, value, timestamp in rows:
        if builder.append(offset, timestamp, key, value, []) is None:
            total += len(builder.build())
            builder, offset = _new_builder(batch_size), 0
            builder.append(offset, timestamp, key, value, [])
        offset += 1
    return total + len(builder.build())


def _new_builder(batch_size: int) -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=batch_size,
    )
