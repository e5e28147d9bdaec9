"""Summaries of any number of values in little memory, that can be merged: what tasks give back instead of rows.

HeavyKeys     the most frequent keys        exact while there are at most 4,096 of them (and 8 MB)
DistinctKeys  how many keys there are       to about 1 % (HyperLogLog, 16 kB)
Sizes         a histogram of sizes          to about 9 % (eight classes for each power of two); mean and ends exact
TimeLine      records and bytes over time   at most 2,048 moments; they grow with the time that is covered
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.columns.partitioner import partition_for_keys

__all__ = ["DistinctKeys", "HeavyKeys", "Int64Array", "Sizes", "TimeLine"]

Int64Array = np.ndarray[Any, np.dtype[np.int64]]


class HeavyKeys:
    """Keys with how many records and bytes they have: a Misra-Gries summary.

    When there are more keys than there is room, those above the limit go, and what the largest of them counted is taken
    from all others. So a count is never too large, and too small by at most `error`; a key with more records than that
    is in the summary for certain.
    """

    _ROOM = 4_096
    _ROOM_WHILE_COUNTING = 65_536
    _ROOM_BYTES = 8 << 20
    _SCHEMA = pa.schema([("key", pa.large_binary()), ("records", pa.int64()), ("bytes", pa.int64())])

    def __init__(self) -> None:
        self.error = 0
        self._parts: list[pa.Table] = []
        self._rows = 0

    def add(self, keys: pa.Array, records: Int64Array, sizes: Int64Array) -> None:
        """Count some keys, each of them once in `keys`."""
        columns = [keys.cast(pa.large_binary()), pa.array(records), pa.array(sizes)]
        self._append(pa.Table.from_arrays(columns, schema=self._SCHEMA))
        if self._rows > 2 * self._ROOM_WHILE_COUNTING:
            self._settle(self._ROOM_WHILE_COUNTING)

    def merge(self, other: "HeavyKeys") -> "HeavyKeys":
        """Add another summary."""
        self._append(other.table)
        self.error += other.error
        return self.trimmed()

    def trimmed(self) -> "HeavyKeys":
        """The same in the least room: what travels."""
        self._settle(self._ROOM)
        return self

    @property
    def table(self) -> pa.Table:
        """The keys, the most frequent first."""
        if len(self._parts) != 1:
            self._settle(self._ROOM_WHILE_COUNTING)
        return self._parts[0]

    @property
    def is_exact(self) -> bool:
        """Whether no key ever had to go."""
        return self.error == 0

    def top(self, count: int) -> Iterator[tuple[bytes, int, int]]:
        """The most frequent keys with their records and bytes."""
        found = self.table.slice(0, count)
        yield from zip(*(found[name].to_pylist() for name in ("key", "records", "bytes")), strict=True)

    def _append(self, table: pa.Table) -> None:
        self._parts.append(table)
        self._rows += table.num_rows

    def _settle(self, room: int) -> None:
        """One row for each key, in order, and no more than there is room for."""
        table = pa.concat_tables(self._parts) if self._parts else self._SCHEMA.empty_table()
        if len(self._parts) > 1:
            grouped = table.group_by("key", use_threads=False).aggregate([("records", "sum"), ("bytes", "sum")])
            names = ["key", "records_sum", "bytes_sum"]
            table = pa.Table.from_arrays([grouped[name] for name in names], schema=self._SCHEMA)
        order = pc.sort_indices(table, sort_keys=[("records", "descending"), ("key", "ascending")])
        table = table.take(order)
        lengths = pc.binary_length(table["key"]).to_numpy()
        fitting = int(np.searchsorted(np.cumsum(lengths), self._ROOM_BYTES, "right"))
        keep = min(room, max(fitting, 1))
        if table.num_rows > keep:
            above = int(table["records"][keep].as_py())
            self.error += above
            kept = table.slice(0, keep)
            records = kept["records"].to_numpy() - above
            table = kept.set_column(1, "records", pa.array(records)).slice(0, int((records > 0).sum()))
        self._parts, self._rows = [table.combine_chunks()], table.num_rows


class DistinctKeys:
    """About how many different keys there are, by the hash that Kafka's producers use: 31 bits of murmur2."""

    _INDEX_BITS = 14
    _HASH_BITS = 31

    def __init__(self) -> None:
        self._ranks = np.zeros(1 << self._INDEX_BITS, np.uint8)

    def add(self, keys: pa.Array) -> None:
        """Take note of some keys, none of which is null."""
        hashes = partition_for_keys(keys, (1 << self._HASH_BITS) - 1).to_numpy().astype(np.int64)
        rest_bits = self._HASH_BITS - self._INDEX_BITS
        rest = hashes & ((1 << rest_bits) - 1)
        ranks = rest_bits + 1 - np.frexp(rest.astype(np.float64))[1]
        np.maximum.at(self._ranks, hashes >> rest_bits, ranks.astype(np.uint8))

    def merge(self, other: "DistinctKeys") -> "DistinctKeys":
        """Add another summary."""
        np.maximum(self._ranks, other._ranks, out=self._ranks)
        return self

    @property
    def estimate(self) -> int:
        """About how many there are."""
        registers, space = len(self._ranks), float(1 << self._HASH_BITS)
        found = 0.7213 / (1 + 1.079 / registers) * registers**2 / float(np.exp2(-self._ranks.astype(np.float64)).sum())
        empty = int((self._ranks == 0).sum())
        if found <= 2.5 * registers and empty:
            found = registers * math.log(registers / empty)
        elif found > space / 30:
            found = -space * math.log1p(-min(found / space, 0.999999))
        return round(found)


