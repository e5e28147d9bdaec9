"""What producers send, rightly and wrongly, and a validator to send it to.

`validate` is a fixture: a module that binds it runs its tests twice, with the readable path and with the kernel.
"""

import sys
from collections.abc import Callable, Iterable

import pytest

from tidelog.log.batch_info import batch_info
from tidelog.log.config import LogConfig
from tidelog.log.fact_finder import FactFinder
from tidelog.log.origin import AppendOrigin
from tidelog.log.validator import ValidatedBatches, validate_and_assign
from tidelog.records import (
    BATCH_HEADER_SIZE,
    BatchHeader,
    Codec,
    ControlType,
    EndTxnMarker,
    NewRecord,
    RecordBatch,
    TimestampType,
    build_batch,
    build_end_txn_marker,
    compress,
    read_memory_batches,
)
from tidelog.records.legacy import write_message
from tidelog.records.record import write_record

NOW = 1_700_000_000_000
HOUR_MS = 60 * 60 * 1000
FIRST = 1_234_567
EPOCH = 7
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
LEGACY = [codec for codec in Codec if codec is not Codec.ZSTD]
PAIRS = [(source, target) for source in Codec for target in Codec]
PRODUCER = {"producer_id": 1324, "producer_epoch": 10, "base_sequence": 984}
BY_BROKER = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time_ms": NOW - 5}
MARKER = build_end_txn_marker(
    EndTxnMarker(ControlType.COMMIT, 3), producer_id=23423, producer_epoch=5, timestamp_ms=NOW
)

Validate = Callable[..., ValidatedBatches]


@pytest.fixture(params=["readable", "kernel"])
def validate(request: pytest.FixtureRequest) -> Validate:
    """The validator with a topic of defaults and a client, at NOW; the buffer is a copy of what is given."""
    finder = FactFinder(readable_bytes=sys.maxsize if request.param == "readable" else 0)

    def run(
        data: bytes | bytearray,
        *,
        config: LogConfig | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        first_offset: int = FIRST,
        now_ms: int = NOW,
        **topic: object,
    ) -> ValidatedBatches:
        buffer = memoryview(bytearray(data))
        infos, position = [], 0
        for batch in read_memory_batches(buffer):
            infos.append(batch_info(buffer, position))
            position += batch.size_in_bytes
        return validate_and_assign(
            buffer,
            infos,
            config=config or LogConfig(**topic),  # type: ignore[arg-type]
            origin=origin,
            first_offset=first_offset,
            now_ms=now_ms,
            leader_epoch=EPOCH,
            finder=finder,
        )

    return run


def topic_codec(codec: Codec) -> str:
    return "uncompressed" if codec is Codec.NONE else codec.label


def three(*times: int) -> list[NewRecord]:
    return [NewRecord(b"key%d" % index, b"value%d" % index, time) for index, time in enumerate(times or (NOW,) * 3)]


def resealed(batch: bytes | bytearray, body: bytes | None = None, **fields: int) -> bytes:
    """The batch with other header fields or another body, and the checksum that fits."""
    header = BatchHeader.unpack(batch)._replace(**fields)
    return bytes(header.seal(bytes(batch[BATCH_HEADER_SIZE:]) if body is None else body))


def raw_batch(
    deltas: Iterable[int], *, codec: Codec = Codec.NONE, time_deltas: Iterable[int] | None = None, **fields: int
) -> bytes:
    """A batch of one-letter records with the offset deltas given."""
    deltas = list(deltas)
    body = bytearray()
    for delta, time_delta in zip(deltas, time_deltas or [0] * len(deltas), strict=True):
        write_record(body, delta, time_delta, NewRecord(b"k", b"v"))
    header = {"attributes": int(codec), "records_count": len(deltas), "last_offset_delta": len(deltas) - 1, **fields}
    return resealed(build_batch([NewRecord(b"k", b"v", NOW)]), compress(codec, body), **header)


def wrapper(
    messages: list[tuple[int, int, NewRecord]], *, magic: int, codec: Codec = Codec.GZIP, offset: int | None = None
) -> bytes:
    """A wrapper around messages, given as magic, inner offset and record."""
    inner = bytearray()
    for inner_magic, inner_offset, record in messages:
        write_message(inner, inner_magic, inner_offset, record)
    return wrapper_around(bytes(inner), magic=magic, codec=codec, offset=messages[-1][1] if offset is None else offset)


def wrapper_around(inner: bytes, *, magic: int, codec: Codec = Codec.GZIP, offset: int = 0) -> bytes:
    out = bytearray()
    content = NewRecord(None, compress(codec, inner, magic=magic), NOW if magic else -1)
    write_message(out, magic, offset, content, codec=codec)
    return bytes(out)


def result_batch(result: ValidatedBatches) -> RecordBatch:
    """The one batch of the result, which must be sound and described rightly."""
    (info,) = result.batches
    batch = RecordBatch(result.buffer[info.position : info.position + info.size])
    batch.ensure_valid()
    assert info == batch_info(result.buffer, info.position)
    assert batch.partition_leader_epoch == EPOCH
    assert info.size == len(result.buffer)
    assert result.next_offset == batch.last_offset + 1
    return batch
