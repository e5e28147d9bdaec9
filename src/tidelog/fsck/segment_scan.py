"""Reading a `.log` file from its first byte to its last: which batches are sound, and where there is something else.

The file is skimmed in windows small enough to stay in a core's cache, by a kernel: it reads them, compares checksums,
with `deep` walks over every record, and notes the headers. Whatever is out of the ordinary (damage, old formats,
compressed records to be walked over, a torn end) is read the long way, which alone would come to the same result. What
is known of the sound batches is kept in columns, 80 bytes a batch, for everything that is compared with the log
afterwards.
"""

import threading
from collections.abc import Callable
from mmap import PAGESIZE, mmap
from typing import Any

import numpy as np

from tidelog.errors import CorruptionError, DecompressedSizeError, InvalidRecordError, TidelogError, UnsupportedError
from tidelog.fsck.segment_facts import Batches, Damage, ProducerStep, RightBytes, SegmentFacts
from tidelog.kernels.buffers import address_of
from tidelog.kernels.decode import ROW_SIZE
from tidelog.kernels.headers import BATCH_ROW, HeaderScan, Seen, StopReason, check_headers, scan_headers
from tidelog.kernels.memory import SLACK
from tidelog.kernels.record_walk import (
    COLUMNS,
    BatchVerdict,
    header_columns,
    look_through,
    look_through_file,
    verdict_of,
    walk_records,
)
from tidelog.log.batch_info import CONTROL, TRANSACTIONAL, BatchInfo, batch_info
from tidelog.log.batch_windows import BatchWindow
from tidelog.log.file_sizes import check_size
from tidelog.log.files import ReadFile
from tidelog.log.producer_rebuild import worth_replaying
from tidelog.records.batch import BATCH_HEADER_SIZE, MAGIC, PREFIX_SIZE, RecordBatch
from tidelog.records.batches import HEADER_SIZE_UP_TO_MAGIC, batch_of
from tidelog.records.compression import Codec
from tidelog.records.control import end_txn_marker_of
from tidelog.records.legacy import MIN_MESSAGE_SIZE
from tidelog.view.resync import Headless, Resync, is_zero

__all__ = ["Batches", "Damage", "ProducerStep", "SegmentFacts", "scan_segment"]

_WINDOW = 2 << 20
_IN_CACHE = 1 << 20  # bytes that a core still has near when they have been read
_USUAL_BATCH = 4096
_TOLD_AT_ONCE = 16 << 20
_REPLAYED_AT_ONCE = 1024
_LARGEST_CODEC = max(int(codec) for codec in Codec)
_CODEC_BITS = 0x07
_LENGTH_AT, _MAGIC_AT, _DELTA = 8, 16, slice(23, 27)
_REMARKS = {BatchVerdict.WRONG_TIME: "LOG-TIMES", BatchVerdict.TOO_LARGE: "LOG-LARGE"}
_ENDS_TRIED = 8  # of a batch whose length is damaged: sound batches in its records come before the next one


def scan_segment(
    file: ReadFile,
    base_offset: int,
    *,
    deep: bool = False,
    on_bytes: Callable[[int], None] = lambda count: None,
    window: int = _WINDOW,
    quick: bool = True,
) -> SegmentFacts:
    """Read a segment to its end, over whatever damage there is.

    `quick` is how it is always done; without it nothing is skimmed, and the result is the same. Raises StorageError for
    a file that is larger than a segment can be.
    """
    check_size(file.path, file.size)
    return _Scan(file, base_offset, deep, on_bytes).run(window, quick=quick)


