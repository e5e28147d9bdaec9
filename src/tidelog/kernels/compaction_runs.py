"""Compaction of a window: the kernels are called, and called again, until they have gone through all batches.

What stops them is seen to here: a table grows, a target grows, records are compressed. Only batches that are broken,
or odd, come out of a run; whoever made it deals with them by the readable path and goes on.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import InvalidRequestError
from tidelog.kernels.bodies import Bodies, open_bodies
from tidelog.kernels.buffers import address_of, hold
from tidelog.kernels.compaction import (
    AHEAD,
    MARKER,
    NOTE_SIZE,
    UNWRITABLE,
    Found,
    Job,
    Stop,
    Verdict,
    choose_batches,
    note_batches,
    put_batches,
    write_batches,
)
from tidelog.kernels.headers import HeaderScan
from tidelog.kernels.key_table import KeyTable
from tidelog.records.batch import (
    BATCH_HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchAttributes,
    BatchHeader,
)
from tidelog.records.compression import Codec, compress

__all__ = ["FilterRun", "FilterTotals", "MapRun", "Room"]

UInt8Array = np.ndarray[Any, np.dtype[np.uint8]]

_LOWEST_OFFSET, _HIGHEST_OFFSET = -(2**63), 2**63 - 1
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_NOTES = 1 << 13  # so many, and the bytes of their records, stay in the second cache


class Room:
    """Memory that the kernels need, used again from window to window."""

    def __init__(self, *, notes: int = _NOTES, target_size: int = 0) -> None:
        self.target = np.empty(target_size, np.uint8)
        self.make_notes(notes)

    def make_notes(self, count: int) -> None:
        """Have room for the notes of `count` records, and a byte for each."""
        self.max_notes = count
        self.notes = np.zeros((count + AHEAD) * NOTE_SIZE, np.uint8)
        self.keeps = np.empty(count, np.uint8)

    def make_target(self, size: int, written: int) -> None:
        """Have a target of at least `size` bytes that begins with the `written` ones there are."""
        if len(self.target) < size:
            target = np.empty(size, np.uint8)
            target[:written] = self.target[:written]
            self.target = target


class _Stretch(NamedTuple):
    """Batches from `first` up to `last`, and the bodies of those among them that are looked at.

    If the stretch `is_broken`, the body of batch `last` cannot be opened, and the next stretch begins behind it.
    """

    first: int
    last: int
    bodies: Bodies
    is_broken: bool


class _Group(NamedTuple):
    """Batches from `first` up to `last` whose records were noted. If it `is_odd`, batch `last` could not be read."""

    first: int
    last: int
    records: int
    is_odd: bool


def _ensure_one_a_batch(flags: UInt8Array, scan: HeaderScan) -> None:
    if len(flags) != len(scan.rows):
        raise InvalidRequestError(f"{len(flags)} decisions about {len(scan.rows)} batches")


class _Run:
    """What both runs have in common: the words of the kernels, and the bodies, opened stretch by stretch."""

    def __init__(self, data: memoryview, scan: HeaderScan, looked_at: UInt8Array, table: KeyTable, room: Room) -> None:
        _ensure_one_a_batch(looked_at, scan)
        self._data = hold(data)
        self._scan = scan
        self._looked_at = np.ascontiguousarray(looked_at, np.uint8)
        self._table = table
        self._room = room
        self._rows = np.ascontiguousarray(scan.rows)
        self._words = np.zeros(Job.WORDS, np.int64)
        self._job = int(self._words.ctypes.data)
        self._words[Job.ROWS] = self._rows.ctypes.data
        self._words[Job.LOOKED_AT] = self._looked_at.ctypes.data
        self._words[Job.TABLE] = table.state
        self._use_notes()

    def __getitem__(self, word: Job) -> int:
        return int(self._words[word])

    def __setitem__(self, word: Job, value: int) -> None:
        self._words[word] = value

    def _use_notes(self) -> None:
        self[Job.NOTES] = self._room.notes.ctypes.data
        self[Job.MAX_NOTES] = self._room.max_notes
        self[Job.KEEPS] = self._room.keeps.ctypes.data

    def _groups(self) -> Iterator[_Group]:
        """Go through the batches: those whose records were noted, some thousand at a time."""
        for stretch in self._stretches():
            batch, body = stretch.first, 0
            while batch < stretch.last:
                stop, end, body, records = note_batches(self._job, batch, stretch.last, body)
                is_odd = stop == Stop.READABLE
                if stop == Stop.ROOM:  # nothing is noted, though empty batches may lie before the one that needs it
                    self._room.make_notes(self[Job.NEEDED])
                    self._use_notes()
                yield _Group(batch, end, records, is_odd)
                batch, body = end + is_odd, body + is_odd
            if stretch.is_broken:
                yield _Group(stretch.last, stretch.last, 0, is_odd=True)

    def _stretches(self) -> Iterator[_Stretch]:
        """The batches, in stretches whose bodies together take not too much memory."""
        which = np.flatnonzero(self._looked_at)
        count = len(self._looked_at)
        first = opened = 0
        while first < count:
            is_whole = len(which) == count and not opened
            bodies = open_bodies(self._data, self._scan if is_whole else self._scan.pick(which[opened:]))
            opened += len(bodies.table)
            last = int(which[opened]) if opened < len(which) else count
            is_broken = bodies.broken is not None
            self[Job.BODIES] = bodies.table.ctypes.data
            yield _Stretch(first, last, bodies, is_broken)
            opened += is_broken
            first = last + is_broken


class MapRun(_Run):
    """The keys of a window on their way into a table."""

    def __init__(
        self,
        data: memoryview,
        scan: HeaderScan,
        wanted: UInt8Array,
        table: KeyTable,
        room: Room,
        *,
        start_offset: int,
        max_size: int,
        latest_offset: int,
    ) -> None:
        super().__init__(data, scan, wanted, table, room)
        self.is_full = False
        self.latest_offset = latest_offset
        self[Job.LOWEST] = start_offset
        self[Job.HIGHEST] = _HIGHEST_OFFSET
        self[Job.MAX_SIZE] = max_size
        self[Job.SLOTS] = table.slots

    @property
    def latest_offset(self) -> int:
        return self[Job.LATEST_OFFSET]

    @latest_offset.setter
    def latest_offset(self, offset: int) -> None:
        self[Job.LATEST_OFFSET] = offset

    @property
    def records(self) -> int:
        """Read so far."""
        return self[Job.RECORDS]

    @records.setter
    def records(self, number: int) -> None:
        self[Job.RECORDS] = number

    def odd_batches(self) -> Iterator[int]:
        """Go through the batches until the map is full. The indexes of those that the caller must map."""
        for group in self._groups():
            self._table.make_room(group.records)
            stop, batch = put_batches(self._job, group.first, group.last)
            if stop == Stop.FULL:
                self.is_full = True
                return
            if stop == Stop.READABLE:  # there is no slot left, and the readable path says so
                yield batch
            if group.is_odd:
                yield group.last


def _are_unwritable(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which batches say of their producer what no producer may say. `log.record_filter` has it in words."""
    attributes = rows["attributes"]
    has_producer = rows["producer_id"] != NO_PRODUCER_ID
    has_no_sequence = (rows["base_sequence"] < 0) & (attributes & _CONTROL == 0)
    says_too_little = (rows["producer_epoch"] == NO_PRODUCER_EPOCH) | has_no_sequence
    result: np.ndarray[Any, np.dtype[np.bool_]] = np.where(
        has_producer, says_too_little, attributes & _TRANSACTIONAL != 0
    )
    return result


