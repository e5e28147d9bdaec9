"""The record formats before Apache Kafka's own tool and classes, both ways; sound, stamped and damaged.

The logs are written once and shown to each judge in one JVM, so the tests below only compare.
"""

import itertools
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tests.compat.kafka_tools import (
    BatchSpec,
    DumpedFile,
    JudgedRecord,
    RecordSpec,
    Stamp,
    ToolResult,
    Verdict,
    dump_log,
    judge_files,
    judge_stamp,
    judge_write_all,
    parse_dump,
)
from tidelog.columns import decode, encode
from tidelog.columns.schema import HEADERS_TYPE
from tidelog.errors import TidelogError
from tidelog.records import (
    BATCH_HEADER_SIZE,
    Batch,
    BatchAttributes,
    BatchBuilder,
    Codec,
    ControlType,
    EndTxnMarker,
    Header,
    LegacyBatch,
    NewRecord,
    RecordBatch,
    TimestampType,
    build_batch,
    build_control_batch,
    build_end_txn_marker,
    build_message_set,
    compress,
    cut_batches,
    empty_batch,
    read_batches,
)

T0 = 1_700_000_000_000
CODECS = list(Codec)
LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
CREATE_TIME, APPEND_TIME = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME


def new(key: str | None, value: str | None, time: int = T0, *headers: tuple[str, bytes | None]) -> NewRecord:
    return NewRecord(
        None if key is None else key.encode(),
        None if value is None else value.encode(),
        time,
        tuple(Header(*header) for header in headers),
    )


PLAIN = [
    new("k1", "v1"),
    new(None, "no key", T0 + 5),
    new("no value", None, T0 - 65),
    new(None, None, T0 + 100_000_000),
    new("", "", 0),
    new("ключ", "значение 鍵 🌊", T0 + 1),
    new("k" * 63, "v" * 8192, T0 + 2),
]
WITH_HEADERS = [
    new("k", "v", T0, ("h", b"1"), ("h", b"2"), ("null", None), ("", b""), ("ключ", b"\xff\x00")),
    new(None, "one", T0, ("only", bytes(100))),
    *PLAIN,
]
LARGE = [new("large", "tide " * 60_000), new(None, "a" * 300_000, T0 + 1)]
MANY = [new(f"key {i}", f"value {i} " * (i % 5), T0 + 37 * i) for i in range(1_500)]


# -- logs of ours --------------------------------------------------------------------------------------------------


class Log:
    """A log in the making: batches one behind the other, and what was put into them."""

    def __init__(self, base_offset: int = 0) -> None:
        self.base_offset = self.next_offset = base_offset
        self.data = bytearray()
        self.records: list[JudgedRecord] = []

    def add(
        self, data: bytes | bytearray, records: Iterable[NewRecord] = (), *, magic: int = 2, time: int | None = None
    ) -> None:
        """Bytes, and the records they hold at the next offsets; `time` is that of an append."""
        *_, last = read_batches(bytes(data))
        for offset, record in enumerate(records, self.next_offset):
            timestamp = -1 if magic == 0 else record.timestamp_ms if time is None else time
            headers = tuple((header.key, header.value) for header in record.headers)
            self.records.append(JudgedRecord(offset, timestamp, record.key, record.value, headers))
        self.next_offset = last.next_offset
        self.data += data


def batches(codec: Codec) -> Log:
    log = Log(5)
    for records in (WITH_HEADERS, PLAIN[:1], LARGE, MANY, [new(None, "no time", -1)] * 3):
        log.add(build_batch(records, base_offset=log.next_offset, codec=codec, partition_leader_epoch=3), records)
    return log


def cut(codec: Codec) -> Log:
    log = Log()
    options = {"producer_id": 2**40, "producer_epoch": 3, "base_sequence": 2**31 - 100, "is_transactional": True}
    for data in cut_batches(MANY, batch_size=5_000, codec=codec, **options):
        batch = RecordBatch(data)
        records = MANY[log.next_offset : log.next_offset + batch.count]
        batch.set_last_offset(log.next_offset + batch.count - 1)
        log.add(data, records)
    return log


def append_time(codec: Codec) -> Log:
    log = Log()
    for time in (T0 + 1, 0):
        options = {"codec": codec, "timestamp_type": APPEND_TIME, "log_append_time_ms": time}
        log.add(build_batch(PLAIN, base_offset=log.next_offset, **options), PLAIN, time=time)
    return log


def delete_horizon(codec: Codec) -> Log:
    log = Log()
    log.add(build_batch(PLAIN, codec=codec, delete_horizon_ms=T0 + 86_400_000), PLAIN)
    return log


