"""The text of a `.log` or `.checkpoint` file, from 0.11 on: its title, its batches, their records.

This is the readable path, batch by batch. For large files and the usual options `fast_lines` writes the same lines by
a kernel; it leaves every batch that is not plain sailing to this path.
"""

from typing import NamedTuple, Protocol

from tidelog.dump.batch_lines import RecordLines, batch_line_end, batch_line_start
from tidelog.dump.control_text import control_text
from tidelog.dump.fast_lines import writer_for
from tidelog.dump.java_errors import JavaError
from tidelog.dump.java_messages import read_old_records
from tidelog.dump.java_records import read_records
from tidelog.dump.java_text import JavaFile, base_offset_of, parse_int, parse_long
from tidelog.dump.log_file import FileBatch, LogFile, LogSlice
from tidelog.dump.output import Output
from tidelog.dump.releases import Release
from tidelog.dump.reports import Reports
from tidelog.records.java import MAX_INT32, wrap_int64
from tidelog.records.record import Record

__all__ = ["Decoder", "LogOptions", "LogState", "dump_log", "title_line"]

_BOOTSTRAP = "bootstrap.checkpoint"
_OFFSET_DIGITS = 20


class LogOptions(NamedTuple):
    """What of a command line concerns a `.log`."""

    deep: bool = False  # record lines are written
    data: bool = False  # with key and payload
    metadata: bool = True  # not under --skip-record-metadata
    limit: int = MAX_INT32  # --max-bytes


class Decoder(Protocol):
    """Turns the key and the value of a record into text."""

    def decode(self, record: Record) -> tuple[str | None, str | None]:
        """The texts of key and payload; None where nothing is printed. May raise JavaError, which ends the tool."""


class LogState:
    """Where the walk over the records of one file is, and the gaps between their offsets."""

    def __init__(self, file: JavaFile, release: Release, reports: Reports) -> None:
        self.last_offset: int | None = -1 if release.first_offset_is_compared else None
        self._file = file
        self._reports = reports
        self._forgets = not release.first_offset_is_compared

    def follow(self, offset: int) -> None:
        """Take the next record, and note a gap before it."""
        if self.last_offset is not None and offset != wrap_int64(self.last_offset + 1):
            self.note_gap(self.last_offset, offset)
        self.stand_at(offset)

    def stand_at(self, offset: int) -> None:
        """Take a record for the last one, whatever came before it."""
        self.last_offset = None if offset == -1 and self._forgets else offset  # -1 once stood for no record yet

    def note_gap(self, previous: int, offset: int) -> None:
        self._reports.gaps.note(self._file, previous, offset)


def title_line(file: JavaFile, release: Release) -> str:
    """The line that tells what the name of the file says."""
    if not file.name.endswith(".checkpoint"):
        return f"{release.title}: {base_offset_of(file)}\n"
    if file.name == _BOOTSTRAP:
        return "KRaft bootstrap snapshot\n"
    offset, epoch = _snapshot_id(file.name)
    return f"Snapshot end offset: {offset}, epoch: {epoch}\n"


def _snapshot_id(name: str) -> tuple[int, int]:
    """Offset and epoch of a metadata snapshot: 20 digits, a dash, 10 digits."""
    if len(name) < _OFFSET_DIGITS:
        raise JavaError(
            "java.lang.StringIndexOutOfBoundsException", f"begin 0, end {_OFFSET_DIGITS}, length {len(name)}"
        )
    return parse_long(name[:_OFFSET_DIGITS]), parse_int(name[21:31])


def dump_log(
    file: JavaFile,
    options: LogOptions,
    decoder: Decoder,
    release: Release,
    reports: Reports,
    out: Output,
    *,
    fast: bool | None = None,
) -> None:
    """Write the text of one file. Kernels are used where there is volume, unless `fast` says so or not."""
    out.write(title_line(file, release))
    with LogFile(file, release) as log:
        part = log.slice(0, options.limit) if release.is_at_least(3, 3) else log.whole()
        dump = _LogDump(part, options, decoder, release, LogState(file, release, reports), out)
        end = dump.write_batches(fast)
        if part.end > end and options.limit == MAX_INT32:
            out.write(f"Found {part.end - end} invalid bytes at the end of {file.name}\n")


class _LogDump:
    """The batches of one slice on their way to the output."""

    def __init__(
        self, part: LogSlice, options: LogOptions, decoder: Decoder, release: Release, state: LogState, out: Output
    ) -> None:
        self._part = part
        self._options = options
        self._decoder = decoder
        self._release = release
        self._state = state
        self._out = out
        self._batch_lines = release.log_lines == "batches and records" or not options.deep

    def write_batches(self, fast: bool | None = None) -> int:
        """Write all batches; give back where the last one ends.

        The kernel writes what it can, and each batch that it leaves is written here; then it goes on behind it.
        """
        part, options, release = self._part, self._options, self._release
        lines = writer_for(
            part.log.source, part.end, release, options, self._decoder, self._state, self._out, fast=fast
        )
        position = 0
        while True:
            if lines is not None:
                position = lines.write_from(position)
            batch = next(part.batches(position), None)
            if batch is None:
                return position
            self._write_batch(batch)
            position += batch.size

    def _write_batch(self, batch: FileBatch) -> None:
        if self._batch_lines:
            self._out.write(batch_line_start(batch, self._release))
            self._out.write(batch_line_end(batch, batch.position, self._release))
        if not self._options.deep:
            return
        if batch.is_legacy:
            self._write_old_records(batch)
        elif batch.is_control:
            self._write_control_records(batch)
        else:
            self._write_records(batch)

    def _write_records(self, batch: FileBatch) -> None:
        out, options, state = self._out, self._options, self._state
        lines: RecordLines | None = None
        for record in read_records(batch, self._release):
            if lines is None:
                lines = RecordLines(batch, batch.position, self._release)
            state.follow(record.offset)
            if options.metadata:
                out.write(lines.start(record))
            if options.data:
                self._write_data(record)
            out.write("\n")

    def _write_old_records(self, batch: FileBatch) -> None:
        out = self._out
        first_offset: int | None = None
        for old in read_old_records(batch, self._release):
            if first_offset is None:
                first_offset = old.record.offset
                lines = RecordLines(batch, batch.position, self._release)
            self._state.follow(old.record.offset)
            if self._options.metadata:
                out.write(lines.old_start(old, first_offset))
            if self._options.data:
                if old.data_error is not None:
                    raise old.data_error
                self._write_data(old.record)
            out.write("\n")

    def _write_control_records(self, batch: FileBatch) -> None:
        lines: RecordLines | None = None
        for record in read_records(batch, self._release):
            if lines is None:
                lines = RecordLines(batch, batch.position, self._release)
            self._state.follow(record.offset)
            if self._options.metadata:
                self._out.write(lines.start(record))
                self._out.write(control_text(record, self._release))
            self._out.write("\n")

    def _write_data(self, record: Record) -> None:
        self._out.write(self._data_text(record))

    def _data_text(self, record: Record) -> str:
        key, payload = self._decoder.decode(record)
        if record.value is None and self._release.null_value == "no key":
            return ""
        bar = "" if self._options.metadata else "|"
        if key is None:
            if payload is None:
                return ""
            return f"{bar if self._release.bar_without_key else ''} payload: {payload}"
        text = f"{bar} key: {key}"
        return text if payload is None else f"{text} payload: {payload}"
