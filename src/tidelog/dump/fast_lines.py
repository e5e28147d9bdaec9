"""The lines of a `.log` file at memory speed: a kernel builds them, and leaves what it doubts to the readable path.

The readable path is the truth, and this writes the same bytes or nothing. A batch is left to it whole: control records,
old formats, a checksum or a record that is wrong, numbers that Kafka never wrote. The words of a line are tables here,
made from what `Release` tells of it; the tests hold them against the readable path, release by release.

    fast = writer_for(file, end, release, options, decoder, state, out)
    position = fast.write_from(position)        the lines of whole batches, as far as there is no doubt

The file is read into one buffer that is used again and again, and text goes out in large pieces. Neither numpy nor a
compiler is loaded before something needs them: small files never do, and batch lines only once per machine.
"""

from array import array
from collections.abc import Callable, Iterator
from ctypes import addressof, c_char
from functools import cache
from mmap import mmap
from threading import Thread
from typing import TYPE_CHECKING

from tidelog.dump.batch_lines import codec_name
from tidelog.dump.plain_text import PlainText
from tidelog.errors import TidelogError
from tidelog.kernels.line_templates import (
    FIELDS,
    ROOM_BEHIND,
    SLOTS,
    Field,
    Kind,
    Met,
    Names,
    Piece,
    Slot,
    Stop,
    Template,
)
from tidelog.records.batch import PREFIX_SIZE
from tidelog.records.compression import Codec

if TYPE_CHECKING:
    from tidelog.dump.log_text import Decoder, LogOptions, LogState
    from tidelog.dump.output import Output
    from tidelog.dump.releases import Release
    from tidelog.log.files import ReadFile

__all__ = ["FastLines", "writer_for"]

_KERNEL_FROM = 1 << 20  # bytes: below, loading the kernel takes longer than the readable path
_WINDOW_BYTES = 4 << 20
_HEAD_BYTES = 1 << 20  # before a window: room for the beginning of its first batch, which the one before it ended with
_TEXT_BYTES = 4 << 20
_GAPS = 1 << 14
_OPENED_BYTES = 1 << 20  # of compressed bodies, at once
_OPENED_BATCHES = 256
_CONTROL_BIT = 0x20


def writer_for(
    file: "ReadFile",
    end: int,
    release: "Release",
    options: "LogOptions",
    decoder: "Decoder",
    state: "LogState",
    out: "Output",
    *,
    fast: bool | None = None,
) -> "FastLines | None":
    """Who writes the lines of `file` up to `end` fast; None where there is too little of it, unless `fast` says so, or
    where there are words that are not written here: those of a decoder, or of the oldest releases."""
    has_other_words = release.log_lines == "messages" or (options.data and not isinstance(decoder, PlainText))
    if has_other_words or not (end >= _KERNEL_FROM if fast is None else fast):
        return None
    return FastLines(file, end, _words_of(release, options), state, out)


# -- the words of a release --------------------------------------------------------------------------------------------


class _Words:
    """The lines of a release under some options."""

    def __init__(self, release: "Release", options: "LogOptions") -> None:
        has_batch_line = not options.deep or release.log_lines == "batches and records"
        self.batch = Template([*_batch_line(release)] if has_batch_line else [])
        self.record = Template([*_record_line(release, options)] if options.deep else [])
        self.with_records = options.deep
        codecs = [codec for codec in Codec if codec is not Codec.ZSTD or release.zstd]
        self.names = Names([codec_name(codec, release) for codec in codecs])


@cache
def _words_of(release: "Release", options: "LogOptions") -> _Words:
    return _Words(release, options)


def _number(literal: str, field: Field) -> Piece:
    return Piece(literal, Kind.NUMBER, field)


def _name(literal: str, field: Field) -> Piece:
    return Piece(literal, Kind.NAME, field)


