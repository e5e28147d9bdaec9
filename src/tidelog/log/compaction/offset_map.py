"""The last offset of each key in the dirty part of a log: what compaction asks before it keeps a record.

A map has a fixed number of slots, 24 bytes each as in Kafka, and is filled up to its load factor; then the round ends
at the last offset put. `DictOffsetMap` is the readable one, exact and of any size. `TableOffsetMap` keeps a hash of
each key, for volume; `map_batch` and `map_window` fill them, batch by batch and window by window, with the same result.

>>> offset_map = DictOffsetMap(slots=100)
>>> offset_map.put(b"k", 5)
>>> offset_map.get(b"k"), offset_map.get(b"other"), offset_map.latest_offset
(5, -1, 5)

Kafka: SkimpyOffsetMap, Cleaner.buildOffsetMapForSegment.
"""

from typing import Any, NamedTuple, Protocol

from tidelog.errors import InvalidRequestError
from tidelog.log.batch_windows import BatchWindow
from tidelog.records.batches import Batch
from tidelog.records.varint import Buffer

__all__ = [
    "BYTES_PER_ENTRY",
    "NO_OFFSET",
    "DictOffsetMap",
    "MapWindowResult",
    "OffsetMap",
    "TableOffsetMap",
    "map_batch",
    "map_window",
    "slots_of",
]

BYTES_PER_ENTRY = 24  # 16 of a hash, 8 of an offset
NO_OFFSET = -1
DEFAULT_LOAD_FACTOR = 0.9


def slots_of(buffer_bytes: int) -> int:
    """How many keys a buffer of this size has room for."""
    return buffer_bytes // BYTES_PER_ENTRY


class OffsetMap(Protocol):
    """Keys and their last offsets."""

    @property
    def slots(self) -> int:
        """How many keys there is room for."""

    @property
    def max_size(self) -> int:
        """How many keys a round puts in: the slots times the load factor."""

    @property
    def size(self) -> int:
        """How many keys there are."""

    @property
    def latest_offset(self) -> int:
        """The last offset put, or what it was raised to; -1 at first."""

    @property
    def utilisation(self) -> float:
        """The part of the slots that is in use."""

    def put(self, key: Buffer, offset: int) -> None:
        """Remember `offset` for `key`, and as the latest one. InvalidRequestError if every slot is taken."""

    def get(self, key: Buffer) -> int:
        """The offset last put for `key`, or -1."""

    def update_latest(self, offset: int) -> None:
        """Set the latest offset without a key: a batch, or a gap, was read up to there."""

    def clear(self) -> None:
        """Forget everything."""


class DictOffsetMap:
    """The map in plain words: a dict."""

    def __init__(self, slots: int, load_factor: float = DEFAULT_LOAD_FACTOR) -> None:
        self.slots = slots
        self.max_size = int(slots * load_factor)
        self.latest_offset = NO_OFFSET
        self._offsets: dict[bytes, int] = {}

    def __repr__(self) -> str:
        return f"DictOffsetMap({self.size} of {self.slots} slots, up to offset {self.latest_offset})"

    @property
    def size(self) -> int:
        return len(self._offsets)

    @property
    def utilisation(self) -> float:
        return self.size / self.slots

    def put(self, key: Buffer, offset: int) -> None:
        if self.size >= self.slots:  # as in Kafka, even where the key is known
            raise InvalidRequestError(f"the offset map has {self.slots} slots, and all are taken")
        self._offsets[bytes(key)] = offset
        self.latest_offset = offset

    def get(self, key: Buffer) -> int:
        return self._offsets.get(bytes(key), NO_OFFSET)

    def update_latest(self, offset: int) -> None:
        self.latest_offset = offset

    def clear(self) -> None:
        self._offsets.clear()
        self.latest_offset = NO_OFFSET


class TableOffsetMap:
    """The map for volume: a table of hashes. See kernels/key_table.py."""

    def __init__(self, slots: int, load_factor: float = DEFAULT_LOAD_FACTOR) -> None:
        from tidelog.kernels.compaction_runs import Room
        from tidelog.kernels.key_table import KeyTable

        self.slots = slots
        self.max_size = int(slots * load_factor)
        self.latest_offset = NO_OFFSET
        self.table = KeyTable(slots)
        self.room = Room()  # what the kernels that ask this map work in

    def __repr__(self) -> str:
        return f"TableOffsetMap({self.size} of {self.slots} slots, up to offset {self.latest_offset})"

    @property
    def size(self) -> int:
        return len(self.table)

    @property
    def utilisation(self) -> float:
        return self.size / self.slots

    def put(self, key: Buffer, offset: int) -> None:
        if self.size >= self.slots:
            raise InvalidRequestError(f"the offset map has {self.slots} slots, and all are taken")
        self.table.put(key, offset)
        self.latest_offset = offset

    def get(self, key: Buffer) -> int:
        return self.table.get(key)

    def update_latest(self, offset: int) -> None:
        self.latest_offset = offset

    def clear(self) -> None:
        self.table.clear()
        self.latest_offset = NO_OFFSET


def map_batch(offset_map: OffsetMap, batch: Batch, start_offset: int) -> bool:
    """Put the keys of a batch into the map, those at `start_offset` and above.

    True: the map is full, and this batch is only partly in it.
    """
    for record in batch.records():
        if record.key is not None and record.offset >= start_offset:
            if offset_map.size >= offset_map.max_size:
                return True
            offset_map.put(record.key, record.offset)
    if batch.last_offset >= start_offset:
        offset_map.update_latest(batch.last_offset)
    return False


class MapWindowResult(NamedTuple):
    """What became of a window."""

    full: bool  # the map is full, and the window is only partly in it
    records: int  # read; of a batch that was not wanted, all it has, or 1 if it is a control batch


def map_window(offset_map: TableOffsetMap, window: BatchWindow, wanted: Any, start_offset: int) -> MapWindowResult:
    """`map_batch` over the version 2 batches of a window that a kernel scanned, those that are wanted.

    `wanted` is an array of bytes, one a batch: 0 for control batches and aborted data. Of those only the offsets count.
    """
    from tidelog.kernels.compaction_runs import MapRun

    scan = window.scan
    assert scan is not None
    run = MapRun(
        window.data, scan, wanted, offset_map.table, offset_map.room,
        start_offset=start_offset, max_size=offset_map.max_size, latest_offset=offset_map.latest_offset,
    )  # fmt: skip
    for index in run.odd_batches():
        offset_map.latest_offset = run.latest_offset
        batch = scan.batch_in(window.data, index)
        if map_batch(offset_map, batch, start_offset):
            return MapWindowResult(True, run.records)
        run.latest_offset = offset_map.latest_offset
        run.records += batch.count or 0
    offset_map.latest_offset = run.latest_offset
    return MapWindowResult(run.is_full, run.records)