def columns(codec: Codec) -> Log:
    log = Log(77)
    records = [*WITH_HEADERS, *LARGE, *MANY]
    table = pa.table(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary()),
            "timestamp": pa.array([r.timestamp_ms for r in records], pa.timestamp("ms", "UTC")),
            "headers": pa.array([[h._asdict() for h in r.headers] or None for r in records], HEADERS_TYPE),
        }
    )
    producer = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 2**31 - 3}
    log.add(encode(table, codec=codec, base_offset=77, batch_size=10_000, **producer), records)
    return log


def messages(magic: int, codec: Codec) -> Log:
    log = Log(57)
    for records in (PLAIN, MANY[:100], LARGE):
        log.add(build_message_set(magic, records, codec=codec, base_offset=log.next_offset), records, magic=magic)
    return log


def appended_messages(codec: Codec) -> Log:
    log = Log()
    options = {"timestamp_type": APPEND_TIME, "log_append_time_ms": T0 + 9}
    log.add(build_message_set(1, PLAIN, codec=codec, **options), PLAIN, magic=1, time=T0 + 9)
    return log


def every_format() -> Log:
    log = Log()
    for magic, codec in itertools.product((0, 1), LEGACY_CODECS):
        log.add(build_message_set(magic, PLAIN, codec=codec, base_offset=log.next_offset), PLAIN, magic=magic)
    for codec in CODECS:
        log.add(build_batch(PLAIN, codec=codec, base_offset=log.next_offset), PLAIN)
    return log


def transactions() -> Log:
    log = Log()
    producer = {"producer_id": 1000, "producer_epoch": 2}
    for control_type in (ControlType.COMMIT, ControlType.ABORT):
        options = {"base_sequence": log.next_offset, "is_transactional": True, **producer}
        log.add(build_batch(PLAIN, base_offset=log.next_offset, **options), PLAIN)
        marker = EndTxnMarker(control_type, coordinator_epoch=15)
        record = marker.to_record(T0 + 7)
        log.add(build_end_txn_marker(marker, timestamp_ms=T0 + 7, offset=log.next_offset, **producer), [record])
    return log


def quorum() -> Log:
    log = Log()
    records = [
        (ControlType.SNAPSHOT_HEADER, bytes(11)),
        (ControlType.KRAFT_VERSION, b"\0\0\0\x01\0"),
        (ControlType.SNAPSHOT_FOOTER, bytes(3)),
    ]
    data = build_control_batch(records, timestamp_ms=T0, partition_leader_epoch=4)
    log.add(data, [NewRecord(kind.to_key(), value, T0) for kind, value in records])
    return log


def compacted(codec: Codec) -> Log:
    """Batches with gaps, with a last offset whose record is gone, and with nothing left but a header."""
    log = Log(100)
    builder = BatchBuilder(base_offset=100, codec=codec, producer_id=5, producer_epoch=0, base_sequence=7)
    log.next_offset = 102
    log.add(builder.append(PLAIN[0], offset=102).build(last_offset=109), PLAIN[:1])
    for is_control, timestamp_type in itertools.product((False, True), (CREATE_TIME, APPEND_TIME)):
        log.add(
            empty_batch(
                base_offset=log.next_offset,
                last_offset=log.next_offset + 9,
                max_timestamp_ms=T0,
                partition_leader_epoch=4,
                producer_id=5,
                producer_epoch=0,
                base_sequence=17,
                attributes=BatchAttributes(0, timestamp_type, True, is_control),
            )
        )
    log.add(build_batch(PLAIN, base_offset=log.next_offset, codec=codec), PLAIN)
    return log


