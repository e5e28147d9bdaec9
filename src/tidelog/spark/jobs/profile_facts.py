"""What a profile knows of a partition: counted by tasks, merged, finished on the driver."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.columns.partitioner import partition_for_keys
from tidelog.kernels.headers import HeaderScan
from tidelog.records.batch import MAGIC
from tidelog.records.compression import Codec
from tidelog.spark.jobs.codec_trial import CodecTrial
from tidelog.spark.jobs.sketches import DistinctKeys, HeavyKeys, Int64Array, Sizes, TimeLine

__all__ = ["OLD_FORMAT", "CodecUse", "PartitionFacts"]

OLD_FORMAT = "old format"
_CODEC_BITS, _CONTROL = 0x07, 0x20
_NO_TIME = -1
_CODECS = {int(codec): codec.name.lower() for codec in Codec}


class CodecUse(NamedTuple):
    """How much is stored with a codec."""

    batches: int = 0
    records: int = 0
    size: int = 0

    def plus(self, other: "CodecUse") -> "CodecUse":
        return CodecUse(*(mine + its for mine, its in zip(self, other, strict=True)))


class PartitionFacts:
    """Counts of some records of a partition, or of a topic."""

    def __init__(self) -> None:
        self.records = 0
        self.key_bytes = 0
        self.value_bytes = 0
        self.null_keys = 0
        self.null_values = 0  # tombstones, where a topic is compacted
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.untimed = 0  # records without a time
        self.late_records = 0  # older than one before them in the same piece
        self.latest_by_ms = 0  # by how much, at most
        self.misplaced = 0  # keyed records that the default partitioner would have put elsewhere
        self.stored = 0  # bytes of all batches
        self.control_batches = 0
        self.codecs: dict[str, CodecUse] = {}
        self.batch_sizes = Sizes()
        self.batch_records = Sizes()
        self.sizes = Sizes()  # of records: key and value
        self.times = TimeLine()
        self.keys = HeavyKeys()
        self.distinct = DistinctKeys()
        self.trial = CodecTrial()
        self.damage: list[str] = []

    # -- counting ------------------------------------------------------------------------------------------------

    def add_batches(self, scan: HeaderScan) -> None:
        """Count batches by their headers."""
        sizes = scan.sizes
        self.stored += int(sizes.sum())
        is_old = scan.is_legacy
        attributes = scan.rows["attributes"].astype(np.int64)
        is_control = ~is_old & (attributes & _CONTROL != 0)
        self.control_batches += int(is_control.sum())
        if is_old.any():
            self._add_codec(OLD_FORMAT, CodecUse(int(is_old.sum()), 0, int(sizes[is_old].sum())))
        is_data = ~is_old & ~is_control
        if not is_data.all():
            sizes, attributes = sizes[is_data], attributes[is_data]
        records = np.maximum(scan.rows["records_count"][is_data].astype(np.int64), 0)
        self.batch_sizes.add(sizes)
        self.batch_records.add(records)
        codecs = attributes & _CODEC_BITS
        for codec in np.unique(codecs).tolist():
            which = codecs == codec
            use = CodecUse(int(which.sum()), int(records[which].sum()), int(sizes[which].sum()))
            self._add_codec(_CODECS.get(codec, str(codec)), use)

    def _add_codec(self, codec: str, use: CodecUse) -> None:
        self.codecs[codec] = self.codecs.get(codec, CodecUse()).plus(use)

    def add_rows(self, rows: pa.RecordBatch, partition: int, partitions: int, newest_ms: int) -> int:
        """Count records; `newest_ms` is the largest time before them, and the largest so far is given back."""
        keys, values = rows.column("key"), rows.column("value")
        key_sizes, value_sizes = _lengths(keys), _lengths(values)
        sizes = key_sizes + value_sizes
        offsets = rows.column("offset").to_numpy()
        self.records += rows.num_rows
        self.key_bytes += int(key_sizes.sum())
        self.value_bytes += int(value_sizes.sum())
        self.null_keys += keys.null_count
        self.null_values += values.null_count
        self.first_offset = _least(self.first_offset, int(offsets[0]))
        self.last_offset = _most(self.last_offset, int(offsets[-1]))
        self.sizes.add(sizes)
        self._add_keys(keys, sizes, partition, partitions)
        return self._add_times(rows.column("timestamp").view(pa.int64()).to_numpy(), sizes, newest_ms)

    def _add_keys(self, keys: pa.Array, sizes: Int64Array, partition: int, partitions: int) -> None:
        if keys.null_count == len(keys):
            return
        if keys.null_count:
            is_there = keys.is_valid()
            keys, sizes = keys.filter(is_there), sizes[is_there.to_numpy(zero_copy_only=False)]
        encoded = keys.dictionary_encode()
        which = encoded.indices.to_numpy()
        known = encoded.dictionary
        records = np.bincount(which, minlength=len(known))
        total = np.bincount(which, weights=sizes, minlength=len(known)).astype(np.int64)
        self.keys.add(known, records.astype(np.int64), total)
        self.distinct.add(known)
        if partitions > 1:
            homes = partition_for_keys(known, partitions).to_numpy()
            self.misplaced += int(records[homes != partition].sum())

    def _add_times(self, times_ms: Int64Array, sizes: Int64Array, newest_ms: int) -> int:
        if len(times_ms) and int(times_ms.min()) <= _NO_TIME:
            is_there = times_ms > _NO_TIME
            self.untimed += int((~is_there).sum())
            times_ms, sizes = times_ms[is_there], sizes[is_there]
        if not len(times_ms):
            return newest_ms
        self.first_ms = _least(self.first_ms, int(times_ms.min()))
        self.last_ms = _most(self.last_ms, int(times_ms.max()))
        self.times.add(times_ms, sizes)
        newest = np.maximum.accumulate(np.concatenate([[newest_ms], times_ms]))
        late = newest[:-1] - times_ms
        is_late = late > 0
        if is_late.any():
            self.late_records += int(is_late.sum())
            self.latest_by_ms = max(self.latest_by_ms, int(late.max()))
        return int(newest[-1])

    # -- merging -------------------------------------------------------------------------------------------------

    def trimmed(self) -> "PartitionFacts":
        """The same in the least room: what travels."""
        self.keys.trimmed()
        return self

    def merge(self, other: "PartitionFacts") -> "PartitionFacts":
        """Add what was counted elsewhere."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("first_offset", "first_ms"):
            setattr(self, name, _least(getattr(self, name), getattr(other, name)))
        for name in ("last_offset", "last_ms"):
            setattr(self, name, _most(getattr(self, name), getattr(other, name)))
        self.latest_by_ms = max(self.latest_by_ms, other.latest_by_ms)
        for codec, use in other.codecs.items():
            self._add_codec(codec, use)
        for name in ("batch_sizes", "batch_records", "sizes", "times", "keys", "distinct", "trial"):
            getattr(self, name).merge(getattr(other, name))
        self.damage += other.damage
        return self

    # -- what follows --------------------------------------------------------------------------------------------

    @property
    def plain(self) -> int:
        """Bytes of keys and values."""
        return self.key_bytes + self.value_bytes

    @property
    def distinct_keys(self) -> int:
        """How many keys there are: exactly, where all of them are known."""
        return self.keys.table.num_rows if self.keys.is_exact else self.distinct.estimate

    @property
    def codec(self) -> str | None:
        """The codec that holds the most bytes."""
        return max(self.codecs, key=lambda name: self.codecs[name].size, default=None)

    @property
    def kinds(self) -> Counter[str]:
        """What values look like, in the sample."""
        return self.trial.kinds


_SUMS = (
    "records", "key_bytes", "value_bytes", "null_keys", "null_values", "untimed", "late_records", "misplaced",
    "stored", "control_batches",
)  # fmt: skip
assert MAGIC == 2  # the fields of headers that are looked at are those of version 2


def _lengths(column: pa.Array) -> Int64Array:
    found: Any = pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return found.astype(np.int64)  # type: ignore[no-any-return]


def _least(one: int | None, two: int | None) -> int | None:
    return one if two is None else two if one is None else min(one, two)


def _most(one: int | None, two: int | None) -> int | None:
    return one if two is None else two if one is None else max(one, two)