class Sizes:
    """A histogram of sizes in bytes."""

    _PER_OCTAVE = 8
    _FEW_OCTAVES = 3
    _CLASSES = 32 * _PER_OCTAVE + 1

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.smallest: int | None = None
        self.largest = 0
        self._classes = np.zeros(self._CLASSES, np.int64)  # the first one is for nothing at all

    def add(self, sizes: Int64Array) -> None:
        """Count some."""
        if not len(sizes):
            return
        self.count += len(sizes)
        self.total += int(sizes.sum())
        low = int(sizes.min())
        self.smallest = low if self.smallest is None else min(self.smallest, low)
        self.largest = max(self.largest, int(sizes.max()))
        which = np.log2(np.maximum(sizes, 1), dtype=np.float64) * self._PER_OCTAVE + 1
        self._classes += np.bincount(np.where(sizes > 0, which.astype(np.int64), 0), minlength=self._CLASSES)

    def merge(self, other: "Sizes") -> "Sizes":
        """Add another summary."""
        self.count += other.count
        self.total += other.total
        ends = [end for end in (self.smallest, other.smallest) if end is not None]
        self.smallest = min(ends) if ends else None
        self.largest = max(self.largest, other.largest)
        self._classes += other._classes
        return self

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def percentile(self, share: float) -> int:
        """The size that so many, out of 1, do not exceed; about."""
        if not self.count:
            return 0
        at = int(np.searchsorted(np.cumsum(self._classes), share * self.count))
        return min(int(2 ** (at / self._PER_OCTAVE)) if at else 0, self.largest)

    def octaves(self) -> list[tuple[int, int]]:
        """Classes from one power of two to the next: where each begins, and how many lie in it."""
        counts = self._classes[1:].reshape(-1, self._PER_OCTAVE).sum(axis=1)
        found = [(0, int(self._classes[0])), *((1 << number, int(count)) for number, count in enumerate(counts))]
        used = [number for number, (_, count) in enumerate(found) if count]
        return found[used[0] : used[-1] + 1] if used else []

    def classes(self) -> list[tuple[int, int, int]]:
        """Classes to draw: begin, end and count. Powers of two, or, where sizes differ little, parts of those."""
        coarse = self.octaves()
        if len(coarse) > self._FEW_OCTAVES or not self.smallest:
            return [(begin, 2 * begin or 1, count) for begin, count in coarse]
        used = np.flatnonzero(self._classes)
        numbers = range(int(used[0]), int(used[-1]) + 1)
        merged: dict[int, int] = {}  # small sizes have fewer classes than that
        for number in numbers:
            begin = math.ceil(2 ** ((number - 1) / self._PER_OCTAVE) - 1e-9)
            merged[begin] = merged.get(begin, 0) + int(self._classes[number])
        begins = [*merged, math.ceil(2 ** (numbers[-1] / self._PER_OCTAVE) - 1e-9)]
        return [(begin, end, merged[begin]) for begin, end in pairwise(begins)]


class TimeLine:
    """Records and bytes by time. The moments are as long as it takes to have at most 2,048 of them."""

    _MOST = 2_048
    _FINEST_MS = 1_000
    _DENSE = 1 << 20

    def __init__(self) -> None:
        self.moment_ms = self._FINEST_MS
        self._at = np.empty(0, np.int64)
        self._records = np.empty(0, np.int64)
        self._bytes = np.empty(0, np.int64)

    def add(self, times_ms: Int64Array, sizes: Int64Array) -> None:
        """Count records by their times."""
        if not len(times_ms):
            return
        at = times_ms // self.moment_ms
        low, high = int(at.min()), int(at.max())
        if high - low < self._DENSE:
            records = np.bincount(at - low)
            used = np.flatnonzero(records)
            total = np.bincount(at - low, weights=sizes)
            self._take(used + low, records[used], total[used].astype(np.int64))
        else:
            used, which = np.unique(at, return_inverse=True)
            self._take(used, np.bincount(which), np.bincount(which, weights=sizes).astype(np.int64))

    def merge(self, other: "TimeLine") -> "TimeLine":
        """Add another summary."""
        while self.moment_ms < other.moment_ms:
            self._coarsen()
        steps = self.moment_ms // other.moment_ms
        self._take(other._at // steps, other._records, other._bytes)
        return self

    def _take(self, at: Int64Array, records: Int64Array, sizes: Int64Array) -> None:
        joined = np.concatenate([self._at, at])
        self._at, which = np.unique(joined, return_inverse=True)
        self._records = _summed(which, np.concatenate([self._records, records]))
        self._bytes = _summed(which, np.concatenate([self._bytes, sizes]))
        while len(self._at) > self._MOST:
            self._coarsen()

    def _coarsen(self) -> None:
        self.moment_ms *= 2
        self._at, which = np.unique(self._at // 2, return_inverse=True)
        self._records, self._bytes = _summed(which, self._records), _summed(which, self._bytes)

    def moments(self) -> list[tuple[int, int, int]]:
        """When each moment begins, its records and its bytes. Moments without any are not there."""
        return list(
            zip((self._at * self.moment_ms).tolist(), self._records.tolist(), self._bytes.tolist(), strict=True)
        )


def _summed(which: Any, values: Int64Array) -> Int64Array:
    found = np.zeros(int(which.max()) + 1 if len(which) else 0, np.int64)
    np.add.at(found, which, values)
    return found
