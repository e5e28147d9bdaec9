"""Arrow arrays whose buffers do not hold what they claim, and a judge who compares every offset before using it.

An array that comes from a file, or that somebody assembled, may have offsets behind its data, indices behind its
dictionary, lists behind their items. Whatever takes arrays and hands their addresses to a kernel must reject such an
array, or read exactly what the buffers hold: `encode`, `DealtEncoder`, `partition_for_keys`.

    run(seed, cases)    judges cases; the first disagreement is raised with what is needed to see it again
"""

import random
import struct
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tests.property import reference
from tidelog.columns import encode, partition_for_keys
from tidelog.columns.dealt_encoder import DealtEncoder
from tidelog.columns.inputs import Inputs
from tidelog.errors import InvalidRequestError
from tidelog.records import read_batches

BROKEN = object()  # what no reading of the buffers can give
_WILD = (-1, 1, 2, 3, 7, 64, 5_000, 1 << 20, (1 << 31) - 1, -(1 << 31))
_PARTITIONS = 12
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


class Column(NamedTuple):
    """An array, and what its buffers hold row by row: BROKEN where they do not hold what it claims."""

    array: pa.Array
    values: list[Any]


def run(seed: int, cases: int) -> Counter[str]:
    """Judge cases of a seed, counted by what became of them."""
    outcomes: Counter[str] = Counter()
    for case in range(cases):
        rng = random.Random(f"{seed}/{case}")
        try:
            columns = _columns(rng)
        except pa.ArrowInvalid:  # from_buffers compares sizes by itself
            outcomes["refused"] += 1
            continue
        try:
            outcomes[_judge(columns)] += 1
        except AssertionError as disagreement:
            raise AssertionError(f"seed {seed}, case {case}: {disagreement}") from None
    return outcomes


def _judge(columns: dict[str, Column]) -> str:
    batch = pa.record_batch([column.array for column in columns.values()], names=list(columns))
    is_broken = any(BROKEN in column.values for column in columns.values())
    wanted = list(zip(*(column.values for column in columns.values()), strict=True))
    found = _outcome(lambda: records_of(encode(batch), list(columns)))
    assert found is None or (not is_broken and found == wanted), f"encode gives {found}, the buffers hold {wanted}"
    dealt = _outcome(lambda: _dealt(batch, list(columns)))
    assert (dealt is None) == (found is None), "the two encoders disagree"
    assert dealt is None or sorted(map(repr, dealt)) == sorted(map(repr, wanted)), f"dealt {dealt} of {wanted}"
    if "key" in columns:
        keys = columns["key"].values
        homes = _outcome(lambda: partition_for_keys(columns["key"].array, _PARTITIONS).to_pylist())
        assert homes is None or BROKEN not in keys, f"partitions {homes} of broken keys"
        assert homes is None or homes == [_home(key) for key in keys]
    return "rejected" if found is None else "read"


def _home(key: bytes | None) -> int | None:
    return None if key is None else (reference.murmur2(key) & 0x7FFFFFFF) % _PARTITIONS


def records_of(data: bytes, names: list[str]) -> list[Any]:
    """The records of some batches, each a tuple of the fields that are asked for."""
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "headers": [(header.key.encode(), header.value) for header in record.headers],
        }
        for batch in read_batches(data)
        for record in batch
    ]
    return [tuple(row[name] for name in names) for row in rows]


def _outcome(read: Any) -> Any:
    try:
        return read()
    except InvalidRequestError:
        return None


def _dealt(batch: pa.RecordBatch, names: list[str]) -> list[Any]:
    encoder = DealtEncoder()
    numbers = np.arange(batch.num_rows, dtype=np.int64) % 3
    for _ in range(3):
        encoder.add_place()
    stretches = [part for _, part in encoder.encode(Inputs(batch), numbers)]
    stretches += [part for _, part in encoder.finish()]
    return [row for part in stretches for data in part.batches() for row in records_of(bytes(data), names)]


# -- arrays --------------------------------------------------------------------------------------------------------


