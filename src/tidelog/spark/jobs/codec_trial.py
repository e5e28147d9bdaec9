"""What codecs and batch sizes would make of a topic, measured on some of its records.

Records are put into batches of a few sizes and compressed with every codec, as a producer would, then read again. Bytes
are what they are; times are those of this machine, one core, and of this package's codecs.
"""

import json
import math
import time
from collections import Counter
from typing import NamedTuple

import pyarrow as pa

from tidelog.columns.decoder import ColumnDecoder
from tidelog.columns.encoder import ColumnEncoder
from tidelog.records.compression import Codec

__all__ = ["BATCH_SIZES", "SAMPLE_BYTES", "CodecTrial", "Measured", "kinds_of", "nearest_size", "try_codecs"]

SAMPLE_BYTES = 1 << 20  # of a piece
BATCH_SIZES = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18)
_COLUMNS = ("key", "value", "timestamp")
_WARM_UP_ROWS = 50
_LOOKED_AT = 200  # values whose kind is guessed
_REGISTRY_PREFIX = 5  # a zero and the id of a schema


class Measured(NamedTuple):
    """One codec with one batch size: bytes that came out, and processor seconds for there and back."""

    size: int = 0
    write_s: float = 0.0
    read_s: float = 0.0

    def plus(self, other: "Measured") -> "Measured":
        return Measured(self.size + other.size, self.write_s + other.write_s, self.read_s + other.read_s)


class CodecTrial:
    """Measurements of a topic. They can be merged."""

    def __init__(self) -> None:
        self.records = 0
        self.plain = 0  # bytes of keys and values
        self.measured: dict[tuple[str, int], Measured] = {}
        self.kinds: Counter[str] = Counter()  # of values: json, text, bytes...

    def merge(self, other: "CodecTrial") -> "CodecTrial":
        """Add other measurements."""
        self.records += other.records
        self.plain += other.plain
        for key, value in other.measured.items():
            self.measured[key] = self.measured.get(key, Measured()).plus(value)
        self.kinds += other.kinds
        return self

    def of(self, codec: str, batch_size: int) -> Measured:
        """The measurement of a codec with the batch size nearest to one."""
        return self.measured[codec, nearest_size(batch_size)]


def nearest_size(batch_size: float) -> int:
    """The batch size among those that are tried that another one is nearest to.

    >>> nearest_size(1_400), nearest_size(20_000)
    (1024, 16384)
    """
    return min(BATCH_SIZES, key=lambda size: abs(math.log(size / max(batch_size, 1))))


def try_codecs(rows: pa.RecordBatch) -> CodecTrial:
    """Measure what codecs make of some rows: as many as make up a sample, from the first on."""
    trial = CodecTrial()
    sample = _sample(rows)
    trial.records = sample.num_rows
    trial.plain = sum(_bytes_in(sample.column(name)) for name in ("key", "value"))
    trial.kinds = kinds_of(sample.column("value"))
    for codec in Codec:
        _measured(sample.slice(0, _WARM_UP_ROWS), codec, BATCH_SIZES[0])  # what is loaded at first use is not its speed
        for size in BATCH_SIZES:
            trial.measured[codec.name.lower(), size] = _measured(sample, codec, size)
    return trial


def _measured(rows: pa.RecordBatch, codec: Codec, batch_size: int) -> Measured:
    begun = time.thread_time()
    encoder = ColumnEncoder(codec=codec, batch_size=batch_size, any_time=True)
    data = b"".join(part.data for part in encoder.encode(rows))
    written = time.thread_time()
    for _ in ColumnDecoder(["key", "value"]).decode(data):
        pass
    return Measured(len(data), written - begun, time.thread_time() - written)


def _sample(rows: pa.RecordBatch) -> pa.RecordBatch:
    sample = rows.select([name for name in _COLUMNS if name in rows.schema.names])
    size = sum(_bytes_in(sample.column(name)) for name in ("key", "value"))
    if size > SAMPLE_BYTES:
        sample = sample.slice(0, max(sample.num_rows * SAMPLE_BYTES // size, 1))
    return sample


def _bytes_in(column: pa.Array) -> int:
    import pyarrow.compute as pc

    return pc.sum(pc.binary_length(column)).as_py() or 0


def kinds_of(values: pa.Array) -> Counter[str]:
    """What some values look like.

    >>> kinds_of(pa.array([b'{"a":1}', b"hello", b"\\xff\\xfe", None], pa.binary())) == Counter(
    ...     {"json": 1, "text": 1, "bytes": 1, "null": 1}
    ... )
    True
    """
    step = max(len(values) // _LOOKED_AT, 1)
    return Counter(_kind(value) for value in values.take(pa.array(range(0, len(values), step))).to_pylist())


def _kind(value: bytes | None) -> str:
    if value is None:
        return "null"
    if not value:
        return "empty"
    if len(value) > _REGISTRY_PREFIX and value[0] == 0:
        return f"schema registry, id {int.from_bytes(value[1:_REGISTRY_PREFIX], 'big')}"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "bytes"
    if text[:1] in "{[":
        try:
            json.loads(text)
        except ValueError:
            return "text"
        return "json"
    return "text" if text.isprintable() or text.isspace() or text.replace("\n", " ").isprintable() else "bytes"