class FilterTotals(NamedTuple):
    """What a run counted; the names are those of `log.record_filter.FilterCounts`."""

    batches_read: int
    batches_kept: int
    bytes_read: int
    records_read: int
    records_kept: int
    invalid: int
    superseded: int
    tombstones_dropped: int
    tombstones_kept: int
    unlooked: int
    markers_read: int
    markers_kept: int


class FilterRun(_Run):
    """What is left of a window, on its way into the target of a `room`."""

    def __init__(
        self,
        data: memoryview,
        scan: HeaderScan,
        fates: UInt8Array,
        marks: UInt8Array,
        table: KeyTable,
        room: Room,
        *,
        latest_offset: int,
        now_ms: int,
        new_horizon_ms: int,
    ) -> None:
        super().__init__(data, scan, fates, table, room)
        _ensure_one_a_batch(marks, scan)
        self._marks = (np.asarray(marks) * MARKER | _are_unwritable(scan.rows) * UNWRITABLE).astype(np.uint8)
        self._positions = np.ascontiguousarray(scan.positions)
        self[Job.DATA] = address_of(self._data)[0]
        self[Job.POSITIONS] = self._positions.ctypes.data
        self[Job.MARKS] = self._marks.ctypes.data
        self._found = np.zeros((len(self._rows), Found.WORDS), np.int64)
        self._odd: list[int] = []
        self[Job.FOUND] = self._found.ctypes.data
        self[Job.LOWEST] = _LOWEST_OFFSET
        self[Job.HIGHEST] = latest_offset
        self[Job.NOW] = now_ms
        self[Job.NEW_HORIZON] = new_horizon_ms
        self[Job.TARGET] = room.target.ctypes.data
        self[Job.CAPACITY] = len(room.target)

    def odd_batches(self) -> Iterator[int]:
        """Go through the batches. The indexes of those that the caller must filter; what is left of them is `put`."""
        for group in self._groups():
            choose_batches(self._job, group.first, group.last)
            batch = group.first
            while batch < group.last:
                stop, batch = write_batches(self._job, batch, group.last)
                if stop == Stop.ROOM:
                    self._make_target(self[Job.NEEDED])
                elif stop == Stop.COMPRESS:
                    self.put(self._compressed(self[Job.PLAIN]))
                    batch += 1
                elif stop == Stop.READABLE:
                    self._odd.append(batch)
                    yield batch
                    batch += 1
            if group.is_odd:
                self._odd.append(group.last)
                self._copy_run()
                yield group.last

    def _make_target(self, more: int) -> None:
        written = self[Job.WRITTEN]
        self._room.make_target(written + more + len(self._data), written)  # then there is enough for the rest, too
        self[Job.TARGET] = self._room.target.ctypes.data
        self[Job.CAPACITY] = len(self._room.target)

    def _compressed(self, size: int) -> bytearray:
        start = self[Job.WRITTEN]
        plain = self._room.target.data[start : start + size]
        header = BatchHeader.unpack(plain)
        codec = Codec.from_id(BatchAttributes.unpack(header.attributes).codec_id)
        return header.seal(compress(codec, plain[BATCH_HEADER_SIZE:]))

    def put(self, batch: bytes | bytearray | memoryview) -> None:
        """Write what is left of a batch that the caller filtered."""
        start, size = self[Job.WRITTEN], len(batch)
        if size > len(self._room.target) - start:
            self._make_target(size)
        self._room.target.data[start : start + size] = batch
        self[Job.WRITTEN] = start + size

    def _copy_run(self) -> None:
        start, size = self[Job.RUN], self[Job.RUN_SIZE]
        self[Job.RUN_SIZE] = 0
        self.put(self._data[start : start + size])

    def counts(self) -> FilterTotals:
        """Of all batches but those that the caller filtered."""
        is_ours = np.ones(len(self._rows), np.bool_)
        is_ours[self._odd] = False
        found, rows = self._found[is_ours], self._rows[is_ours]
        is_looked_at = self._looked_at[is_ours] != 0
        is_data = rows["attributes"] & _CONTROL == 0
        totals = found.sum(axis=0)
        return FilterTotals(
            batches_read=len(rows),
            batches_kept=int((found[:, Found.VERDICT] != Verdict.GONE).sum()),
            bytes_read=int(self._scan.sizes[is_ours].sum()),
            records_read=int(rows["records_count"][is_looked_at].sum()),
            records_kept=int(totals[Found.KEPT]),
            invalid=int(totals[Found.INVALID]),
            superseded=int(totals[Found.SUPERSEDED]),
            tombstones_dropped=int(totals[Found.EXPIRED]),
            tombstones_kept=int(found[is_data, Found.NULLS].sum()),
            unlooked=int(rows["records_count"][~is_looked_at & is_data].sum()),
            markers_read=int(rows["records_count"][is_looked_at & ~is_data].sum()),
            markers_kept=int(found[~is_data, Found.KEPT].sum()),
        )

    def result(self) -> memoryview:
        """All that is left. It lies in the room, or, where nothing was lost before the end, in the window itself."""
        if not self[Job.WRITTEN]:
            start, size = self[Job.RUN], self[Job.RUN_SIZE]
            return self._data[start : start + size]
        self._copy_run()
        return self._room.target.data[: self[Job.WRITTEN]]
