"""Damaged tables of every format read as `tidelog load` reads them: rows, or an error of ours, within a memory limit.

The damage knows the formats. In Arrow and Parquet files whole 32-bit and 64-bit words are replaced, since lengths,
offsets and counts are such words. In CSV and JSON Lines tokens are doubled, nested, cut and exchanged. What
is read goes through the encoder, so that a kernel follows every offset.

    run(seed, cases)    judges cases; the first that ends otherwise is raised with what is needed to see it again
"""

import io
import json
import random
import resource
import struct
import tempfile
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
from pyarrow import ipc, parquet

from tidelog.columns import encode, partition_for_keys
from tidelog.columns.schema import HEADERS_TYPE
from tidelog.errors import InvalidRequestError, StorageError
from tidelog.tables.reading import read_table

_MEMORY_BYTES = 1 << 30  # above what the process has when it begins
_WORDS = (0, 1, 2, 7, 8, 255, 4_096, 65_535, 1 << 20, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
_TOKENS = (
    b'"', b",", b"\n", b"\r", b"\x00", b"\xff", b"\\", b"base64:", b"base64:=", b"[" * 3_000, b'{"a":' * 3_000, b"{}",
    b"null", b"NaN", b"1e999", b"9" * 5_000, b"-1", b'{"base64": "/w="}', b'{"base64": 1}',
    b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\\ud800", b"headers", b"timestamp", b"2026-11-01T08:00:00Z", b"0001-01-01",
    b"9999999999-01-01", b"9223372036854775808",
)  # fmt: skip


def run(seed: int, cases: int) -> Counter[str]:
    """Judge cases of a seed, counted by format and by what became of them. The memory of this process is limited."""
    sources = {form: make() for form, make in _MAKERS.items()}
    next(iter(_read_all(sources["arrow"], "arrow")))  # everything that a reading needs is loaded before the limit
    _limit_memory()
    outcomes: Counter[str] = Counter()
    for case in range(cases):
        rng = random.Random(f"{seed}/{case}")
        form = rng.choice(list(sources))
        damaged = _damaged(rng, sources[form], form)
        try:
            rows = _read_all(damaged, form)
            outcomes[f"{form}-read" if sum(rows) else f"{form}-empty"] += 1
        except (InvalidRequestError, StorageError) as error:
            outcomes[f"{form}-rejected" if str(error) else f"{form}-wordless"] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}, case {case}, {form}: {type(error).__name__}: {error}") from error
    return outcomes


def _limit_memory() -> None:
    with open("/proc/self/statm") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _read_all(data: bytes, form: str) -> list[int]:
    with tempfile.NamedTemporaryFile(suffix=f".{form}") as file:
        file.write(data)
        file.flush()
        rows = []
        for batch in read_table(file.name):
            stored = [name for name in batch.schema.names if name != "partition"]
            if stored:
                encode(batch.select(stored))
            if "key" in stored and not pa.types.is_null(batch.schema.field("key").type):
                partition_for_keys(batch.column("key"), 12)
            rows.append(batch.num_rows)
        return rows


# -- tables --------------------------------------------------------------------------------------------------------

_ROWS = 40


def _table() -> pa.Table:
    headers = [
        None if row % 3 else [{"key": "h", "value": b"v" * row}, {"key": "i", "value": None}] for row in range(_ROWS)
    ]
    return pa.table(
        {
            "key": pa.array([None if row % 5 == 0 else f"key{row}".encode() for row in range(_ROWS)]),
            "value": pa.array([f"value {row}" for row in range(_ROWS)]).dictionary_encode(),
            "partition": pa.array([row % 4 for row in range(_ROWS)], pa.int32()),
            "timestamp": pa.array(range(_ROWS), pa.timestamp("ms", "UTC")),
            "headers": pa.array(headers, HEADERS_TYPE),
        }
    )


def _arrow(compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    with ipc.new_file(sink, _table().schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(_table(), 15)
    return sink.getvalue()


def _parquet() -> bytes:
    sink = io.BytesIO()
    parquet.write_table(_table(), sink, row_group_size=15, compression="none")
    return sink.getvalue()


def _csv() -> bytes:
    lines = ["key,value,partition,timestamp,headers"]
    lines += [f'k{row},"v,""{row}",{row % 4},{row},"[{{""key"":""h"",""value"":""v""}}]"' for row in range(_ROWS)]
    return "\n".join(lines).encode()


def _jsonl() -> bytes:
    rows = (
        {"key": f"k{row}", "value": {"base64": "/w=="}, "partition": row % 4, "timestamp": row,
         "headers": [{"key": "h", "value": "v"}]}
        for row in range(_ROWS)
    )  # fmt: skip
    return "\n".join(map(json.dumps, rows)).encode()


_MAKERS: dict[str, Callable[[], bytes]] = {
    "arrow": _arrow,
    "feather": lambda: _arrow("lz4"),
    "parquet": _parquet,
    "csv": _csv,
    "jsonl": _jsonl,
}


# -- damage --------------------------------------------------------------------------------------------------------


def _damaged(rng: random.Random, data: bytes, form: str) -> bytes:
    harm = _harm_text if form in ("csv", "jsonl") else _harm_words
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = harm(rng, data)
    return data


def _harm_words(rng: random.Random, data: bytes) -> bytes:
    deed = rng.randrange(10)
    place = rng.randrange(max(len(data) - 8, 1))
    if deed < 7:
        wide = rng.random() < 0.4
        place -= place % 4
        size, form = (8, "<Q") if wide else (4, "<I")
        old = data[place : place + size]
        if len(old) < size:
            return data
        value = (
            rng.choice(_WORDS) if rng.random() < 0.5 else struct.unpack(form, old)[0] + rng.choice((-8, -1, 1, 8, 64))
        )
        return data[:place] + struct.pack(form, value % (1 << 8 * size)) + data[place + size :]
    if deed == 7:
        return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
    if deed == 8:
        return data[:place] + data[place + rng.choice((1, 4, 8, 64)) :]
    other = rng.randrange(max(len(data) - 64, 1))
    return data[:place] + data[other : other + 64] + data[place + 64 :]


def _harm_text(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data) + 1)
    deed = rng.randrange(4)
    if deed == 0:
        return data[:place] + rng.choice(_TOKENS) + data[place:]
    if deed == 1:
        return data[:place] + rng.choice(_TOKENS) + data[place + rng.randrange(1, 20) :]
    if deed == 2:
        return data[:place]
    other = rng.randrange(len(data) + 1)
    return data[:place] + data[other : other + rng.randrange(1, 80)] + data[place:]
