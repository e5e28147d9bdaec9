"""Headers only, headers with checksums, one batch for a broker, partitions of keys."""

from functools import partial

import pyarrow as pa

from bench import shapes
from bench.measure import GIGA, MEGA, Report, cpu_seconds
from tidelog.columns import partition_for_keys
from tidelog.kernels.headers import scan_headers
from tidelog.kernels.validate import validate_batch
from tidelog.records import Codec, RecordBatch, read_batches


def run(report: Report) -> None:
    """Scan and validate rows."""
    for name in ("a", "b", "real"):
        data = shapes.log(name)
        verified = partial(scan_headers, data, verify=True)
        report.add_speed(f"scan {name} with checksums", verified, len(data), at_least=0.5)
        seconds = cpu_seconds(lambda data=data: scan_headers(data), runs=9)
        report.add(f"scan {name}, headers only", len(data) / seconds / GIGA, "GB/s")
    _validation(report)
    _partitions(report)


def _validation(report: Report) -> None:
    for codec in (Codec.NONE, Codec.LZ4):
        batch = memoryview(next(iter(read_batches(shapes.log("a", codec, 10_000)))).buffer)
        seconds = cpu_seconds(lambda batch=batch: [validate_batch(batch) for _ in range(2000)]) / 2000
        readable = cpu_seconds(lambda batch=batch: [_validate_readable(batch) for _ in range(50)], runs=3) / 50
        limit = 8.0 if codec is Codec.NONE else None
        report.add(f"validate one 16 KiB batch, {codec.label}", seconds * MEGA, "us", at_most=limit)
        report.add(f"validate against tidelog.records, {codec.label}", readable * MEGA, "us",
                   against="validate", ratio=readable / seconds)  # fmt: skip


def _validate_readable(data: memoryview) -> int:
    batch = RecordBatch(data)
    batch.ensure_valid()
    return max(record.timestamp_ms for record in batch)


def _partitions(report: Report) -> None:
    keys = pa.concat_arrays(shapes.table("a").column("key").chunks)
    seconds = cpu_seconds(lambda: partition_for_keys(keys, 48))
    report.add("partition of 10 B keys (murmur2)", len(keys) / seconds / MEGA, "Mkey/s")
