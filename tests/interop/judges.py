"""Other people's readers and writers of the record formats, with one face: kafka-python and aiokafka.

    judge.read(data)                       the batches of the bytes, each with the judge's word on its checksum
    judge.write(magic, codec, records)     one batch, or one message set, as the judge's producer makes it
    judge.can(magic, codec)                what the judge knows at all

Both are clients: they write no control batches, no LogAppendTime and no offsets, but they read them.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import aiokafka.codec
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords

from tidelog.records import Codec, NewRecord

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of importlib.resources, on Python 3.11
    import kafka.codec
    from kafka.record.memory_records import MemoryRecords as KafkaPythonMemoryRecords
    from kafka.record.memory_records import MemoryRecordsBuilder

NO_LIMIT = 1 << 30  # bytes of a batch

HEADER_FIELDS = (
    "magic",
    "crc",
    "attributes",
    "base_offset",
    "last_offset_delta",
    "first_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "is_transactional",
    "is_control_batch",
)


class Seen(NamedTuple):
    """A record as somebody reads it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_type: int  # -1 for none


class SeenBatch(NamedTuple):
    """A batch as a judge reads it. `fields` are those of a version 2 header; old formats have none to compare."""

    is_valid: bool
    fields: Mapping[str, int]
    records: list[Seen]


class Judge(ABC):
    """A library that reads and writes the formats by code of its own."""

    def __init__(self, name: str, codecs: Any) -> None:
        self.name = name
        self.codecs = {
            Codec.GZIP: codecs.has_gzip(),
            Codec.SNAPPY: codecs.has_snappy(),
            Codec.LZ4: codecs.has_lz4(),
            Codec.ZSTD: codecs.has_zstd(),
        }

    def can(self, magic: int, codec: Codec) -> bool:
        return magic == 2 or codec is not Codec.ZSTD

    @abstractmethod
    def _batches(self, data: bytes) -> Iterable[Any]: ...

    @abstractmethod
    def write(self, magic: int, codec: Codec, records: Iterable[NewRecord], **producer: int) -> bytes:
        """One batch of records, from offset 0. `producer` has the fields of an idempotent or transactional one."""

    def read(self, data: bytes) -> list[SeenBatch]:
        return [_seen(batch) for batch in self._batches(data)]

    def __repr__(self) -> str:
        return self.name


def _seen(batch: Any) -> SeenBatch:
    is_valid = batch.validate_crc()  # before the iteration, which replaces the bytes by what they decompress to
    fields = {name: getattr(batch, name) for name in HEADER_FIELDS} if hasattr(batch, "attributes") else {}
    records = [
        Seen(
            record.offset,
            -1 if record.timestamp is None else record.timestamp,
            record.key,
            record.value,
            tuple(record.headers),
            -1 if record.timestamp_type is None else record.timestamp_type,
        )
        for record in batch
    ]
    return SeenBatch(is_valid, fields, records)


class KafkaPython(Judge):
    """kafka-python: pure Python, every format and codec, the broken lz4 of magic 0 too."""

    def __init__(self) -> None:
        super().__init__("kafka-python", kafka.codec)

    def _batches(self, data: bytes) -> Iterable[Any]:
        return KafkaPythonMemoryRecords(data)

    def write(self, magic: int, codec: Codec, records: Iterable[NewRecord], **producer: int) -> bytes:
        transactional = producer.pop("is_transactional", 0)
        builder = MemoryRecordsBuilder(magic, codec, NO_LIMIT, transactional=bool(transactional), **producer)
        for record in records:
            written = builder.append(record.timestamp_ms, record.key, record.value, [tuple(h) for h in record.headers])
            assert written is not None
        builder.close()
        return bytes(builder.buffer())


class AioKafka(Judge):
    """aiokafka: compiled C; it knows no lz4 in magic 0 (KAFKA-3160)."""

    def __init__(self) -> None:
        super().__init__("aiokafka", aiokafka.codec)

    def can(self, magic: int, codec: Codec) -> bool:
        return super().can(magic, codec) and (magic, codec) != (0, Codec.LZ4)

    def _batches(self, data: bytes) -> Iterable[Any]:
        records = AioMemoryRecords(data)
        while records.has_next():
            yield records.next_batch()

    def write(self, magic: int, codec: Codec, records: Iterable[NewRecord], **producer: int) -> bytes:
        if magic == 2:
            options = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "is_transactional": 0, **producer}
            builder = DefaultRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=NO_LIMIT, **options)
        else:
            builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=NO_LIMIT)
        for offset, record in enumerate(records):
            headers = [tuple(header) for header in record.headers] if magic == 2 else []
            assert builder.append(offset, record.timestamp_ms, record.key, record.value, headers=headers) is not None
        return bytes(builder.build())


JUDGES: list[Judge] = [KafkaPython(), AioKafka()]