LOGS: dict[str, Log] = {
    **{f"batches {codec.label}": batches(codec) for codec in CODECS},
    **{f"cut batches {codec.label}": cut(codec) for codec in CODECS},
    **{f"append time {codec.label}": append_time(codec) for codec in CODECS},
    **{f"delete horizon {codec.label}": delete_horizon(codec) for codec in CODECS},
    **{f"columns {codec.label}": columns(codec) for codec in CODECS},
    **{f"v{magic} {codec.label}": messages(magic, codec) for magic in (0, 1) for codec in LEGACY_CODECS},
    **{f"v1 append time {codec.label}": appended_messages(codec) for codec in LEGACY_CODECS},
    "every format": every_format(),
    "transactions": transactions(),
    "quorum": quorum(),
    **{f"compacted {codec.label}": compacted(codec) for codec in CODECS},
}
every_log = pytest.mark.parametrize("name", LOGS)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The logs as files, under the names that Kafka gives to segments."""
    folder = tmp_path_factory.mktemp("logs")
    files = {}
    for name, log in LOGS.items():
        files[name] = folder / name.replace(" ", "-") / f"{log.base_offset:020}.log"
        files[name].parent.mkdir()
        files[name].write_bytes(log.data)
    return files


@pytest.fixture(scope="module")
def verdicts(paths: Mapping[str, Path]) -> dict[str, Verdict]:
    return dict(zip(paths, judge_files(paths.values()), strict=True))


class Dumps(NamedTuple):
    run: ToolResult
    files: dict[str, DumpedFile]


@pytest.fixture(scope="module")
def dumps(paths: Mapping[str, Path]) -> Dumps:
    run = dump_log(paths.values(), "--deep-iteration", "--print-data-log")
    return Dumps(run, dict(zip(LOGS, parse_dump(run.stdout), strict=True)))


# -- what Kafka calls the fields -----------------------------------------------------------------------------------


def fields_of(batch: Batch, position: int) -> dict[str, Any]:
    """A batch in the words of the judge."""
    return {
        "magic": batch.magic,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.count if isinstance(batch, RecordBatch) else None,  # we count a plain message as one
        "size": batch.size_in_bytes,
        "crc": batch.crc,
        "compression": batch.codec.label,
        "timestampType": batch.timestamp_type.label,
        "maxTimestamp": batch.max_timestamp_ms,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "deleteHorizonMs": batch.delete_horizon_ms,
        "position": position,
    }


def judged_records(batch: Batch) -> list[JudgedRecord]:
    """The records of a batch in the words of the judge."""
    return [
        JudgedRecord(
            record.offset,
            record.timestamp_ms,
            record.key,
            record.value,
            tuple((header.key, header.value) for header in record.headers),
            record.sequence,
            ControlType.parse(record.key).name if batch.is_control else None,
        )
        for record in batch
    ]


def positions(data: bytes | bytearray) -> Iterator[tuple[int, Batch]]:
    position = 0
    for batch in read_batches(bytes(data)):
        yield position, batch
        position += batch.size_in_bytes


def without_batch(record: JudgedRecord) -> JudgedRecord:
    """What a record is by itself; sequence and control type come with its batch."""
    return JudgedRecord(record.offset, record.timestamp, record.key, record.value, record.headers)


# -- Kafka reads what we write -------------------------------------------------------------------------------------


@every_log
def test_kafkas_classes_read_our_batches(name: str, verdicts: Mapping[str, Verdict]) -> None:
    log, verdict = LOGS[name], verdicts[name]
    assert verdict.error is None
    assert verdict.valid_bytes == verdict.size == len(log.data)
    assert [dict(batch.fields) for batch in verdict.batches] == [fields_of(b, p) for p, b in positions(log.data)]
    assert [r for batch in verdict.batches for r in batch.records] == [
        record for _, batch in positions(log.data) for record in judged_records(batch)
    ]
    assert [without_batch(r) for batch in verdict.batches for r in batch.records] == log.records


def gaps(log: Log) -> list[str]:
    """How the tool tells of offsets that do not follow each other; it expects a file to begin at 0."""
    offsets = [-1, *(record.offset for record in log.records)]
    return [f"  {a} is followed by {b}" for a, b in itertools.pairwise(offsets) if b != a + 1]


def test_the_dump_tool_complains_of_nothing_but_gaps(dumps: Dumps, paths: Mapping[str, Path]) -> None:
    told: dict[str, list[str]] = {}
    for line in dumps.run.stderr.splitlines():
        if line.startswith("Non-consecutive offsets in "):
            lines = told.setdefault(line.removeprefix("Non-consecutive offsets in "), [])
        else:
            lines.append(line)
    assert told == {str(paths[name]): gaps(log) for name, log in LOGS.items() if gaps(log)}
    assert dumps.run.exit == 0
    assert gaps(LOGS["every format"]) == gaps(LOGS["transactions"]) == []


@every_log
def test_the_dump_tool_prints_our_batches(name: str, dumps: Dumps) -> None:
    log, dumped = LOGS[name], dumps.files[name]
    assert dumped.notes == [f"Log starting offset: {log.base_offset}"]
    assert {batch.fields["isvalid"] for batch in dumped.batches} == {"true"}
    for batch, (position, ours) in zip(dumped.batches, positions(log.data), strict=True):
        wanted = {
            "position": position,
            "size": ours.size_in_bytes,
            "magic": ours.magic,
            "compresscodec": ours.codec.label,
            "crc": ours.crc,
            ours.timestamp_type.label: ours.max_timestamp_ms,
        }
        if isinstance(ours, RecordBatch):
            horizon = ours.delete_horizon_ms
            wanted |= {
                "baseOffset": ours.base_offset,
                "lastOffset": ours.last_offset,
                "count": ours.count,
                "baseSequence": ours.base_sequence,
                "lastSequence": ours.last_sequence,
                "producerId": ours.producer_id,
                "producerEpoch": ours.producer_epoch,
                "partitionLeaderEpoch": ours.partition_leader_epoch,
                "isTransactional": str(ours.is_transactional).lower(),
                "isControl": str(ours.is_control).lower(),
                "deleteHorizonMs": "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]",
            }
        else:
            wanted["offset"] = ours.last_offset
        assert batch.fields == {key: str(value) for key, value in wanted.items()} | {"isvalid": "true"}


@every_log
def test_the_dump_tool_prints_our_records(name: str, dumps: Dumps) -> None:
    log = LOGS[name]
    dumped = [(batch, record) for batch in dumps.files[name].batches for record in batch.records]
    for (batch, record), wanted in zip(dumped, log.records, strict=True):
        [label] = {"CreateTime", "LogAppendTime", "NoTimestampType"} & batch.fields.keys()
        assert record.fields["offset"] == str(wanted.offset)
        assert record.fields[label] == str(wanted.timestamp)
        assert record.fields["keySize"] == str(-1 if wanted.key is None else len(wanted.key))
        assert record.fields["valueSize"] == str(-1 if wanted.value is None else len(wanted.value))
        assert record.fields.get("headerKeys", "") == ",".join(key for key, _ in wanted.headers)
        assert record.fields.get("isValid", "true") == "true"
        if batch.fields.get("isControl") != "true":
            assert record.key == (None if wanted.key is None else wanted.key.decode())
            assert record.payload == (None if wanted.value is None else wanted.value.decode())


def test_the_dump_tool_names_our_control_records(dumps: Dumps) -> None:
    ends = [
        record.control for batch in dumps.files["transactions"].batches for record in batch.records if record.control
    ]
    assert ends == [f"endTxnMarker: {kind} coordinatorEpoch: 15" for kind in ("COMMIT", "ABORT")]
    quorums = [record.control for record in dumps.files["quorum"].batches[0].records]
    assert [str(text).split(" ", 1)[0] for text in quorums] == ["SnapshotHeader", "KRaftVersion", "SnapshotFooter"]


# -- we read what Kafka writes -------------------------------------------------------------------------------------


def record_specs(records: Iterable[NewRecord], magic: int) -> list[RecordSpec]:
    return [
        {"timestamp": r.timestamp_ms, "key": r.key, "value": r.value, "headers": list(r.headers) if magic == 2 else []}
        for r in records
    ]


class KafkaBatch(NamedTuple):
    """One batch for Kafka to write, and how we would write it."""

    spec: BatchSpec
    records: list[NewRecord]
    ours: Callable[[], bytearray]


def kafka_batches() -> Iterator[tuple[str, KafkaBatch]]:
    for codec in CODECS:
        producers: dict[str, dict[str, Any]] = {
            "": {},
            " idempotent": {"producer_id": 7, "producer_epoch": 1, "base_sequence": 2**31 - 2},
            " transactional": {"producer_id": 7, "producer_epoch": 1, "base_sequence": 0, "is_transactional": True},
        }
        for (who, producer), (what, records) in itertools.product(producers.items(), SHAPES.items()):
            spec: BatchSpec = {
                "compression": codec.label,
                "baseOffset": 12,
                "partitionLeaderEpoch": 5,
                "producerId": producer.get("producer_id", -1),
                "producerEpoch": producer.get("producer_epoch", -1),
                "baseSequence": producer.get("base_sequence", -1),
                "isTransactional": producer.get("is_transactional", False),
                "records": record_specs(records, 2),
            }
            options = {"codec": codec, "base_offset": 12, "partition_leader_epoch": 5, **producer}
            yield f"v2 {codec.label} {what}{who}", KafkaBatch(spec, records, bind(build_batch, records, **options))
        spec = {"compression": codec.label, "deleteHorizonMs": T0 + 99, "records": record_specs(PLAIN, 2)}
        ours = bind(build_batch, PLAIN, codec=codec, delete_horizon_ms=T0 + 99)
        yield f"v2 {codec.label} delete horizon", KafkaBatch(spec, PLAIN, ours)
        stamped: BatchSpec = {
            "timestampType": "LogAppendTime",
            "logAppendTime": T0 + 9,
            "compression": codec.label,
        }
        options = {"codec": codec, "timestamp_type": APPEND_TIME, "log_append_time_ms": T0 + 9}
        records = [record._replace(timestamp_ms=T0 + 9) for record in PLAIN]
        spec = {**stamped, "records": record_specs(PLAIN, 2)}
        yield f"v2 {codec.label} append time", KafkaBatch(spec, records, bind(build_batch, PLAIN, **options))
        if codec is Codec.ZSTD:
            continue
        for magic in (0, 1):
            for what, records in SHAPES.items():
                if what == "headers":
                    continue
                spec = {
                    "magic": magic,
                    "compression": codec.label,
                    "baseOffset": 12,
                    "records": record_specs(records, magic),
                }
                read = records if magic else [record._replace(timestamp_ms=-1) for record in records]
                ours = bind(build_message_set, magic, records, codec=codec, base_offset=12)
                yield f"v{magic} {codec.label} {what}", KafkaBatch(spec, read, ours)
        records = [record._replace(timestamp_ms=T0 + 9) for record in PLAIN]
        spec = {**stamped, "magic": 1, "records": record_specs(PLAIN, 1)}
        ours = bind(build_message_set, 1, records, **options)  # Kafka's builder stamps the messages inside, too
        yield f"v1 {codec.label} append time", KafkaBatch(spec, records, ours)


def bind(function: Callable[..., bytearray], *arguments: Any, **options: Any) -> Callable[[], bytearray]:
    return lambda: function(*arguments, **options)


SHAPES = {
    "one": PLAIN[:1],
    "plain": PLAIN,
    "headers": WITH_HEADERS,
    "large": LARGE,
    "many": MANY,
    "ends of time": [new(None, "v", time) for time in (-1, 2**63 - 1, 0, 2**63 - 1)],
}
KAFKA_BATCHES = dict(kafka_batches())
every_kafka_batch = pytest.mark.parametrize("name", KAFKA_BATCHES)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The batches as Kafka writes them."""
    folder = tmp_path_factory.mktemp("kafka")
    files = {name: folder / f"{index}.log" for index, name in enumerate(KAFKA_BATCHES)}
    judge_write_all({files[name]: [batch.spec] for name, batch in KAFKA_BATCHES.items()})
    return {name: file.read_bytes() for name, file in files.items()}


