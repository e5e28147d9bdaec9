"""The text of `.index` and `.timeindex` files, and the comparison of their entries with the log."""

from typing import NamedTuple

from tidelog.dump.index_files import OffsetEntries, TimeEntries, TimeEntry
from tidelog.dump.java_errors import no_such_element
from tidelog.dump.java_records import first_offset, latest_timestamp
from tidelog.dump.java_text import JavaFile, base_offset_of
from tidelog.dump.log_file import FileBatch, LogFile, LogSlice
from tidelog.dump.output import Output
from tidelog.dump.releases import Release
from tidelog.dump.reports import Reports
from tidelog.records.java import MAX_INT32
from tidelog.records.record import NO_TIMESTAMP

__all__ = ["IndexOptions", "dump_index", "dump_time_index"]


class IndexOptions(NamedTuple):
    """What of a command line concerns indexes."""

    sanity_only: bool = False
    verify_only: bool = False
    max_message_size: int = 5 * 1024 * 1024


def dump_index(file: JavaFile, options: IndexOptions, release: Release, reports: Reports, out: Output) -> None:
    """Write the entries of an offset index; note those that do not name the batch at their position."""
    base_offset = base_offset_of(file)
    with LogFile(file.beside(".log"), release) as log:
        index = OffsetEntries(file, base_offset, release)
        if release.empty_index_is_told and not index.count:
            out.write(f"{file.path} is empty.\n")
            return
        if options.sanity_only:
            index.ensure_sane()
            out.write(f"{file.path} passed sanity check.\n")
            return
        for slot in range(index.count):
            entry = index[slot]
            is_padding = entry.offset == base_offset and slot > 0
            if is_padding and not release.zero_entry_is_checked:
                return
            found = _offset_at(log.slice(entry.position, options.max_message_size), release)
            if found != entry.offset:
                reports.mismatches.note(file, entry.offset, found)
            if is_padding:
                return
            if not options.verify_only:
                out.write(f"offset: {entry.offset} position: {entry.position}\n")


def _offset_at(part: LogSlice, release: Release) -> int:
    """The offset that an entry for this place should have: of the first record, since 2.3 of the last one."""
    batch = next(part.batches(), None)
    if release.index_compares == "last":
        if batch is None:
            raise no_such_element()
        return batch.last_offset
    while batch is not None:  # an empty batch has no record, the next one may have
        offset = first_offset(batch, release)
        if offset is not None:
            return offset
        batch = next(part.batches(batch.position + batch.size), None)
    raise no_such_element()


def dump_time_index(file: JavaFile, options: IndexOptions, release: Release, reports: Reports, out: Output) -> None:
    """Write the entries of a time index; note those that the log contradicts, and those out of order."""
    base_offset = base_offset_of(file)
    with LogFile(file.beside(".log"), release) as log:
        index = OffsetEntries(file.beside(".index"), base_offset, release)
        times = TimeEntries(file, base_offset, release)
        if options.sanity_only:
            times.ensure_sane()
            out.write(f"{file.path} passed sanity check.\n")
            return
        check = _TimeCheck(file, log, index, release, reports)
        for slot in range(times.count):
            entry = times[slot]
            is_padding = entry.offset == base_offset and slot > 0
            if is_padding and not release.zero_entry_is_checked:
                return
            is_found = check.compare(entry)
            if is_padding and is_found:
                return
            if not options.verify_only:
                out.write(f"timestamp: {entry.timestamp_ms} offset: {entry.offset}\n")
            check.previous_ms = entry.timestamp_ms


class _TimeCheck:
    """Entries of one time index against the log."""

    def __init__(self, file: JavaFile, log: LogFile, index: OffsetEntries, release: Release, reports: Reports) -> None:
        self._file = file
        self._log = log
        self._index = index
        self._release = release
        self._reports = reports
        self._sound: set[int] = set()  # positions from which all batches up to the end of the log can be read
        self.previous_ms = NO_TIMESTAMP

    def compare(self, entry: TimeEntry) -> bool:
        """Compare one entry; whether a batch with just its last offset was found."""
        reports, file = self._reports, self._file
        batch = self._batch_of(entry.offset)
        if batch is None or batch.last_offset != entry.offset:
            reports.missing.note(file, entry.offset, -1 if batch is None else batch.last_offset)
            return False
        latest_ms = latest_timestamp(batch, self._release)
        if latest_ms != entry.timestamp_ms:
            reports.time_mismatches.note(file, entry.timestamp_ms, latest_ms)
        if self.previous_ms >= entry.timestamp_ms:
            reports.disorder.note(file, entry.timestamp_ms, self.previous_ms)
        return True

    def _batch_of(self, offset: int) -> FileBatch | None:
        """The first batch that ends at the offset or above."""
        part = self._log.slice(self._index.position_of(offset), MAX_INT32)
        if self._release.reads_whole_tail:
            self._read_to_the_end(part)
        return next((batch for batch in part.batches() if batch.last_offset >= offset), None)

    def _read_to_the_end(self, part: LogSlice) -> None:
        """4.3 lists all batches up to the end of the log first, and so meets what is broken there."""
        if part.start not in self._sound:
            self._sound |= {part.start, *(batch.position + batch.size for batch in part.batches())}
