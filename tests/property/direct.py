"""The kernels called by hand, with every buffer they read or write between guard pages and not a byte larger than
they may ask for."""

import random
from typing import Any

import numpy as np

from tests.property.guard_pages import Guarded
from tests.property.reference import Row
from tidelog.errors import TidelogError
from tidelog.kernels import decode as decoding
from tidelog.kernels import headers, messages
from tidelog.kernels.decode import ALL_DECODED, BODY_WORDS, ROW_SIZE, Slot
from tidelog.kernels.encode import CUT_WORDS, Input, encode
from tidelog.kernels.memory import SLACK
from tidelog.records import BATCH_HEADER_SIZE, Codec, LegacyBatch, NewRecord, RecordBatch, cut_batches
from tidelog.records.batches import batch_of

_ROOM = 1 << 16
_MIN_RECORD_SIZE = 7
_MAX_BODY = _ROOM - 4 * SLACK


class DirectKernels:
    """Scans and decodes one batch at a time."""

    def __init__(self) -> None:
        self._rows = Guarded(_ROOM)
        self._positions = Guarded(_ROOM)
        self._checksums = Guarded(_ROOM)
        self._body = Guarded(_ROOM)
        self._table = Guarded(_ROOM)
        self._slots = Guarded(_ROOM)
        self._targets = {slot: Guarded(_ROOM) for slot in Slot if slot < Slot.ROWS}
        self._header_targets = [Guarded(_ROOM) for _ in range(5)]

    def judge(self, data: bytes, view: memoryview, rows: list[Row], error: type[Exception] | None) -> None:
        """Scan what lies in `view`, and decode it if it is one sound batch of known content."""
        found = self._scan(view)
        if found != 1 or len(data) < 26 or len(data) != 12 + int.from_bytes(data[8:12], "big", signed=True):
            return
        try:
            batch = batch_of(data)
            if not batch.is_valid:
                return
            if isinstance(batch, RecordBatch):
                self._decode_batch(batch, rows, error)
            else:
                self._decode_messages(batch, rows, error)
        except TidelogError:  # a codec that does not exist, a stream that is broken: there is nothing to decode
            assert error is not None

    def _scan(self, view: memoryview) -> int:
        address = np.frombuffer(view, np.uint8).__array_interface__["data"][0] if len(view) else 0
        found = 0
        for capacity in (1, 2, 6):
            positions, checksums = self._positions.end - 8 * capacity, self._checksums.end - capacity
            table = self._rows.end - ROW_SIZE * capacity
            found, end, reason, *_ = headers.scan(address, len(view), table, positions, checksums, capacity)
            assert found <= capacity
            assert end <= len(view)
            if reason != headers.StopReason.FULL:
                headers.check_batches(address, table, positions, checksums, found)
                headers.check_messages(address, table, positions, checksums, found)
                break
        return found

    def _open(self, body: memoryview, slack: int, head: bytes = b"") -> int:
        """Put a body before its guard, with bytes between that may be read but mean nothing; its row in a table."""
        end = self._body.end - slack
        self._body.put(head + bytes(body) + b"\xff" * slack)
        self._table.array(BODY_WORDS, np.int64)[:] = end - len(body), end, self._body.end
        return self._table.end - 8 * BODY_WORDS

    def _new_slots(self, rows: int, max_bytes: int, wanted: tuple[str, ...]) -> np.ndarray[Any, Any]:
        slots = self._slots.array(len(Slot), np.int64)
        slots[:] = 0
        slots[Slot.ROWS] = rows
        sizes = {Slot.OFFSETS: 8 * rows, Slot.TIMESTAMPS: 8 * rows}
        for name in wanted:
            sizes[Slot[f"{name}_OFFSETS"]] = 4 * (rows + 1)
            sizes[Slot[f"{name}_VALIDITY"]] = (rows + 7) // 8
            if name == "HEADER":
                sizes[Slot.HEADER_PLACES] = 16 * rows
            else:
                sizes[Slot[f"{name}_DATA"]] = max_bytes + SLACK
        for slot, size in sizes.items():
            target = self._targets[slot]
            slots[slot] = target.end - size
            if slot in _OFFSET_SLOTS:
                target.array(1 + rows, np.int32)
            elif slot in _VALIDITY_SLOTS:
                target.array(size, np.uint8, 0xFF)
        return slots

    def _decode_batch(self, batch: RecordBatch, rows: list[Row], error: type[Exception] | None) -> None:
        count = batch.count
        if count == 0:
            return
        body = batch.records_bytes(_MAX_BODY)
        if not 0 < count * _MIN_RECORD_SIZE <= len(body) <= _MAX_BODY:
            assert error is not None or len(body) > _MAX_BODY
            return
        header = bytes(batch.buffer[:BATCH_HEADER_SIZE])
        self._rows.put(header.ljust(ROW_SIZE, b"\0"))
        wanted = _WANTED[count % len(_WANTED)] if len(body) & 1 else _WANTED[0]
        slots = self._new_slots(count, len(body), wanted)
        slots[Slot.VERIFY] = batch.codec is Codec.NONE  # the checksum of a compressed batch is not that of its records
        broken = decoding.decode(
            self._rows.end - ROW_SIZE, self._open(body, SLACK, header), 1, self._slots.end - 8 * len(Slot)
        )
        assert (broken != ALL_DECODED) == (error is not None), "the kernel and the records disagree"
        if broken == ALL_DECODED:
            assert slots[Slot.ROWS] == count
            self._compare(slots, rows)
            if "HEADER" in wanted and slots[Slot.HEADER_COUNT]:
                self._gather_headers(slots, rows)

    def _compare(self, slots: np.ndarray[Any, Any], rows: list[Row]) -> None:
        count = len(rows)
        offsets = np.frombuffer(self._targets[Slot.OFFSETS].at_end(8 * count), np.int64)
        times = np.frombuffer(self._targets[Slot.TIMESTAMPS].at_end(8 * count), np.int64)
        assert offsets.tolist() == [row[2] for row in rows]
        assert times.tolist() == [row[3] for row in rows]
        for name, column in (("KEY", 0), ("VALUE", 1)):
            if slots[Slot[f"{name}_OFFSETS"]]:
                guarded = self._targets[Slot[f"{name}_DATA"]]
                start = int(slots[Slot[f"{name}_DATA"]]) - guarded.first
                used = guarded.at_start(guarded.room)[start : start + int(slots[Slot[f"{name}_BYTES"]])]
                assert used == b"".join(row[column] or b"" for row in rows)
                assert slots[Slot[f"{name}_NULLS"]] == sum(row[column] is None for row in rows)

    def _gather_headers(self, slots: np.ndarray[Any, Any], rows: list[Row]) -> None:
        count, max_bytes = int(slots[Slot.HEADER_COUNT]), int(slots[Slot.HEADER_BYTES])
        key_offsets, key_data, value_offsets, value_data, validity = self._header_targets
        key_offsets.array(count + 1, np.int32)
        value_offsets.array(count + 1, np.int32)
        validity.array((count + 7) // 8, np.uint8, 0xFF)
        _, value_bytes, nulls, _ = decoding.gather_headers(
            int(slots[Slot.HEADER_PLACES]),
            int(slots[Slot.HEADER_OFFSETS]),
            len(rows),
            key_offsets.end - 4 * (count + 1),
            key_data.end - max_bytes,
            value_offsets.end - 4 * (count + 1),
            value_data.end - max_bytes - SLACK,
            validity.end - (count + 7) // 8,
        )
        values = [header["value"] for row in rows for header in row[4] or ()]
        start = value_data.room - max_bytes - SLACK
        assert value_data.at_start(value_data.room)[start : start + value_bytes] == b"".join(
            value or b"" for value in values
        )
        assert nulls == values.count(None)

    def _decode_messages(self, entry: LegacyBatch, rows: list[Row], error: type[Exception] | None) -> None:
        body = entry.buffer if entry.count else entry.records_bytes(_MAX_BODY)
        if len(body) > _MAX_BODY:
            return
        self._rows.put(bytes(entry.buffer[:BATCH_HEADER_SIZE]).ljust(ROW_SIZE, b"\0"))
        table = self._open(body, 0)
        counts = self._positions.array(1, np.int64)
        if messages.count_messages(table, 1, self._positions.end - 8) != ALL_DECODED:
            assert error is not None
            return
        count = int(counts[0])
        slots = self._new_slots(count, len(body), ("KEY", "VALUE"))
        broken = messages.decode_messages(self._rows.end - ROW_SIZE, table, 1, self._slots.end - 8 * len(Slot))
        assert (broken != ALL_DECODED) == (error is not None), "the kernel and the records disagree"
        if broken == ALL_DECODED:
            assert slots[Slot.ROWS] == count
            self._compare(slots, rows)


class DirectEncoder:
    """Encodes columns that lie between guard pages into a target that is exactly as large as it must be."""

    def __init__(self) -> None:
        self._columns = {column: [Guarded(_ROOM) for _ in range(3)] for column in _BINARY_INPUTS}
        self._lists = [Guarded(_ROOM), Guarded(_ROOM)]
        self._timestamps = Guarded(_ROOM)
        self._target = Guarded(_ROOM)
        self._cuts = Guarded(_ROOM)
        self._words = Guarded(_ROOM)

    def judge(self, rng: random.Random, rows: list[NewRecord]) -> None:
        """Encode `rows` with a random batch size; the bytes must be those of `cut_batches`."""
        batch_size = rng.choice((0, 68, 100, 300, 16_384))
        batches = [bytes(batch) for batch in cut_batches(rows, batch_size=batch_size)]
        size = sum(map(len, batches))
        words = self._words.array(Input.WORDS, np.int64)
        words[Input.ROWS] = len(rows)
        words[Input.BATCH_SIZE] = batch_size
        for field in (Input.BASE_OFFSET, Input.LEADER_EPOCH, Input.PRODUCER_ID, Input.PRODUCER_EPOCH):
            words[field] = -1
        words[Input.BASE_SEQUENCE] = -1
        self._put_binary(rng, words, Input.KEY, [row.key for row in rows])
        self._put_binary(rng, words, Input.VALUE, [row.value for row in rows])
        self._put_headers(rng, words, rows)
        self._timestamps.array(len(rows), np.int64)[:] = [row.timestamp_ms for row in rows]
        words[Input.TIMESTAMPS] = self._timestamps.end - 8 * len(rows)
        words[Input.CUTS] = self._cuts.end - 8 * CUT_WORDS * len(batches)
        words[Input.MAX_CUTS] = len(batches)
        for missing in (0, 1):  # a target of exactly the right size, and one that is too small for the last batch
            capacity = size - missing
            words[Input.TARGET] = self._target.end - capacity - SLACK
            words[Input.CAPACITY] = capacity
            following, written, made = encode(self._words.end - 8 * Input.WORDS, 0)
            assert made == len(batches) - missing
            assert self._target.at_end(capacity + SLACK)[:written] == b"".join(batches[:made])
            assert following == (len(rows) if not missing else len(rows) - RecordBatch(batches[-1]).count)

    def _put_binary(
        self, rng: random.Random, words: np.ndarray[Any, Any], column: Input, values: list[bytes | None]
    ) -> None:
        offsets, data, validity = self._columns[column]
        data.put(b"".join(value or b"" for value in values))
        ends = np.cumsum([0, *(len(value or b"") for value in values)])
        offsets.array(len(ends), np.int32)[:] = ends
        first_bit = rng.randrange(20)
        self._put_bits(validity, first_bit, [value is not None for value in values])
        words[column : column + 5] = (
            offsets.end - 4 * len(ends),
            data.end - int(ends[-1]),
            data.end,
            validity.end - (first_bit + len(values) + 7) // 8,
            first_bit,
        )

    @staticmethod
    def _put_bits(validity: Guarded, first_bit: int, bits: list[bool]) -> None:
        validity.put(np.packbits(np.array([False] * first_bit + bits, bool), bitorder="little").tobytes())

    def _put_headers(self, rng: random.Random, words: np.ndarray[Any, Any], rows: list[NewRecord]) -> None:
        pairs = [header for row in rows for header in row.headers]
        self._put_binary(rng, words, Input.HEADER_KEY, [header.key.encode() for header in pairs])
        self._put_binary(rng, words, Input.HEADER_VALUE, [header.value for header in pairs])
        lists, validity = self._lists
        lists.array(len(rows) + 1, np.int32)[:] = np.cumsum([0, *(len(row.headers) for row in rows)])
        first_bit = rng.randrange(20)
        self._put_bits(validity, first_bit, [bool(row.headers) for row in rows])
        words[Input.HEADER_LISTS] = lists.end - 4 * (len(rows) + 1)
        words[Input.HEADER_VALIDITY] = validity.end - (first_bit + len(rows) + 7) // 8
        words[Input.HEADER_FIRST_BIT] = first_bit


_BINARY_INPUTS = (Input.KEY, Input.VALUE, Input.HEADER_KEY, Input.HEADER_VALUE)
_OFFSET_SLOTS = (Slot.KEY_OFFSETS, Slot.VALUE_OFFSETS, Slot.HEADER_OFFSETS)
_VALIDITY_SLOTS = (Slot.KEY_VALIDITY, Slot.VALUE_VALIDITY, Slot.HEADER_VALIDITY)
_WANTED: tuple[tuple[str, ...], ...] = (("KEY", "VALUE", "HEADER"), ("KEY",), ("VALUE", "HEADER"), ())