def _batch_line(release: "Release") -> Iterator[Piece]:
    """The line of a version 2 batch."""
    yield _number("baseOffset: ", Field.BASE_OFFSET)
    yield _number(" lastOffset: ", Field.LAST_OFFSET)
    if release.batch_count:
        yield _number(" count: ", Field.COUNT)
    yield _number(" baseSequence: ", Field.BASE_SEQUENCE)
    yield _number(" lastSequence: ", Field.LAST_SEQUENCE)
    yield _number(" producerId: ", Field.PRODUCER_ID)
    yield _number(" producerEpoch: ", Field.PRODUCER_EPOCH)
    yield _number(" partitionLeaderEpoch: ", Field.PARTITION_LEADER_EPOCH)
    yield _name(" isTransactional: ", Field.IS_TRANSACTIONAL)
    if release.batch_is_control:
        yield _name(" isControl: ", Field.IS_CONTROL)
    if release.batch_delete_horizon:
        yield Piece(" deleteHorizonMs: OptionalLong.empty", conditions=Met.NO_DELETE_HORIZON)
        yield _number(" deleteHorizonMs: OptionalLong[", Field.BASE_TIMESTAMP)._replace(conditions=Met.DELETE_HORIZON)
        yield Piece("]", conditions=Met.DELETE_HORIZON)
    yield _number(" position: ", Field.POSITION)
    yield _name(" ", Field.TIMESTAMP_TYPE)
    yield _number(": ", Field.MAX_TIMESTAMP)
    if not release.batch_valid_last:
        yield _name(" isvalid: ", Field.IS_VALID)
    yield _number(" size: ", Field.SIZE)
    yield _name(" magic: 2 compresscodec: ", Field.CODEC)
    yield _number(" crc: ", Field.CRC)
    if release.batch_valid_last:
        yield _name(" isvalid: ", Field.IS_VALID)
    yield Piece("\n")


def _record_line(release: "Release", options: "LogOptions") -> Iterator[Piece]:
    """The line of a record that is no control record."""
    if options.metadata:
        match release.record_line:
            case "wide":
                yield from _wide_metadata(release)
            case "verbose":
                yield from _verbose_metadata()
            case "indented":
                yield from _short_metadata("keysize", "valuesize")
            case "short":
                yield from _short_metadata("keySize", "valueSize")
        yield _number(" sequence: ", Field.SEQUENCE)
        if release.record_line == "wide":
            yield _name(" isTransactional: ", Field.IS_TRANSACTIONAL)
        yield Piece(" headerKeys: [", Kind.HEADER_NAMES)
        yield Piece("]")
    if options.data:
        yield from _data(release, options)
    yield Piece("\n")


def _wide_metadata(release: "Release") -> Iterator[Piece]:
    """Of releases that have either lines of batches or lines of records."""
    yield _number("offset: ", Field.OFFSET)
    yield _number(" position: ", Field.POSITION)
    yield _name(" ", Field.TIMESTAMP_TYPE)
    yield _number(": ", Field.TIMESTAMP)
    yield _name(" isvalid: ", Field.IS_VALID)
    yield _number(" keysize: ", Field.KEY_SIZE)
    yield _number(" valuesize: ", Field.VALUE_SIZE)
    yield _name(" magic: 2 compresscodec: ", Field.CODEC)
    yield _number(" producerId: ", Field.PRODUCER_ID)
    if release.record_producer_epoch:
        yield _number(" producerEpoch: ", Field.PRODUCER_EPOCH)


def _verbose_metadata() -> Iterator[Piece]:
    """Of 2.8, which repeats the batch in each of its records."""
    yield _number("| offset: ", Field.OFFSET)
    yield _name(" isValid: ", Field.IS_VALID)
    yield _number(" crc: null keySize: ", Field.KEY_SIZE)
    yield _number(" valueSize: ", Field.VALUE_SIZE)
    yield _name(" ", Field.TIMESTAMP_TYPE)
    yield _number(": ", Field.TIMESTAMP)
    yield _number(" baseOffset: ", Field.BASE_OFFSET)
    yield _number(" lastOffset: ", Field.LAST_OFFSET)
    yield _number(" baseSequence: ", Field.BASE_SEQUENCE)
    yield _number(" lastSequence: ", Field.LAST_SEQUENCE)
    yield _number(" producerEpoch: ", Field.PRODUCER_EPOCH)
    yield _number(" partitionLeaderEpoch: ", Field.PARTITION_LEADER_EPOCH)
    yield _number(" batchSize: ", Field.SIZE)
    yield _name(" magic: 2 compressType: ", Field.CODEC)
    yield _number(" position: ", Field.POSITION)


def _short_metadata(key_size: str, value_size: str) -> Iterator[Piece]:
    yield _number("| offset: ", Field.OFFSET)
    yield _name(" ", Field.TIMESTAMP_TYPE)
    yield _number(": ", Field.TIMESTAMP)
    yield _number(f" {key_size}: ", Field.KEY_SIZE)
    yield _number(f" {value_size}: ", Field.VALUE_SIZE)