@every_kafka_batch
def test_we_read_what_kafkas_builder_writes(name: str, written: Mapping[str, bytes]) -> None:
    data, records = written[name], KAFKA_BATCHES[name].records
    base = KAFKA_BATCHES[name].spec.get("baseOffset", 0)
    wanted = [(base + i, r.timestamp_ms, r.key, r.value, r.headers) for i, r in enumerate(records)]
    read = []
    for batch in read_batches(data):
        batch.ensure_valid()
        read += [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in batch]
    assert read == wanted
    rows = []
    for part in decode(data, ["offset", "timestamp", "key", "value", "headers"]):
        columns = [(c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c).to_pylist() for c in part.columns]
        for *row, headers in zip(*columns, strict=True):
            rows.append((*row, tuple(Header(h["key"], h["value"]) for h in headers or ())))
    assert rows == wanted


@every_kafka_batch
def test_kafkas_builder_writes_our_bytes(name: str, written: Mapping[str, bytes]) -> None:
    """The same bytes, or where a codec is between, the same bytes before compression under the same header."""
    ours = bytes(KAFKA_BATCHES[name].ours())
    for kafkas, mine in zip(read_batches(written[name]), read_batches(ours), strict=True):
        if kafkas.codec is Codec.NONE:
            assert kafkas.buffer == mine.buffer
            continue
        assert kafkas.records_bytes() == mine.records_bytes()
        unlike = {"size", "crc"}
        assert without(fields_of(kafkas, 0), unlike) == without(fields_of(mine, 0), unlike)
        if isinstance(kafkas, RecordBatch) and isinstance(mine, RecordBatch):
            by_codec = {"batch_length": 0, "crc": 0}
            assert kafkas.header._replace(**by_codec) == mine.header._replace(**by_codec)


