"""The columns that each record brings: offset, timestamp, key, value, headers.

One kernel call per group of batches fills them all.
"""

from collections.abc import Set
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.columns.arrow_memory import Binary, Bitmap, allocate, as_numpy
from tidelog.columns.schema import HEADERS_TYPE
from tidelog.kernels.bodies import Bodies
from tidelog.kernels.decode import ALL_DECODED, Slot, decode, gather_headers
from tidelog.kernels.messages import decode_messages
from tidelog.kernels.runtime import Kernel
from tidelog.records.java import decode_utf8

__all__ = ["RecordColumns", "decode_batch_records", "decode_message_records"]

MIN_RECORD_SIZE = 7  # a length byte and six fields of a byte each

Rows = np.ndarray[Any, np.dtype[Any]]


class RecordColumns(NamedTuple):
    """Columns of one group of batches; those not asked for are None."""

    offsets: pa.Buffer  # int64
    timestamps: pa.Buffer  # int64, milliseconds
    key: pa.Array | None
    value: pa.Array | None
    headers: pa.Array | None


class BrokenBatch(Exception):
    """Batch `index` of a group is broken."""

    def __init__(self, index: int) -> None:
        self.index = index


class _Target:
    """The buffers that a kernel fills, and the slots that tell it where they are."""

    def __init__(self, rows: int, max_bytes: int, wanted: Set[str]) -> None:
        self.rows = rows
        self.slots = np.zeros(len(Slot), np.int64)
        self.slots[Slot.ROWS] = rows
        self.offsets = allocate(8 * rows)
        self.timestamps = allocate(8 * rows)
        self.slots[Slot.OFFSETS] = self.offsets.address
        self.slots[Slot.TIMESTAMPS] = self.timestamps.address
        self.key = self._binary("key" in wanted, Slot.KEY_OFFSETS, max_bytes)
        self.value = self._binary("value" in wanted, Slot.VALUE_OFFSETS, max_bytes)

    def _binary(self, is_wanted: bool, slot: Slot, max_bytes: int) -> Binary | None:
        if not is_wanted:
            return None
        column = Binary(self.rows, max_bytes)
        self.slots[slot : slot + 3] = column.addresses
        return column

    def fill(self, kernel: Kernel[[int, int, int, int], int], rows: Rows, bodies: Bodies) -> None:
        """Let a kernel decode batches into the buffers; BrokenBatch where it cannot."""
        rows, table = np.ascontiguousarray(rows), np.ascontiguousarray(bodies.table)
        broken = kernel(rows.ctypes.data, table.ctypes.data, len(rows), self.slots.ctypes.data)
        if broken != ALL_DECODED:
            raise BrokenBatch(broken)

    def finish(self, headers: pa.Array | None) -> RecordColumns:
        total = self.slots
        return RecordColumns(
            self.offsets,
            self.timestamps,
            self.key and self.key.finish(pa.binary(), int(total[Slot.KEY_BYTES]), int(total[Slot.KEY_NULLS])),
            self.value and self.value.finish(pa.binary(), int(total[Slot.VALUE_BYTES]), int(total[Slot.VALUE_NULLS])),
            headers,
        )


def decode_batch_records(
    rows: Rows, bodies: Bodies, length: int, wanted: Set[str], *, verify: bool = False
) -> RecordColumns:
    """Decode version 2 batches, given their header rows, their bodies, and how many records they claim to hold.

    With `verify` the checksums are compared on the way, which only works for bodies that were not compressed.
    """
    if length * MIN_RECORD_SIZE > bodies.size:  # compare the claim before anything is allocated for it
        counts = rows["records_count"].astype(np.int64)
        raise BrokenBatch(int((counts * MIN_RECORD_SIZE > bodies.sizes).argmax()))
    target = _Target(length, bodies.size, wanted)
    target.slots[Slot.VERIFY] = verify
    lists = _HeaderLists(target) if "headers" in wanted else None
    target.fill(decode, rows, bodies)
    return target.finish(lists and lists.gather())


def decode_message_records(rows: Rows, bodies: Bodies, length: int, wanted: Set[str]) -> RecordColumns:
    """Decode legacy entries, given their header rows, their message sets, and how many messages those hold."""
    target = _Target(length, bodies.size, wanted)
    target.fill(decode_messages, rows, bodies)
    return target.finish(pa.nulls(target.rows, HEADERS_TYPE) if "headers" in wanted else None)


class _HeaderLists:
    """The headers column: lists of a name and a value."""

    def __init__(self, target: _Target) -> None:
        self._target = target
        self._places = np.empty((target.rows, 2), np.int64)
        self._offsets = allocate(4 * (target.rows + 1))
        as_numpy(self._offsets, np.int32)[0] = 0
        self._validity = Bitmap(target.rows)
        target.slots[Slot.HEADER_OFFSETS] = self._offsets.address
        target.slots[Slot.HEADER_PLACES] = self._places.ctypes.data
        target.slots[Slot.HEADER_VALIDITY] = self._validity.address

    def gather(self) -> pa.Array:
        slots, rows = self._target.slots, self._target.rows
        with_headers = int(slots[Slot.RECORDS_WITH_HEADERS])
        if not with_headers:
            return pa.nulls(rows, HEADERS_TYPE)
        count, max_bytes = int(slots[Slot.HEADER_COUNT]), int(slots[Slot.HEADER_BYTES])
        keys, values = Binary(count, max_bytes), Binary(count, max_bytes)
        key_bytes, value_bytes, value_nulls, beyond_ascii = gather_headers(
            self._places.ctypes.data, self._offsets.address, rows, *keys.addresses[:2], *values.addresses
        )
        key = keys.finish(pa.string(), key_bytes, 0)
        value = values.finish(pa.binary(), value_bytes, value_nulls)
        pairs = pa.StructArray.from_arrays(
            [_as_text(key) if beyond_ascii else key, value], fields=list(HEADERS_TYPE.value_type)
        )
        nulls = rows - with_headers
        return pa.Array.from_buffers(
            HEADERS_TYPE, rows, [self._validity.if_any(nulls), self._offsets], nulls, children=[pairs]
        )


def _as_text(names: pa.Array) -> pa.Array:
    """Names with bytes beyond ASCII: replaced as Java would where they are not UTF-8, which Arrow relies on."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([decode_utf8(name) for name in names.cast(pa.binary()).to_pylist()], pa.string())
    return names