def _data(release: "Release", options: "LogOptions") -> Iterator[Piece]:
    """Key and payload, as far as the record has them."""
    bar = " " if options.metadata else "| "
    with_key = Met.KEY if release.null_value == "key" else Met.KEY | Met.VALUE
    yield Piece(f"{bar}key: ", Kind.KEY, conditions=with_key)
    yield Piece(" payload: ", Kind.VALUE, conditions=Met.KEY | Met.VALUE)
    alone = bar if release.bar_without_key else " "
    yield Piece(f"{alone}payload: ", Kind.VALUE, conditions=Met.NO_KEY | Met.VALUE)


# -- the walk ----------------------------------------------------------------------------------------------------------


class FastLines:
    """Writes the lines of one file, from any batch on."""

    def __init__(self, file: "ReadFile", end: int, words: _Words, state: "LogState", out: "Output") -> None:
        self._words = words
        self._state = state
        self._out = out
        self._write_lines = _kernel()
        self._slots = array("q", bytes(8 * SLOTS))
        self._fields = array("q", bytes(8 * FIELDS))
        self._bodies: object = None  # what the table of bodies stands on
        self._window = _Window(file, end)
        self._make_room(_TEXT_BYTES, _GAPS)
        self._set(WITH_RECORDS=int(words.with_records), CODECS=words.names.codecs, NAMES=words.names.address)
        self._set(BATCH_LINE=words.batch.address, BATCH_PIECES=words.batch.pieces, BATCH_ROOM=words.batch.room)
        self._set(RECORD_LINE=words.record.address, RECORD_PIECES=words.record.pieces, RECORD_ROOM=words.record.room)
        self._set(FIELDS=self._fields.buffer_info()[0])

    def write_from(self, position: int) -> int:
        """Write the lines of the batches from `position` on, as far as there is no doubt: the position behind them."""
        while True:
            stop = self._write_window(position)
            position += self._slots[Slot.DONE]
            match stop:
                case Stop.END:
                    if not self._window.read_on(position):
                        return position
                case Stop.FULL:
                    if not self._slots[Slot.DONE]:
                        text = max(self._slots[Slot.WANTED_ROOM], self._slots[Slot.TEXT_SIZE])
                        gaps = max(self._slots[Slot.WANTED_GAPS], self._slots[Slot.GAPS_SIZE])
                        self._make_room(text, gaps)
                case Stop.COMPRESSED:
                    if not self._open_bodies(position):
                        return position
                case Stop.IN_DOUBT:
                    return position

    def _write_window(self, position: int) -> Stop:
        """One run of the kernel over what is left of the window, and what came of it."""
        data = self._window.data_from(position)
        self._set(DATA=_address(data) if data else 0, DATA_SIZE=len(data), BASE_POSITION=position)
        stop = Stop(self._write_lines(self._slots.buffer_info()[0]))
        self._set(BODIES=0, BODIES_COUNT=0)
        self._bodies = None
        self._out.write_bytes(memoryview(self._text)[: self._slots[Slot.WRITTEN]])
        self._follow_offsets()
        return stop

    def _follow_offsets(self) -> None:
        if self._slots[Slot.RECORDS]:
            self._state.follow(self._slots[Slot.FIRST_OFFSET])
            found = self._gaps[: 2 * self._slots[Slot.GAPS_FOUND]]
            for previous, offset in zip(found[::2], found[1::2], strict=True):
                self._state.note_gap(previous, offset)
            self._state.last_offset = self._slots[Slot.LAST_OFFSET]

    def _open_bodies(self, position: int) -> bool:
        """Decompress the next batches of the window, some at once; False if already the first cannot be.

        Only up to the first that is in doubt by its header, where the kernel will stop: in a log of short transactions
        that is every other one.
        """
        from tidelog.kernels.bodies import open_bodies
        from tidelog.kernels.headers import Checksum, scan_headers

        window = self._window.data_from(position)
        scan = scan_headers(window, max_batches=_OPENED_BATCHES)
        is_control = scan.rows["attributes"] & _CONTROL_BIT != 0
        is_plain = (scan.rows["magic"] == 2) & (scan.checksums != Checksum.WRONG) & ~is_control
        sound = len(scan.rows) if is_plain.all() else int(is_plain.argmin())
        opened = open_bodies(window, scan.first(sound), budget=_OPENED_BYTES)
        self._bodies = opened
        self._set(BODIES=opened.table.ctypes.data, BODIES_COUNT=len(opened.table))
        return len(opened.table) > 0

    def _make_room(self, text: int, gaps: int) -> None:
        self._text = bytearray(text + ROOM_BEHIND)
        self._gaps = array("q", bytes(16 * gaps))
        self._set(TEXT=_address(self._text), TEXT_SIZE=text, GAPS=self._gaps.buffer_info()[0], GAPS_SIZE=gaps)

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self._slots[Slot[name]] = value