def _columns(rng: random.Random) -> dict[str, Column]:
    rows = rng.randrange(1, 12)
    names = rng.sample(["key", "value", "headers"], rng.randrange(1, 4))
    return {name: _headers(rng, rows) if name == "headers" else _of_bytes(rng, rows) for name in sorted(names)}


def _of_bytes(rng: random.Random, rows: int) -> Column:
    kind = rng.randrange(4)
    if kind == 0:
        return _dictionary(rng, rows)
    data_type = (pa.binary(), pa.string(), pa.large_binary())[kind - 1]
    return _binary(rng, rows, data_type, is_harmed=rng.random() < 0.6)


def _binary(rng: random.Random, rows: int, data_type: pa.DataType, *, is_harmed: bool, nullable: bool = True) -> Column:
    before = rng.randrange(3)  # rows in front, as a slice has them
    texts = [bytes(rng.choices(b"abcxyz", k=rng.randrange(9))) for _ in range(before + rows)]
    data, offsets = b"".join(texts), [0]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    bits = [not nullable or rng.random() < 0.8 for _ in texts]
    if is_harmed:
        data, offsets = _harmed(rng, data, offsets, before)
    is_large = data_type == pa.large_binary()
    bitmap = _bitmap(bits) if not all(bits) or rng.random() < 0.3 else None
    packed = struct.pack(f"<{len(offsets)}{'q' if is_large else 'i'}", *offsets)
    buffers = [None if bitmap is None else pa.py_buffer(bitmap), pa.py_buffer(packed), pa.py_buffer(data)]
    array = pa.Array.from_buffers(data_type, rows, buffers, offset=before)
    values = [_field(data, offsets, number) if bits[number] else None for number in range(before, before + rows)]
    return Column(array, values)


def _harmed(rng: random.Random, data: bytes, offsets: list[int], before: int) -> tuple[bytes, list[int]]:
    if rng.random() < 0.3:
        return data[: rng.randrange(len(data) + 1)], offsets
    place = rng.randrange(before, len(offsets))
    wild = rng.choice(_WILD) + (offsets[place] if rng.random() < 0.5 else 0)
    return data, [*offsets[:place], max(min(wild, 2**31 - 1), -(2**31)), *offsets[place + 1 :]]


def _field(data: bytes, offsets: list[int], number: int) -> Any:
    start, end = offsets[number : number + 2]
    return data[start:end] if 0 <= start <= end <= len(data) else BROKEN


def _dictionary(rng: random.Random, rows: int) -> Column:
    words = [b"one", b"two", b"", b"four"]
    indices = [rng.randrange(4) if rng.random() < 0.95 else rng.choice(_WILD) for _ in range(rows)]
    array = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(words), safe=False)
    return Column(array, [words[index] if 0 <= index < 4 else BROKEN for index in indices])


def _headers(rng: random.Random, rows: int) -> Column:
    counts = [rng.randrange(4) for _ in range(rows)]
    total, offsets = sum(counts), [0]
    for count in counts:
        offsets.append(offsets[-1] + count)
    names = _binary(rng, total, pa.string(), is_harmed=rng.random() < 0.2, nullable=False)
    values = _binary(rng, total, pa.binary(), is_harmed=rng.random() < 0.2)
    if rng.random() < 0.3:
        place = rng.randrange(len(offsets))
        offsets[place] = max(min(offsets[place] + rng.choice(_WILD), 2**31 - 1), -(2**31))
    pairs = pa.StructArray.from_arrays([names.array, values.array], fields=list(_HEADER))
    buffers = [None, pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets))]
    array = pa.Array.from_buffers(pa.list_(_HEADER), rows, buffers, children=[pairs])
    held = list(zip(names.values, values.values, strict=True))
    return Column(array, [_list(held, *offsets[number : number + 2]) for number in range(rows)])


def _list(held: list[tuple[Any, Any]], start: int, end: int) -> Any:
    if not 0 <= start <= end <= len(held) or any(BROKEN in pair for pair in held[start:end]):
        return BROKEN
    return held[start:end]


def _bitmap(bits: list[bool]) -> bytes:
    return sum(bit << number for number, bit in enumerate(bits)).to_bytes(len(bits) // 8 + 1, "little")
