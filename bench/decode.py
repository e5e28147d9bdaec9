"""Batches to Arrow: against memory speed, against other readers, against our readable path; with every codec."""

import tempfile
from functools import partial
from pathlib import Path

from bench import others, shapes
from bench.measure import MEGA, Report, cpu_seconds
from tidelog.columns import ColumnDecoder, decode_file
from tidelog.records import Codec, read_batches

SEVEN = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
CONSTANTS = {"topic": "t", "partition": 0}


def rows_of_file(path: Path, columns: list[str]) -> int:
    """Open, read in chunks, compare checksums, make RecordBatches; rows made. This is what a scan does."""
    return sum(batch.num_rows for batch in decode_file(path, columns, constants=CONSTANTS))


def _readable(data: bytes) -> int:
    rows = 0
    for batch in read_batches(data):
        batch.ensure_valid()
        for _ in batch:
            rows += 1
    return rows


def decode_bytes(data: bytes, columns: list[str]) -> int:
    """The same from memory."""
    decoder = ColumnDecoder(columns, constants=CONSTANTS)
    return sum(batch.num_rows for batch in decoder.decode(data))


def run(report: Report) -> None:
    """Decode rows."""
    for name, columns, goal in (
        ("a", SEVEN, 0.22),
        ("b", SEVEN, 0.30),
        ("c", SEVEN, 0.11),
        ("d", SEVEN, None),
        ("d", [*SEVEN, "headers"], None),
        ("real", SEVEN, None),
    ):
        data = shapes.log(name)
        title = f"decode {name}, {len(columns)} columns"
        seconds = report.add_speed(title, partial(decode_bytes, data, columns), len(data), at_least=goal)
        report.add(f"{title}, records", decode_bytes(data, columns) / seconds / MEGA, "Mrec/s")
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            report.add_speed(f"{title}, from a cached file", partial(rows_of_file, Path(file.name), columns), len(data))
    _against_others(report)
    _codecs(report)


def _against_others(report: Report) -> None:
    data = shapes.log("a", rows=200_000)
    ours = cpu_seconds(lambda: decode_bytes(data, SEVEN), runs=15) / 200_000
    for label, reader, count, goal in (
        ("aiokafka", others.aiokafka_to_arrow, 200_000, 12),
        ("kafka-python", others.kafka_python_to_arrow, 50_000, None),
        ("tidelog.records, objects only", _readable, 50_000, None),
    ):
        part = shapes.log("a", rows=count)
        theirs = cpu_seconds(lambda reader=reader, part=part: reader(part), runs=3) / count
        report.add(f"decode a against {label}", 1 / ours / MEGA, "Mrec/s",
                   against=f"{label} ({1 / theirs / MEGA:.2g} Mrec/s)", ratio=theirs / ours, at_least=goal)  # fmt: skip


def _codecs(report: Report) -> None:
    rows = 600_000
    plain = len(shapes.log("a", rows=rows))
    for codec in (Codec.LZ4, Codec.SNAPPY, Codec.ZSTD, Codec.GZIP):
        data = shapes.log("a", codec, rows)
        decoder = ColumnDecoder(SEVEN, constants=CONSTANTS)
        seconds = cpu_seconds(lambda data=data, decoder=decoder: sum(b.num_rows for b in decoder.decode(data)))
        few = shapes.log("a", codec, 30_000)
        readable = cpu_seconds(lambda few=few: _readable(few), runs=3) * rows / 30_000
        name = f"decode a, {codec.label} (x{plain / len(data):.1f})"
        report.add(name, rows / seconds / MEGA, "Mrec/s", against="tidelog.records", ratio=readable / seconds)
        report.add(f"{name}, decompressed", plain / seconds / MEGA, "MB/s")