def without(fields: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


# -- what a broker stamps ------------------------------------------------------------------------------------------


def resealed(data: bytes | bytearray, attributes: int) -> bytes:
    """A version 2 batch with other attribute bits."""
    batch = RecordBatch(data)
    return bytes(batch.header._replace(attributes=attributes).seal(bytes(batch.buffer[BATCH_HEADER_SIZE:])))


def unstamped() -> dict[str, bytes]:
    plain = build_batch(PLAIN)
    kinds = {f"v2 {codec.label}": bytes(build_batch(PLAIN, codec=codec, base_offset=9)) for codec in CODECS}
    for bits in (0x10, 0x20, 0x40, 0x70, 0x80, 0x0100, 0x7F80, 0x00FF & ~0x07, -0x8000):
        kinds[f"v2 attributes {bits:#x}"] = resealed(plain, bits)
    appended = build_batch(PLAIN, timestamp_type=APPEND_TIME, log_append_time_ms=T0)
    kinds["v2 append time"] = bytes(appended)
    kinds["v2 append time, unknown bits"] = resealed(appended, 0x7F88)
    kinds["v2 empty"] = bytes(empty_batch(base_offset=0, last_offset=9, max_timestamp_ms=T0))
    kinds["v2 two batches"] = bytes(plain + appended)
    for codec in LEGACY_CODECS:
        kinds[f"v1 {codec.label}"] = bytes(build_message_set(1, PLAIN, codec=codec))
    return kinds


STAMPS: dict[str, Stamp] = {
    "last offset": {"lastOffset": 500},
    "last offset below the delta": {"lastOffset": 0},
    "create time": {"timestampType": "CreateTime", "maxTimestamp": T0 + 77},
    "append time": {"timestampType": "LogAppendTime", "maxTimestamp": T0 + 77},
    "append time as it is": {"timestampType": "LogAppendTime", "maxTimestamp": T0},
    "create time as it is": {"timestampType": "CreateTime", "maxTimestamp": T0 + 100_000_000},
    "no time": {"timestampType": "LogAppendTime", "maxTimestamp": -1},
}
EPOCH: Stamp = {"leaderEpoch": 500}
ALL: Stamp = {"lastOffset": 1_000, "leaderEpoch": 7, "timestampType": "LogAppendTime", "maxTimestamp": T0 + 1}


def stamp(data: bytes, values: Stamp) -> bytes:
    """The setters of ours, in the order of the judge's."""
    log = bytearray(data)
    for batch in read_batches(log):
        if "lastOffset" in values:
            batch.set_last_offset(values["lastOffset"])
        if "leaderEpoch" in values:
            batch.set_partition_leader_epoch(values["leaderEpoch"])
        if "timestampType" in values:
            kind = APPEND_TIME if values["timestampType"] == "LogAppendTime" else CREATE_TIME
            batch.set_max_timestamp(kind, values["maxTimestamp"])
    return bytes(log)


def test_kafka_stamps_the_bytes_that_we_stamp(tmp_path: Path) -> None:
    """Attribute bits without a name are cleared by a new time, there and here, and kept where nothing changes."""
    cases: dict[Path, tuple[str, bytes, Stamp]] = {}
    for kind, data in unstamped().items():
        stamps = {**STAMPS, "epoch": EPOCH, "all": ALL} if kind.startswith("v2") else STAMPS
        for name, values in stamps.items():
            path = tmp_path / f"{len(cases)}.log"
            path.write_bytes(data)
            cases[path] = (f"{kind}, {name}", data, values)
    judge_stamp({path: values for path, (_, _, values) in cases.items()})
    for path, (name, data, values) in cases.items():
        assert (name, path.read_bytes().hex()) == (name, stamp(data, values).hex())
    assert len(cases) > 180


# -- damaged batches -----------------------------------------------------------------------------------------------

DAMAGED = 1_200


def damage(rng: random.Random, data: bytes | bytearray | memoryview, first: int = 0) -> bytearray:
    """One to three changes at or after `first`: bits, bytes, things gone and things put in."""
    damaged = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if len(damaged) <= first:
            break
        place = rng.randrange(first, len(damaged))
        match rng.randrange(6):
            case 0:
                damaged[place] ^= 1 << rng.randrange(8)
            case 1 | 2:
                damaged[place] = rng.choice([0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)])
            case 3:
                del damaged[place : place + rng.randrange(1, 4)]
            case 4:
                damaged[place:place] = bytes(rng.choices([0, 1, 2, 0x80, 0xFF], k=rng.randrange(1, 4)))
            case _:
                damaged += rng.randbytes(rng.randrange(1, 4))
    return damaged