# -- the file ----------------------------------------------------------------------------------------------------------


class _Window:
    """A part of the file in memory, and the next part on its way.

    Parts are read one behind the other while the kernel works on the one before. What a part ends with, the beginning
    of a batch, is copied in front of the next.
    """

    def __init__(self, file: "ReadFile", end: int) -> None:
        self._file = file
        self._end = end
        self._size = min(_WINDOW_BYTES, end)
        self._data = self._new_buffer()
        self._at = _HEAD_BYTES  # where the window begins in its buffer, and in the file
        self._start = 0
        self._filled = 0
        self._other = self._new_buffer() if end > self._size else self._data
        self._reading: _Reading | None = None

    def data_from(self, position: int) -> memoryview:
        """What the window holds from a position on. The bytes behind it may be read, and do not count."""
        at = position - self._start
        return memoryview(self._data)[self._at + at : self._at + self._filled] if at >= 0 else memoryview(b"")

    def read_on(self, position: int) -> bool:
        """Let the window begin at `position` and be large enough for its batch; False if that is not all there."""
        behind = self._start + self._filled
        if self._start <= position and behind >= self._end:
            return False
        if (
            self._reading is not None
            and self._reading.position == behind
            and behind - _HEAD_BYTES <= position <= behind
        ):
            return self._take_next(position)
        if position == self._start and self._filled:
            size = PREFIX_SIZE + int.from_bytes(self.data_from(position)[8:PREFIX_SIZE], "big", signed=True)
            if size <= self._size or size > self._end - position:
                return False
            self._drop_next()
            self._size = size
            self._data, self._other = self._new_buffer(), self._new_buffer()
        self._drop_next()
        self._start, self._at = position, _HEAD_BYTES
        self._filled = self._read(self._data, position).result()
        self._read_ahead()
        return self._filled > 0

    def _take_next(self, position: int) -> bool:
        """Go on with the part that was read meanwhile."""
        assert self._reading is not None
        tail = self.data_from(position)
        count = self._reading.result()
        self._reading = None
        self._other[_HEAD_BYTES - len(tail) : _HEAD_BYTES] = tail
        self._data, self._other = self._other, self._data
        self._start, self._at, self._filled = position, _HEAD_BYTES - len(tail), len(tail) + count
        self._read_ahead()
        return count > 0

    def _read_ahead(self) -> None:
        if self._start + self._filled < self._end:
            self._reading = self._read(self._other, self._start + self._filled)

    def _drop_next(self) -> None:
        if self._reading is not None:
            self._reading.join()  # it writes into a buffer that is needed
            self._reading = None

    def _read(self, buffer: mmap, position: int) -> "_Reading":
        size = min(self._size, self._end - position)
        return _Reading(self._file, position, memoryview(buffer)[_HEAD_BYTES : _HEAD_BYTES + size])

    def _new_buffer(self) -> mmap:
        """Memory that begins with a page: the system copies into it four times as fast as into a bytearray."""
        return mmap(-1, _HEAD_BYTES + self._size + ROOM_BEHIND)


class _Reading(Thread):
    """A part of the file on its way into memory."""

    def __init__(self, file: "ReadFile", position: int, target: memoryview) -> None:
        super().__init__(daemon=True)
        self.position = position
        self._file = file
        self._target = target
        self._outcome: int | TidelogError = 0
        self.start()

    def run(self) -> None:
        try:
            self._outcome = self._file.read_into(self.position, self._target)
        except TidelogError as error:
            self._outcome = error

    def result(self) -> int:
        """How many bytes were there, once they are; or what went wrong."""
        self.join()
        if isinstance(self._outcome, TidelogError):
            raise self._outcome
        return self._outcome


def _address(buffer: bytearray | memoryview) -> int:
    return addressof(c_char.from_buffer(buffer))


@cache
def _kernel() -> Callable[[int], int]:
    """The kernel, with the compiler only where it was never compiled."""
    from tidelog.kernels import machine_code

    ready = machine_code.kept("log_lines.write_lines")
    if ready is not None:
        return ready
    from tidelog.kernels.log_lines import write_lines

    return write_lines.compiled
