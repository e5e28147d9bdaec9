"""Logs to measure with: the shapes of records that users have, as bytes and as Arrow tables.

a  10 B key, 100 B value, 16 KB batches        c  10 B key, 10 B value, 100 KB batches
b  10 B key, 1 KB value, 16 KB batches         d  a with two headers
real  batches that Java producers, librdkafka and a broker wrote with Kafka 4.3 (the golden corpus), repeated
"""

import random
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from tests.golden import corpus
from tidelog.columns import ColumnEncoder
from tidelog.columns.schema import HEADERS_TYPE
from tidelog.records import Codec, RecordBatch, read_batches

_KEYS = 100_000
_START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Shape:
    name: str
    value_size: int
    rows: int
    batch_size: int
    has_headers: bool = False


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("a", 100, 1_500_000, 16_384),
        Shape("b", 1024, 180_000, 16_384),
        Shape("c", 10, 3_000_000, 100_000),
        Shape("d", 100, 1_000_000, 16_384, has_headers=True),
    )
}


@cache
def table(name: str, rows: int | None = None) -> pa.Table:
    """Rows of a shape: JSON-like values, keys from 100,000, timestamps that hardly ever go back."""
    shape = SHAPES[name]
    rows = rows or shape.rows
    chance = random.Random(7)
    keys, values, times, now = [], [], [], _START_MS
    for _ in range(min(rows, 200_000)):  # then repeated: making more would take longer than measuring
        keys.append(b"key-%06d" % chance.randrange(_KEYS))
        text = b'{"id":%d,"name":"%x","amount":%d,"note":"' % (
            chance.randrange(10**6),
            chance.getrandbits(64),
            chance.randrange(10**4),
        )
        values.append((text + b"lorem ipsum dolor sit amet " * (shape.value_size // 27 + 1))[: shape.value_size])
        now += chance.randint(0, 2)
        times.append(now)
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(times, pa.int64()),
    }
    if shape.has_headers:
        headers = [{"key": "trace-id", "value": b"0123456789ab"}, {"key": "origin-x", "value": b"ba9876543210"}]
        columns["headers"] = pa.array([headers] * len(keys), HEADERS_TYPE)
    part = pa.table(columns)
    return pa.concat_tables([part] * -(-rows // len(keys))).slice(0, rows)


@cache
def log(name: str, codec: Codec = Codec.NONE, rows: int | None = None) -> bytes:
    """The same rows as a log."""
    if name == "real":
        return _real()
    encoder = ColumnEncoder(batch_size=SHAPES[name].batch_size, codec=codec, base_offset=0, partition_leader_epoch=0)
    return b"".join(part.data for part in encoder.encode(table(name, rows)))


def _real() -> bytes:
    """Every batch of the codec case: three producers, five codecs, batches from some bytes to more than 64 KiB."""
    once = b"".join(
        bytes(batch.buffer)
        for partition in corpus.partitions("kafka-4.3/1-codecs")
        for batch in read_batches(partition.read())
        if isinstance(batch, RecordBatch)
    )
    return once * (100_000_000 // len(once))