class _Scan:
    def __init__(self, file: ReadFile, base_offset: int, deep: bool, on_bytes: Callable[[int], None]) -> None:
        self.facts = SegmentFacts(file.path, base_offset, file.size)
        self._file = file
        self._size = self.facts.size
        self._deep = deep
        self._on_bytes = on_bytes
        self._resync = Resync(file, self._size, base_offset, any_offset=True)
        self._parts: list[Any] = []  # columns of sound batches
        self._headers = _Headers(self._size)  # of batches that are not yet among the parts
        self._has_legacy = False
        self._room = memoryview(b"")  # for windows that are not skimmed
        self._told = 0

    def run(self, window: int, *, quick: bool) -> SegmentFacts:
        room = _room(min(window, _IN_CACHE))
        position = 0
        while position < self._size:
            if quick:
                position, room = self._skim(position, room)
                self._tell(position)
            if position < self._size:
                position = self._read_on(position, window)
                self._tell(position)
        self._settle_run()
        self.facts.batches = Batches.joined(self._parts)
        self.facts.damage.sort()
        self.facts.remarks.sort()
        return self.facts

    def _tell(self, position: int) -> None:
        self._on_bytes(position - self._told)
        self._told = position

    # -- sound batches -------------------------------------------------------------------------------------------

    def _skim(self, position: int, room: "_Room") -> tuple[int, "_Room"]:
        """Look through the file as far as nothing is out of the ordinary.

        Gives back where that ends, and the room for the next time: it grows where batches are larger than windows.
        """
        at = position - position % PAGESIZE  # where the window begins
        while True:
            position, at, is_over = self._look_on(position, at, room)
            if is_over or at >= self._size:
                return position, room
            if at - position > room.size:
                if room.size >= _WINDOW:
                    return position, room
                room, at = _Room(2 * room.size), position - position % PAGESIZE
            elif position - self._told >= _TOLD_AT_ONCE:
                self._tell(position)

    def _look_on(self, position: int, at: int, room: "_Room") -> tuple[int, int, bool]:
        """Look through the next windows: where the next batch begins, what was read up to, and whether that is all."""
        headers, deep = self._headers, int(self._deep)
        if self._file.descriptor is None:
            window = room.window[: self._size - at]
            rows, positions = headers.room_for(room.most_batches)
            size = self._file.read_into(at, window)
            found, end, is_odd = look_through(room.address, position - at, size, at, rows, positions, deep)
            headers.count += found
            return at + end, at + size, bool(is_odd) or size < len(window)
        stop = min(self._size, at + _TOLD_AT_ONCE)
        rows, positions = headers.room_for(room.most_batches)
        found, position, at, is_odd = look_through_file(
            self._file.descriptor, at, stop, position, room.address, room.size, rows, positions, headers.room, deep
        )
        headers.count += found
        return position, at, bool(is_odd)

    def _read_on(self, position: int, window: int) -> int:
        """Take in what is at the start of a window, whatever it is; where to go on."""
        while True:
            if len(self._room) < window:
                self._room = memoryview(mmap(-1, window))
            target = self._room[: min(window, self._size - position)]
            data = target[: self._file.read_into(position, target)]
            taken, is_stuck = self._take(data, position)
            if taken and not is_stuck:
                return position + taken
            if is_stuck or len(data) < len(target) or position + len(data) >= self._size:
                return self._step_over(position + taken)
            window *= 2  # a batch is larger

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
        self._headers.append(run.rows, run.positions + position)

    def _without_broken(self, data: memoryview, position: int, run: HeaderScan, verdicts: Any) -> HeaderScan:
        """Note what a walk over the records found; the batches that can be read."""
        for verdict, code in _REMARKS.items():
            for index in np.flatnonzero(verdicts == verdict).tolist():
                self.facts.remarks.append((position + int(run.positions[index]), code, _words(run, data, index)))
        is_broken = (verdicts == BatchVerdict.BROKEN) | (verdicts == BatchVerdict.WRONG_OFFSETS)
        for index in np.flatnonzero(is_broken).tolist():
            self._refuse(run.rows[index], position + int(run.positions[index]))
        return run.pick(~is_broken) if is_broken.any() else run

    def _settle_run(self) -> None:
        """Make columns of the headers that were kept."""
        if not self._headers.count:
            return
        rows, positions = self._headers.take()
        columns, odd = header_columns(rows, positions)
        if odd:
            batches = Batches(columns)
            is_odd = (batches["attributes"] & _CODEC_BITS > _LARGEST_CODEC) | (batches["last"] < batches["first"])
            is_odd |= batches["magic"] > MAGIC
            for index in np.flatnonzero(is_odd).tolist():
                self._refuse(rows[index], int(positions[index]))
            rows, positions, columns = rows[~is_odd], positions[~is_odd], columns[:, ~is_odd]
        batches = Batches(columns)
        if len(batches) and batches["producer"].max() >= 0:
            is_unreadable = self._note_producers(rows, positions)
            if is_unreadable.any():
                columns = columns[:, ~is_unreadable]
                batches = Batches(columns)
        self.facts.records += int(np.maximum(batches["count"], 0).sum())
        self._parts.append(columns)

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
        batches = []
        for index, start in enumerate(run.positions.tolist()):
            try:
                info = batch_info(data, start, position + start)
                first = info.base_offset
                entry = run.batch_in(data, index)
                if info.codec_id:
                    first = entry.base_offset
                if first > info.last_offset:
                    raise InvalidRecordError(f"its first offset is {first}, its last {info.last_offset}")
                if self._deep:
                    self.facts.records += sum(1 for _ in entry)
            except DecompressedSizeError as error:
                self.facts.remarks.append((position + start, "LOG-LARGE", str(error)))  # `first` is its last offset
            except (CorruptionError, UnsupportedError) as error:
                self._damage(position + start, int(run.sizes[index]), "LOG-RECORDS", str(error))
                continue
            batches.append(
                (
                    info.position, info.size, first, info.last_offset, info.max_timestamp_ms,
                    -1, -1, info.attributes, info.magic, -1,
                )
            )  # fmt: skip
        self._parts.append(np.array(batches, np.int64).reshape(-1, len(COLUMNS)).T)

    def _note_producers(self, rows: Any, positions: Any) -> Any:
        """Keep the batches that a replay of producers needs: all of them only where everything is looked at.

        The markers that cannot be read are noted as damage, and told by a mask: no Kafka starts that has to read them.
        """
        self.facts.has_producers = True
        unreadable: list[int] = []
        for start in range(0, len(rows), _REPLAYED_AT_ONCE):
            some = rows[start : start + _REPLAYED_AT_ONCE]
            if not self._deep and not (some["attributes"] & (TRANSACTIONAL | CONTROL)).any():
                continue
            some = HeaderScan(
                some, positions[start : start + _REPLAYED_AT_ONCE], np.empty(0, np.uint8), 0, StopReason.END, Seen(0)
            )
            window = BatchWindow(memoryview(b""), 0, some)
            assert window.batches  # made from the headers now: the bytes are not there any more
            unreadable += [batch.position for batch in worth_replaying(window) if not self._note_producer(batch)]
        return np.isin(positions, unreadable)

    def _note_producer(self, batch: BatchInfo) -> bool:
        """Keep a batch for the replay; False for a marker that cannot be read."""
        marker = None
        if batch.is_control:
            try:
                marker = end_txn_marker_of(RecordBatch(self._file.read(batch.position, batch.size)))
            except (CorruptionError, UnsupportedError) as error:
                message = f"a transaction marker that cannot be read: {error}"
                self._damage(batch.position, batch.size, "LOG-RECORDS", message)
                return False
        self.facts.steps.append(ProducerStep(batch, marker))
        return True

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
            swallowed = self._resync.swallowed(position + 1, frame_end)
            if swallowed is not None:
                why = f"a batch length of {length} covers the batches after it"
                return self._damage_up_to(position, swallowed, "LOG-LENGTH", why)
            if self._is_end(frame_end) and self._resync.headless(position, self._size) is not None:
                return self._damage_up_to(position, self._size, *self._fault(position, frame_end))
            return self._broken_frame(position, frame_end)
        legacy = self._has_legacy or not (self._parts or self._headers.count)
        following = self._resync.next_sound(position + 1, legacy=legacy)
        if following is not None:
            why = f"a batch length of {length} leads nowhere"
            return self._damage_up_to(position, following, "LOG-LENGTH", why)
        if is_frame:
            code, why = self._fault(position, frame_end)
        elif 0 <= length < MIN_MESSAGE_SIZE and left > HEADER_SIZE_UP_TO_MAGIC:
            code, why = "LOG-LENGTH", f"a batch length of {length}, the smallest is 14"
        else:
            code, why = "LOG-TORN", f"the last {left} bytes are no complete batch"
        return self._damage_up_to(position, self._size, code, why)

    def _broken_frame(self, position: int, end: int) -> int:
        """Note bytes whose length leads to the next batch. Bytes inserted into a header can make it do so by chance."""
        code, why = self._fault(position, end)
        if code == "LOG-CRC" and (found := self._resync.short_headed(position, end)) is not None:
            return self._short_header(position, found)
        found = self._resync.headless(position + 1, end) if code == "LOG-CRC" else None
        if found is not None:
            self._damage(position, found.start - position, code, why)
            return self._damaged_header(found)
        self._look_inside(position, end)
        return self._damage(position, end - position, code, why)

    def _damage_up_to(self, position: int, following: int, code: str, why: str) -> int:
        """Note bytes up to the next sound batch, or the end; in them may be a batch with a damaged header."""
        end = following
        for _ in range(_ENDS_TRIED):
            if self._resync.is_headless(Headless(position, end)):
                return self._damaged_header(Headless(position, end))
            if (found := self._resync.short_headed(position, end)) is not None:
                return self._short_header(position, found)
            if end >= self._size:
                break
            end = self._resync.next_sound(end + 1, legacy=False) or self._size
        batches: list[Headless] = []  # the headers of several in a row may be damaged, the last one first
        end = following
        while (found := self._resync.last_headless(position, end)) is not None:
            batches.append(found)
            end = found.start
        if (found := self._resync.headless_near(position, end)) is not None:
            batches.append(found)
            end = found.start
        if end > position:
            self._damage(position, end - position, "LOG-LENGTH" if batches else code, why)
        for found in reversed(batches):
            self._damaged_header(found)
        return following

    def _damaged_header(self, found: Headless) -> int:
        """Note a batch of which only bytes are wrong that the checksum does not cover."""
        head = self._file.read(found.start, BATCH_HEADER_SIZE)
        length = int.from_bytes(head[_LENGTH_AT:PREFIX_SIZE], "big", signed=True)
        right = found.length.to_bytes(4, "big") + head[PREFIX_SIZE:_MAGIC_AT] + bytes([MAGIC])
        told = f"the batch length {length} at {found.start} becomes {found.length}"
        why = f"a batch length of {length}: with {found.length} its checksum holds"
        if head[_MAGIC_AT] != MAGIC:
            told, why = f"{told}, its magic {MAGIC}", f"{why}, and with magic {MAGIC}"
        offset, span = int.from_bytes(head[:_LENGTH_AT], "big", signed=True), int.from_bytes(head[_DELTA], "big")
        is_zeroed = not any(head[:PREFIX_SIZE])
        is_overwritten = head[_MAGIC_AT] != MAGIC or is_zeroed
        mend = RightBytes(_LENGTH_AT, right, told, offset, span, is_overwritten, is_zeroed=is_zeroed)
        self.facts.damage.append(Damage(found.start, found.end - found.start, "LOG-LENGTH", why, mend))
        return found.end

    def _short_header(self, position: int, found: Headless) -> int:
        """Note a batch that lacks some of the bytes which the checksum does not cover.

        Which of them is not known. If the length is where it belongs, counted from the end of the header, they are
        missing in the offset before it; else they are missing after the offset.
        """
        missing = position - found.start
        head = self._file.read(position, HEADER_SIZE_UP_TO_MAGIC - missing)
        length, whole = found.length.to_bytes(4, "big"), bytes(missing) + head
        is_before = whole[_LENGTH_AT:PREFIX_SIZE] == length
        known = head[: max(_LENGTH_AT - missing, 0)] if is_before else head[:_LENGTH_AT]
        epochs = [whole[PREFIX_SIZE:_MAGIC_AT]]
        if not is_before and head[_LENGTH_AT:PREFIX_SIZE] == length:  # missing in the epoch, or else in the magic
            epochs = [tail.rjust(4, b"\0")[:4] for tail in (head[PREFIX_SIZE:-1], head[PREFIX_SIZE:])]
        right = bytes(_LENGTH_AT) + length + whole[PREFIX_SIZE:_MAGIC_AT] + bytes([MAGIC])
        lost = "a byte" if missing == 1 else f"{missing} bytes"
        span = int.from_bytes(self._file.read(found.start + _DELTA.start, 4), "big")
        told = f"{lost} of the header at {position} put back"
        mend = RightBytes(
            0, right, told, span=span, is_overwritten=True, missing=missing, known=known,
            epochs=tuple(int.from_bytes(one, "big", signed=True) for one in epochs),
        )  # fmt: skip
        why = f"the header of a batch lacks {lost}: with {'it' if missing == 1 else 'them'} its checksum holds"
        self.facts.damage.append(Damage(position, found.end - position, "LOG-LENGTH", why, mend))
        return found.end

    def _look_inside(self, start: int, end: int) -> None:
        """Find sound batches inside of a damaged one. They may be what a record holds: others decide about them."""
        at = self._resync.next_sound(start + 1, legacy=False, until=end)
        while at is not None:
            info = self._resync.sound_at(at)
            assert info is not None
            if at + info.size > end:
                return
            self.facts.buried.append(
                (
                    info.position, info.size, info.base_offset, info.last_offset, info.max_timestamp_ms,
                    info.leader_epoch, info.records_count, info.attributes, info.magic, info.producer_id,
                )
            )  # fmt: skip
            at = self._resync.next_sound(at + info.size, legacy=False, until=end)

    def _is_end(self, position: int) -> bool:
        left = self._size - position
        return left <= HEADER_SIZE_UP_TO_MAGIC or is_zero(self._file, position, self._size)

    def _fault(self, position: int, end: int) -> tuple[str, str]:
        """Why a complete frame is no sound batch."""
        data = self._file.read(position, end - position)
        if len(data) < end - position:
            return "LOG-TORN", "it was cut while it was read"
        if data[16] > MAGIC or _right_magic(data) is not None:
            return "LOG-MAGIC", f"magic {data[16]}, the batch is not of that version"
        try:
            batch_of(data).ensure_valid()
        except TidelogError as error:
            return "LOG-CRC", str(error)
        return "LOG-CRC", "not a sound batch"

    def _damage(self, position: int, size: int, code: str, why: str) -> int:
        right = None
        if code == "LOG-MAGIC":
            magic = _right_magic(self._file.read(position, size))
            if magic is not None:
                right = RightBytes(_MAGIC_AT, bytes([magic]), f"the magic at {position} becomes {magic}")
        self.facts.damage.append(Damage(position, size, code, why, right))
        return position + size