SMALL = [
    new("k", "v", T0, ("h", b"1"), ("name", None)),
    new(None, "value", T0 + 70),
    new("key", None, T0 - 1),
    new("", "", T0, ("", b"")),
]


def damaged_batch(rng: random.Random) -> bytes:
    """A version 2 batch with a right checksum whose records, stream or header were changed before it was computed."""
    codec = rng.choice(CODECS)
    control = rng.random() < 0.15
    if control:
        sound = RecordBatch(
            build_end_txn_marker(EndTxnMarker(ControlType.COMMIT, 5), producer_id=1, producer_epoch=0, timestamp_ms=T0)
        )
    else:
        options = {"producer_id": 1, "producer_epoch": 0, "base_sequence": rng.choice([0, 2**31 - 2])}
        sound = RecordBatch(build_batch(SMALL, base_offset=5, **(options if rng.random() < 0.5 else {})))
    header = sound.header._replace(attributes=sound.header.attributes | codec)
    body = bytes(sound.records_bytes())
    where = rng.randrange(10)
    if where < 6:
        body = bytes(damage(rng, body))
    stream = compress(codec, body)
    if where in (6, 7):
        stream = bytes(damage(rng, stream))
    if where >= 8 or rng.random() < 0.1:
        name = rng.choice(
            ["attributes", "last_offset_delta", "base_timestamp_ms", "base_offset", "base_sequence", "records_count"]
        )
        values = {
            "attributes": rng.randrange(-(2**15), 2**15),
            "records_count": rng.choice([-1, 0, 1, 2, 3, 5, 1000, -(2**31)]),
            "base_offset": rng.choice([-1, 2**63 - 2, -(2**63)]),
            "base_timestamp_ms": rng.choice([-1, -2, 2**63 - 2, -(2**63)]),
        }
        header = header._replace(
            **{name: values.get(name, rng.choice([-1, 0, -(2**31), 2**31 - 1, rng.randrange(2**31)]))}
        )
    return bytes(header.seal(stream))


