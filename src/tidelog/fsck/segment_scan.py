"""Reading a `.log` file from its first byte to its last: which batches are sound, and where there is something else.

The file is read in windows small enough to stay in the processor's cache; kernels find the headers and compare the
checksums, and with `deep` walk over every record. What is known of the sound batches is kept in columns, some 60 bytes
a batch, for everything that is compared with the log afterwards.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import CorruptionError, InvalidRecordError, TidelogError, UnsupportedError
from tidelog.fsck.resync import Resync, is_zero
from tidelog.kernels.bodies import locate
from tidelog.kernels.buffers import address_of
from tidelog.kernels.decode import BODY_WORDS, ROW_SIZE
from tidelog.kernels.headers import (
    BATCH_ROW,
    HeaderScan,
    Seen,
    StopReason,
    check_batches,
    check_headers,
    scan,
    scan_headers,
)
from tidelog.kernels.memory import SLACK
from tidelog.kernels.record_walk import COLUMNS, BatchVerdict, header_columns, verdict_of, walk, walk_records
from tidelog.log.batch_info import CONTROL, TRANSACTIONAL, BatchInfo, batch_info
from tidelog.log.batch_windows import BatchWindow
from tidelog.log.files import ReadFile
from tidelog.log.producer_rebuild import worth_replaying
from tidelog.records.batch import MAGIC, PREFIX_SIZE, RecordBatch
from tidelog.records.batches import HEADER_SIZE_UP_TO_MAGIC, batch_of
from tidelog.records.compression import Codec
from tidelog.records.control import EndTxnMarker, end_txn_marker_of
from tidelog.records.legacy import MIN_MESSAGE_SIZE

__all__ = ["Batches", "Damage", "ProducerStep", "SegmentFacts", "scan_segment"]

_WINDOW = 2 << 20
_USUAL_BATCH = 256  # bytes; windows of smaller ones are read the long way
_REPLAYED_AT_ONCE = 1024
_COMPRESSED, _UNUSUAL = int(Seen.COMPRESSED), int(Seen.LEGACY | Seen.WRONG_CHECKSUM)  # flags cost more than numbers
_LARGEST_CODEC = max(int(codec) for codec in Codec)
_CODEC_BITS = 0x07

Batches = np.ndarray[Any, np.dtype[Any]]


class Damage(NamedTuple):
    """Bytes that are no sound batch."""

    position: int
    size: int
    code: str
    why: str
    right_magic: int | None = None  # with which it would be a sound batch

    @property
    def end(self) -> int:
        return self.position + self.size


class ProducerStep(NamedTuple):
    """A batch that changes what is known of producers."""

    batch: BatchInfo
    marker: EndTxnMarker | None


class SegmentFacts:
    """What lies in a `.log` file."""

    def __init__(self, path: str, base_offset: int, size: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = size
        self.batches: Batches = np.empty(0, COLUMNS)
        self.damage: list[Damage] = []
        self.odd_times: list[tuple[int, str]] = []  # positions of batches whose header names another largest timestamp
        self.steps: list[ProducerStep] = []
        self.records = 0
        self.has_producers = False

    @property
    def next_offset(self) -> int:
        """The offset behind the last sound batch."""
        return int(self.batches["last"][-1]) + 1 if len(self.batches) else self.base_offset

    @property
    def sound_end(self) -> int:
        """Where the last sound batch ends."""
        return int(self.batches["position"][-1] + self.batches["size"][-1]) if len(self.batches) else 0

    @property
    def max_timestamp_ms(self) -> int:
        return int(self.batches["time"].max()) if len(self.batches) else -1

    @property
    def looks_compacted(self) -> bool:
        """Whether a batch holds fewer records than it was written with."""
        batches = self.batches[self.batches["magic"] >= MAGIC]
        is_short = batches["count"] < batches["last"] - batches["first"] + 1
        return bool(is_short.any() or (batches["attributes"] & 0x40).any())


def scan_segment(
    file: ReadFile,
    base_offset: int,
    *,
    deep: bool = False,
    on_bytes: Callable[[int], None] = lambda count: None,
    window: int = _WINDOW,
) -> SegmentFacts:
    """Read a segment to its end, over whatever damage there is."""
    return _Scan(file, base_offset, deep, on_bytes).run(window)


class _Scan:
    def __init__(self, file: ReadFile, base_offset: int, deep: bool, on_bytes: Callable[[int], None]) -> None:
        self.facts = SegmentFacts(file.path, base_offset, file.size)
        self._file = file
        self._size = self.facts.size
        self._deep = deep
        self._on_bytes = on_bytes
        self._resync = Resync(file, self._size, base_offset)
        self._parts: list[Batches] = []
        self._rows: list[Any] = []  # headers that are not yet among the parts, and where they stand
        self._positions: list[Any] = []
        self._has_legacy = False
        self._skimmed = 0  # how many batches the table holds

    def run(self, window: int) -> SegmentFacts:
        room = bytearray(min(window, self._size) + SLACK)  # a walk may read a little behind the last record
        self._table = _Table(room)
        position = 0
        while position < self._size:
            target = memoryview(room)[: min(len(room) - SLACK, self._size - position)]
            data = target[: self._file.read_into(position, target)]
            taken, is_stuck = self._skim(data), False
            if taken:
                self._keep(position)
            else:
                taken, is_stuck = self._take(data, position)
            if taken:
                self._on_bytes(taken)
                position += taken
            elif not is_stuck and len(data) == len(target) and position + len(data) < self._size:
                room = bytearray(min(2 * len(room), self._size - position) + SLACK)  # a batch larger than the window
                self._table = _Table(room)
                continue
            if not taken or is_stuck:
                behind = self._step_over(position)
                self._on_bytes(behind - position)
                position = behind
        self._settle_run()
        self.facts.batches = np.concatenate(self._parts) if self._parts else self.facts.batches
        self.facts.damage.sort()
        return self.facts

    # -- sound batches -------------------------------------------------------------------------------------------

    def _skim(self, data: memoryview) -> int:
        """Look through a window in which nothing is out of the ordinary, in two or three calls; else 0."""
        table = self._table
        address, size = table.window, len(data)
        found, end, reason, seen, _ = scan(address, size, table.rows, table.positions, table.checksums, table.capacity)
        self._skimmed = found
        if not found or reason or seen & _UNUSUAL:
            return 0
        if not self._deep:
            wrong = check_batches(address, table.rows, table.positions, table.checksums, found)
            return 0 if wrong else end
        if seen & _COMPRESSED:
            return 0
        locate(address, size, table.rows, table.positions, found, table.bodies)
        walk(table.rows, table.bodies, found, 1, table.checksums)
        return 0 if table.memory[table.checksums_at : table.checksums_at + found].any() else end

    def _keep(self, position: int) -> None:
        """Keep the headers that were skimmed."""
        memory, found = self._table.memory, self._skimmed
        self._rows.append(memory[: ROW_SIZE * found].copy())
        at = self._table.positions_at
        self._positions.append(memory[at : at + 8 * found].view(np.int64) + position)

    def _take(self, data: memoryview, position: int) -> tuple[int, bool]:
        """Take in the sound batches at the start of a window: how many bytes, and whether something else follows."""
        headers = scan_headers(data, verify=not self._deep)
        is_stuck = headers.reason is StopReason.CORRUPT
        verdicts = None
        if self._deep and not headers.seen & (Seen.LEGACY | Seen.COMPRESSED | Seen.WRONG_CHECKSUM):
            verdicts = walk_records(data, headers).verdicts  # compares the checksums on the way
            wrong = _first(verdicts == BatchVerdict.WRONG_CHECKSUM) if verdicts.any() else None
        else:
            headers = check_headers(data, headers)
            wrong = headers.first_wrong()
        if wrong is not None:
            is_stuck = True
            end = int(headers.positions[wrong])
            headers = headers.first(wrong)._replace(end=end)
            verdicts = None if verdicts is None else verdicts[:wrong]
        for run in headers.runs():
            if headers.seen & Seen.LEGACY and run.is_legacy[0]:
                self._settle_run()
                self._take_legacy(data, position, run)
            else:
                self._take_batches(data, position, run, verdicts)
        return headers.end, is_stuck

    def _take_batches(self, data: memoryview, position: int, run: HeaderScan, verdicts: Any) -> None:
        """Keep the headers of version 2 batches as they are: they are made columns of all together."""
        if self._deep:
            if verdicts is None:
                verdicts = walk_records(data, run).verdicts
            if verdicts.any():
                run = self._without_broken(data, position, run, verdicts)
        self._rows.append(np.ascontiguousarray(run.rows).view(np.uint8))
        self._positions.append(run.positions + position)

    def _without_broken(self, data: memoryview, position: int, run: HeaderScan, verdicts: Any) -> HeaderScan:
        """Note what a walk over the records found; the batches that can be read."""
        for index in np.flatnonzero(verdicts == BatchVerdict.WRONG_TIME).tolist():
            self.facts.odd_times.append((position + int(run.positions[index]), _words(run, data, index)))
        is_broken = (verdicts == BatchVerdict.BROKEN) | (verdicts == BatchVerdict.WRONG_OFFSETS)
        for index in np.flatnonzero(is_broken).tolist():
            self._refuse(run.rows[index], position + int(run.positions[index]))
        return run.pick(~is_broken) if is_broken.any() else run

    def _settle_run(self) -> None:
        """Make columns of the headers that were kept."""
        if not self._rows:
            return
        rows, positions = np.concatenate(self._rows).view(BATCH_ROW), np.concatenate(self._positions)
        self._rows, self._positions = [], []
        batches, odd = header_columns(rows, positions)
        if odd:
            is_odd = (batches["attributes"] & _CODEC_BITS > _LARGEST_CODEC) | (batches["last"] < batches["first"])
            is_odd |= batches["magic"] > MAGIC
            for index in np.flatnonzero(is_odd).tolist():
                self._refuse(rows[index], int(positions[index]))
            rows, positions, batches = rows[~is_odd], positions[~is_odd], batches[~is_odd]
        if len(batches) and batches["producer"].max() >= 0:
            self._note_producers(rows, positions)
        self.facts.records += int(np.maximum(batches["count"], 0).sum())
        self._parts.append(batches)

    def _refuse(self, row: Any, position: int) -> None:
        """Note a batch whose checksum holds and whose records, or version, do not."""
        size = int(row["batch_length"]) + PREFIX_SIZE
        codec = int(row["attributes"]) & _CODEC_BITS
        if row["magic"] > MAGIC:
            self._damage(position, size, "LOG-MAGIC", f"magic {row['magic']}, the batch is not of that version")
        elif row["last_offset_delta"] < 0:
            self._damage(position, size, "LOG-DELTAS", f"a last offset delta of {row['last_offset_delta']}")
        elif codec > _LARGEST_CODEC:
            self._damage(position, size, "LOG-CODEC", f"compression {codec} does not exist")
        else:
            verdict, words = verdict_of(RecordBatch(self._file.read(position, size)))
            code = "LOG-DELTAS" if verdict == BatchVerdict.WRONG_OFFSETS else "LOG-RECORDS"
            self._damage(position, size, code, words)

    def _take_legacy(self, data: memoryview, position: int, run: HeaderScan) -> None:
        self._has_legacy = True
        batches = np.empty(len(run.rows), COLUMNS)
        taken = 0
        for index, start in enumerate(run.positions.tolist()):
            try:
                info = batch_info(data, start, position + start)
                entry = run.batch_in(data, index)
                first = entry.base_offset if info.codec_id else info.base_offset
                if first > info.last_offset:
                    raise InvalidRecordError(f"its first offset is {first}, its last {info.last_offset}")
                if self._deep:
                    self.facts.records += sum(1 for _ in entry)
            except (CorruptionError, UnsupportedError) as error:
                self._damage(position + start, int(run.sizes[index]), "LOG-RECORDS", str(error))
                continue
            batches[taken] = (
                info.position, info.size, first, info.last_offset, info.max_timestamp_ms,
                -1, -1, info.attributes, info.magic, -1,
            )  # fmt: skip
            taken += 1
        self._parts.append(batches[:taken])

    def _note_producers(self, rows: Any, positions: Any) -> None:
        """Keep the batches that a replay of producers needs: all of them only where everything is looked at."""
        self.facts.has_producers = True
        for start in range(0, len(rows), _REPLAYED_AT_ONCE):
            some = rows[start : start + _REPLAYED_AT_ONCE]
            if not self._deep and not (some["attributes"] & (TRANSACTIONAL | CONTROL)).any():
                continue
            some = HeaderScan(
                some, positions[start : start + _REPLAYED_AT_ONCE], np.empty(0, np.uint8), 0, StopReason.END, Seen(0)
            )
            window = BatchWindow(memoryview(b""), 0, some)
            assert window.batches  # made from the headers now: the bytes are not there any more
            for batch in worth_replaying(window):
                self._note_producer(batch)

    def _note_producer(self, batch: BatchInfo) -> None:
        marker = None
        if batch.is_control:
            try:
                marker = end_txn_marker_of(RecordBatch(self._file.read(batch.position, batch.size)))
            except TidelogError:
                return  # of the metadata quorum, or one that Kafka passes over as well
        self.facts.steps.append(ProducerStep(batch, marker))

    # -- everything else -----------------------------------------------------------------------------------------

    def _step_over(self, position: int) -> int:
        """Note what lies at a position where no sound batch does; where to go on."""
        left = self._size - position
        if left and is_zero(self._file, position, self._size):
            return self._damage(position, left, "LOG-ZEROS", f"the last {left} bytes are zero")
        head = self._file.read(position, HEADER_SIZE_UP_TO_MAGIC)
        length = int.from_bytes(head[8:PREFIX_SIZE], "big", signed=True)
        is_frame = len(head) == HEADER_SIZE_UP_TO_MAGIC < left and MIN_MESSAGE_SIZE <= length <= left - PREFIX_SIZE
        frame_end = position + PREFIX_SIZE + length
        if is_frame and (self._resync.sound_at(frame_end) is not None or self._is_end(frame_end)):
            return self._damage(position, frame_end - position, *self._fault(position, frame_end))
        behind = self._resync.next_sound(position + 1, legacy=self._has_legacy or not (self._parts or self._rows))
        if behind is not None:
            code, why = ("LOG-LENGTH", f"a batch length of {length} leads nowhere")
            return self._damage(position, behind - position, code, why)
        if is_frame:
            return self._damage(position, left, *self._fault(position, frame_end))
        if 0 <= length < MIN_MESSAGE_SIZE and left > HEADER_SIZE_UP_TO_MAGIC:
            return self._damage(position, left, "LOG-LENGTH", f"a batch length of {length}, the smallest is 14")
        return self._damage(position, left, "LOG-TORN", f"the last {left} bytes are no complete batch")

    def _is_end(self, position: int) -> bool:
        left = self._size - position
        return left <= HEADER_SIZE_UP_TO_MAGIC or is_zero(self._file, position, self._size)

    def _fault(self, position: int, end: int) -> tuple[str, str]:
        """Why a complete frame is no sound batch."""
        data = self._file.read(position, end - position)
        if data[16] > MAGIC or _right_magic(data) is not None:
            return "LOG-MAGIC", f"magic {data[16]}, the batch is not of that version"
        try:
            batch_of(data).ensure_valid()
        except TidelogError as error:
            return "LOG-CRC", str(error)
        return "LOG-CRC", "not a sound batch"

    def _damage(self, position: int, size: int, code: str, why: str) -> int:
        magic = _right_magic(self._file.read(position, size)) if code == "LOG-MAGIC" else None
        self.facts.damage.append(Damage(position, size, code, why, magic))
        return position + size


class _Table:
    """Memory that the kernels fill anew for each window. It has room for batches of a usual size."""

    def __init__(self, window: bytearray) -> None:
        self.capacity = len(window) // _USUAL_BATCH + 64
        self.window, _ = address_of(window)
        self.positions_at = ROW_SIZE * self.capacity
        bodies_at = self.positions_at + 8 * self.capacity
        self.checksums_at = bodies_at + 8 * BODY_WORDS * self.capacity
        self.memory = np.empty(self.checksums_at + self.capacity, np.uint8)
        self.rows = self.memory.ctypes.data
        self.positions = self.rows + self.positions_at
        self.bodies = self.rows + bodies_at
        self.checksums = self.rows + self.checksums_at


def _right_magic(data: bytes) -> int | None:
    """The version of which some bytes are a sound batch, were it not for the byte that tells the version."""
    for magic in range(MAGIC, -1, -1):
        other = bytearray(data)
        other[16] = magic
        try:
            batch_of(other).ensure_valid()
        except TidelogError:
            continue
        return magic
    return None


def _words(run: HeaderScan, data: memoryview, index: int) -> str:
    batch = run.batch_in(data, index)
    assert isinstance(batch, RecordBatch)
    return verdict_of(batch)[1]


def _first(which: np.ndarray[Any, np.dtype[np.bool_]]) -> int | None:
    return int(which.argmax()) if which.any() else None


def _least(one: int | None, other: int | None) -> int | None:
    return min((number for number in (one, other) if number is not None), default=None)