class _Room:
    """Memory for a window, small enough to stay in the cache of a core, with as much before it.

    It begins where a page does, as the windows do in the file: the system copies many times slower between some other
    pairs of places.
    """

    def __init__(self, least: int) -> None:
        self.asked_for = least
        self.size = -(-least // PAGESIZE) * PAGESIZE
        memory = memoryview(mmap(-1, 2 * self.size + SLACK))  # a walk may read a little past the last record
        self.window = memory[self.size : 2 * self.size]
        self.address, _ = address_of(self.window)
        self.most_batches = 2 * self.size // BATCH_HEADER_SIZE + 1


_rooms = threading.local()


def _room(size: int) -> _Room:
    """Room of this thread for windows of a size. It is kept: the system takes its time to give out pages."""
    room: _Room | None = getattr(_rooms, "last", None)
    if room is None or room.asked_for != size:
        room = _rooms.last = _Room(size)
    return room


class _Headers:
    """The headers of version 2 batches as they stand in the file, and where: a table that grows."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self._allocate(size // _USUAL_BATCH + 2 * min(size, _IN_CACHE) // BATCH_HEADER_SIZE + 2)

    def _allocate(self, capacity: int) -> None:
        self._rows, self._positions = np.empty(capacity, BATCH_ROW), np.empty(capacity, np.int64)
        self._addresses = self._rows.ctypes.data, self._positions.ctypes.data

    @property
    def room(self) -> int:
        """How many more there is room for."""
        return len(self._rows) - self.count

    def room_for(self, batches: int) -> tuple[int, int]:
        """The addresses of the next row and the next position, with room for so many after them."""
        if self.count + batches > len(self._rows):
            rows, positions = self._rows, self._positions
            self._allocate(2 * len(rows) + batches)
            self._rows[: self.count], self._positions[: self.count] = rows[: self.count], positions[: self.count]
        rows_at, positions_at = self._addresses
        return rows_at + ROW_SIZE * self.count, positions_at + 8 * self.count

    def append(self, rows: Any, positions: Any) -> None:
        self.room_for(len(rows))
        end = self.count + len(rows)
        self._rows[self.count : end], self._positions[self.count : end] = rows, positions
        self.count = end

    def take(self) -> tuple[Any, Any]:
        """All of them; there are none then."""
        count, self.count = self.count, 0
        return self._rows[:count], self._positions[:count]


def _right_magic(data: bytes) -> int | None:
    """The version of which some bytes are a sound batch, were it not for the byte that tells the version."""
    if len(data) < PREFIX_SIZE + MIN_MESSAGE_SIZE:
        return None
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