def with_crc(entry: bytes | bytearray) -> bytearray:
    """A legacy entry with the size and the checksum that belong to it, as far as it is long enough."""
    entry = bytearray(entry)
    if len(entry) >= 26:
        struct.pack_into(">i", entry, 8, len(entry) - 12)
        struct.pack_into(">I", entry, 12, LegacyBatch(entry).compute_crc())
    return entry


def damaged_message(rng: random.Random) -> bytes:
    """A legacy entry with a right checksum: a plain message changed, or a wrapper, its stream or what it wraps."""
    magic, codec = rng.choice([0, 1]), rng.choice(LEGACY_CODECS)
    records = [record._replace(headers=()) for record in SMALL]
    if codec is Codec.NONE:
        return bytes(
            with_crc(damage(rng, build_message_set(magic, records[:1], base_offset=5), first=rng.choice([16, 18])))
        )
    sound = LegacyBatch(build_message_set(magic, records, base_offset=5, codec=codec))
    entries = [bytearray(inner.buffer) for inner in sound.inner_messages()]
    index = rng.randrange(len(entries))
    match rng.randrange(8):
        case 0 | 1:
            entries[index] = with_crc(damage(rng, entries[index], first=16))
        case 2:
            entries[index] = damage(rng, entries[index])  # and its own checksum no longer holds
        case 3:
            del entries[rng.randrange(len(entries)) :]
        case 4:
            struct.pack_into(">q", entries[index], 0, rng.choice([-1, 0, 1, 5, 1000, 2**62, -(2**63)]))
        case 5:
            entries[index] = bytearray(build_message_set(1 - magic, records[:1]))
    inner = b"".join(entries)
    if rng.random() < 0.1:
        inner = bytes(damage(rng, inner))
    stream = compress(codec, inner, magic=magic)
    if rng.random() < 0.15:
        stream = bytes(damage(rng, stream))
    head = bytearray(sound.buffer[: 12 + (10 if magic == 0 else 18)])
    if rng.random() < 0.4:
        struct.pack_into(">q", head, 0, rng.choice([0, 0, 1, 2, 3, 8, 2**40, -1]))
    if rng.random() < 0.05:
        head[17] = rng.randrange(256)
    return bytes(with_crc(head + struct.pack(">i", len(stream)) + stream))


Told = list[tuple[dict[str, Any], list[JudgedRecord]]]


def told_by_us(data: bytes) -> Told:
    """Everything that the judge tells of a file, or an error. Checksums inside wrappers are verified, as it does."""
    told = []
    for position, batch in positions(data):
        batch.ensure_valid()
        records = judged_records(batch)
        if isinstance(batch, LegacyBatch) and batch.codec is not Codec.NONE:
            for inner in batch.inner_messages():
                inner.ensure_valid()
        told.append((fields_of(batch, position), records))
    return told


