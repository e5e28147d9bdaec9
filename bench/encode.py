"""Arrow to batches: against aiokafka's compiled builder and our readable path; with every codec."""

from functools import partial

from bench import others, shapes
from bench.measure import MEGA, Report, cpu_seconds
from tidelog.columns import ColumnEncoder
from tidelog.records import Codec, NewRecord, cut_batches


def _encode(name: str, rows: int, codec: Codec = Codec.NONE) -> int:
    encoder = ColumnEncoder(batch_size=shapes.SHAPES[name].batch_size, codec=codec, base_offset=None)
    return sum(len(part.data) for part in encoder.encode(shapes.table(name, rows)))


def run(report: Report) -> None:
    """Encode rows."""
    for name in shapes.SHAPES:
        rows = shapes.SHAPES[name].rows // 2
        size = _encode(name, rows)
        report.add_speed(f"encode {name}", partial(_encode, name, rows), size)
    rows = 200_000
    ours = cpu_seconds(lambda: _encode("a", rows), runs=9) / rows
    table = shapes.table("a", rows)
    tuples = list(zip(*(table.column(name).to_pylist() for name in ("key", "value", "timestamp")), strict=True))
    theirs = cpu_seconds(lambda: others.aiokafka_from_rows(tuples, 16_384), runs=3) / rows
    report.add("encode a against aiokafka", 1 / ours / MEGA, "Mrec/s", at_least=8,
               against=f"aiokafka's builder ({1 / theirs / MEGA:.2g} Mrec/s)", ratio=theirs / ours)  # fmt: skip
    few = [NewRecord(*row) for row in tuples[:30_000]]
    readable = cpu_seconds(lambda: sum(len(batch) for batch in cut_batches(few)), runs=3) / len(few)
    report.add("encode a against tidelog.records", 1 / ours / MEGA, "Mrec/s",
               against=f"tidelog.records ({1 / readable / MEGA:.2g} Mrec/s)", ratio=readable / ours)  # fmt: skip
    for codec in (Codec.LZ4, Codec.SNAPPY, Codec.ZSTD, Codec.GZIP):
        size = _encode("a", 100_000)
        seconds = cpu_seconds(lambda codec=codec: _encode("a", 100_000, codec), runs=3)
        report.add(f"encode a, {codec.label}", size / seconds / MEGA, "MB/s")