def has_mixed_magic(data: bytes) -> bool:
    """We refuse a wrapper around messages of another magic, as a broker does on append; Kafka's reader takes it."""
    for batch in read_batches(data):
        if isinstance(batch, LegacyBatch) and batch.codec is not Codec.NONE:
            return any(inner.magic != batch.magic for inner in batch.inner_messages())
    return False


# Where Kafka accepts and we refuse, by name.
STRICTER = {"a wrapper around another magic": has_mixed_magic}


def test_damaged_batches_are_accepted_and_refused_alike(tmp_path: Path) -> None:
    rng = random.Random(20)
    cases = {}
    for index in range(DAMAGED):
        data = damaged_batch(rng) if index % 2 else damaged_message(rng)
        path = tmp_path / f"{index}.log"
        path.write_bytes(data)
        cases[path] = data
    counts: Counter[str] = Counter()
    for verdict in judge_files(cases):
        data = cases[verdict.path]
        kafkas = [(dict(batch.fields), list(batch.records)) for batch in verdict.batches]
        try:
            ours: Told | TidelogError = told_by_us(data)
        except TidelogError as error:
            ours = error
        where = f"{data.hex()}\nKafka: {verdict.error or kafkas}\nwe: {ours!r}"
        if isinstance(ours, TidelogError) and verdict.error is None and kafkas:
            why = next((name for name, explains in STRICTER.items() if explains(data)), None)
            assert why, where
            counts[why] += 1
        elif isinstance(ours, TidelogError):
            assert verdict.error is not None, where
            counts["refused"] += 1
        else:
            assert (verdict.error, kafkas) == (None, ours), where
            counts["accepted"] += 1
    assert counts["accepted"] > 0.2 * DAMAGED, counts
    assert counts["refused"] > 0.2 * DAMAGED, counts


def test_the_place_where_we_are_stricter_is_real(tmp_path: Path) -> None:
    stream = compress(Codec.GZIP, build_message_set(0, PLAIN[:1], base_offset=5))
    outer = build_message_set(1, PLAIN[:1], codec=Codec.GZIP, base_offset=5)
    mixed = bytes(with_crc(outer[:30] + struct.pack(">i", len(stream)) + stream))
    path = tmp_path / "mixed.log"
    path.write_bytes(mixed)
    [verdict] = judge_files([path])
    assert verdict.error is None
    assert [record.key for batch in verdict.batches for record in batch.records] == [b"k1"]
    assert has_mixed_magic(mixed)
    with pytest.raises(TidelogError, match="magic 0 inside a wrapper of magic 1"):
        told_by_us(mixed)


# -- names of headers ----------------------------------------------------------------------------------------------


def broken_names(count: int) -> Iterator[bytes]:
    """Text of all lengths in UTF-8, with bytes put in and ends cut off."""
    rng = random.Random(4)
    strange = [0x80, 0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xA0, 0xF0, 0xF4, 0xF8, 0xFF]
    for _ in range(count):
        name = bytearray(
            "".join(rng.choices(["a", "\x7f", "é", "\u07ff", "\u0800", "鍵", "\uffff", "🌊"], k=3)).encode()
        )
        for _ in range(rng.randrange(4)):
            if rng.random() < 0.3:
                del name[rng.randrange(len(name)) + 1 :]
            else:
                name.insert(rng.randrange(len(name) + 1), rng.choice(strange))
        yield bytes(name)


def test_broken_names_of_headers_are_read_as_java_reads_them(tmp_path: Path) -> None:
    names = list(broken_names(1_500))
    body = bytearray()
    for name in names:  # length, attributes, two deltas, null, null, one header: its name, null
        record = bytes([0, 0, 0, 1, 1, 2, 2 * len(name)]) + name + b"\x01"
        assert len(record) < 64
        body += bytes([2 * len(record)]) + record
    header = RecordBatch(build_batch(PLAIN)).header
    data = bytes(header._replace(records_count=len(names)).seal(body))
    path = tmp_path / "names.log"
    path.write_bytes(data)
    [verdict] = judge_files([path])
    assert verdict.error is None
    by_java = [record.headers[0][0] for record in verdict.batches[0].records]
    assert by_java == [record.headers[0].key for record in RecordBatch(data)]
    assert by_java == [row["headers"][0]["key"] for rows in decode(data, ["headers"]) for row in rows.to_pylist()]
    assert sum("�" in name for name in by_java) > 500
