"""The plan of a lookup: how an offset or a time is found, step by step.

The lookup is made, by the code that answers readers, and writes down what it does (`Step` in log/lookup.py). This room
turns that into words and numbers, and adds where in the index files the entries stand and what was read of each file.

    orders-0, offset 90
      segment     00000000000000000000.log, the last of 3 with a base offset <= 90
      index       entry 0 of 1, byte 0 of 00000000000000000000.index
                    offset 80 at position 4384
      walk        1 batch, 659 bytes from position 4384
                    position 4384: offsets 80 to 92, 659 bytes
      record      offset 90, time 2026-11-15T19:37:30.047Z, 2 bytes of key, 37 bytes of value
      read        16 bytes of .index in 2 reads; 1318 bytes of .log in 2 reads
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import CorruptionError, InvalidRequestError, OffsetOutOfRangeError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_scan import read_batch
from tidelog.log.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ensure_time,
    offset_for_time,
)
from tidelog.log.lookup import (
    BatchRead,
    BatchWalked,
    IndexUsed,
    SegmentChosen,
    Step,
    TimeIndexUsed,
    WrongIndex,
)
from tidelog.log.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_name
from tidelog.log.offset_index import OffsetEntries
from tidelog.log.offsets import TimestampAndOffset, as_offset
from tidelog.log.segment_reader import SegmentReader
from tidelog.log.time_index import TimeEntries
from tidelog.log.watermarks import Isolation
from tidelog.records.batches import batch_of
from tidelog.records.record import Record
from tidelog.view.counted_files import CountedFiles, Reads
from tidelog.view.look import Look, looking_again, take_look
from tidelog.view.segment import SegmentView, with_advice
from tidelog.view.timed import TimedPartition
from tidelog.visible import time_text, visible

if TYPE_CHECKING:
    from tidelog.view.partition import EndBound, PartitionView

__all__ = ["Explanation", "PlanStep", "explain"]

_LONGEST_WALK = 12  # batches that are printed of a walk; `to_dict` has all of them
_WIDTH = 12
_ON_THE_FIRST_LINE, _ON_A_LINE = 80 - _WIDTH - 2, 80 - _WIDTH - 4

_SPECIALS = {
    LATEST: "latest: the end of what may be read, at the {limit}",
    EARLIEST: "earliest: the log start offset",
    EARLIEST_LOCAL: "earliest local: the log start offset, since nothing is tiered",
    LATEST_TIERED: "latest tiered: nothing is tiered",
    EARLIEST_PENDING_UPLOAD: "earliest pending upload: nothing is tiered",
    MAX_TIMESTAMP: "largest time: the first record that has the largest timestamp of all segments",
}


class PlanStep(NamedTuple):
    """One step of a lookup: what was done, in words and in numbers."""

    name: str
    text: str
    facts: dict[str, Any]
    details: tuple[str, ...] = ()


def _folded(text: str) -> list[str]:
    """A text on as few lines of a narrow terminal as its commas and colons allow."""
    lines = [text]
    while len(lines[-1]) > (room := _ON_THE_FIRST_LINE if len(lines) == 1 else _ON_A_LINE):
        found = [m for m in re.finditer("[,:;] ", lines[-1]) if m.start() < room]
        if not found:
            break
        end = found[-1]
        keep = end.start() + (lines[-1][end.start()] != ":")  # a colon ends the line, a comma stays on it
        lines[-1:] = [lines[-1][:keep], lines[-1][end.end() :]]
    return lines


class Explanation(NamedTuple):
    """The plan of a lookup. `str()` prints it."""

    partition: str
    question: str
    steps: tuple[PlanStep, ...]
    answer: TimestampAndOffset | None  # None where there is no such record
    record: Record | None = None  # of a lookup by offset: the first record at the offset or behind it

    def __str__(self) -> str:
        lines = [f"{self.partition}, {self.question}"]
        for step in self.steps:
            text, *more = _folded(step.text)
            lines.append(f"  {step.name:<{_WIDTH}}{text}")
            lines += [" " * (_WIDTH + 4) + detail for detail in (*more, *step.details)]
        return "\n".join(map(visible, lines))

    def to_dict(self) -> dict[str, Any]:
        """The plan for programs."""
        return {
            "partition": self.partition,
            "question": self.question,
            "steps": [{"step": step.name, **step.facts} for step in self.steps],
            "answer": None if self.answer is None else self.answer._asdict(),
        }


def explain(
    view: "PartitionView",
    *,
    offset: int | None = None,
    time: int | None = None,
    committed: bool = False,
    end_bound: "EndBound" = "logEnd",
) -> Explanation:
    """Look an offset or a time up and tell how. `committed` and `end_bound` as in `PartitionView.read`."""
    limit = view.limit_of(committed=committed, end_bound=end_bound)
    end = "last stable offset" if committed else "log end" if end_bound == "logEnd" else "high watermark"
    if (offset is None) == (time is None):
        raise InvalidRequestError(
            "explain takes an offset or a time: explain(offset=15) or explain(time=1547033949062)"
        )
    if time is not None:
        ensure_time(time)
    view.ensure_copies_agree()
    return looking_again(lambda: _explain(view, offset, time, _Limit(end, limit)), lambda: None, view.path)


class _Limit(NamedTuple):
    """How far a reader sees: what that is called, and the first offset that it does not see."""

    name: str
    offset: int


def _explain(view: "PartitionView", offset: int | None, time: int | None, limit: _Limit) -> Explanation:
    files = CountedFiles(view.files.fresh())
    look = take_look(files, view.path)
    if time is not None:
        return _explain_time(view, look, files, time, limit)
    assert offset is not None
    return _explain_offset(view, look, files, as_offset(offset, "an offset to be explained"))


# -- by offset -------------------------------------------------------------------------------------------------------


def _explain_offset(view: "PartitionView", look: Look, files: CountedFiles, offset: int) -> Explanation:
    if not view.log_start_offset <= offset < view.log_end_offset:
        raise OffsetOutOfRangeError(
            f"{view.topic_partition} has the offsets {view.log_start_offset} to {view.log_end_offset - 1}, not {offset}"
            if view.log_start_offset < view.log_end_offset
            else f"{view.topic_partition} has no records; its next offset is {view.log_end_offset}"
        )
    steps: list[PlanStep] = []
    segment = look.holding(offset)
    while segment is not None:
        reader = segment.open()
        files.reads.clear()
        trace: list[Step] = []
        try:
            batch = reader.find_offset(offset, trace)
        except CorruptionError as error:
            raise with_advice(error) from error
        record, passed = (None, []) if batch is None else _record_from(reader, batch, offset)
        cost = _reading(files.reads)  # before the entries are looked up once more, to be told
        chosen = f"{segment.files[LOG_SUFFIX]}, the last of {len(look.segments)} with a base offset <= {offset}"
        if steps:
            chosen = f"{segment.files[LOG_SUFFIX]}, the next: nothing at {offset} or behind was left in the one before"
        steps += _told(trace, segment, reader, chosen)
        if passed:
            steps.append(_passed(passed, offset))
        if batch is not None and record is not None:
            steps += [_record_step(record, offset), cost]
            epoch = batch.leader_epoch if batch.leader_epoch >= 0 else None
            answer = TimestampAndOffset(record.timestamp_ms, record.offset, epoch)
            return Explanation(str(view.topic_partition), f"offset {offset}", tuple(steps), answer, record)
        steps.append(cost)
        segment = look.behind(segment, segment.base_offset)  # compaction left nothing at the end of this one
    return Explanation(str(view.topic_partition), f"offset {offset}", tuple(steps), None)


def _record_from(reader: SegmentReader, batch: BatchInfo, offset: int) -> tuple[Record | None, list[BatchInfo]]:
    """The first record at an offset or behind it, and the batches that were read in vain behind the first.

    Compaction leaves a batch its offsets and takes records out of it: the next one may hold what is looked for.
    """
    record = _record_in(reader, batch, offset)
    passed: list[BatchInfo] = []
    if record is None:
        for following in reader.log.batches(batch.position + batch.size, reader.size):
            passed.append(following)
            record = _record_in(reader, following, offset)
            if record is not None:
                break
    return record, passed


def _passed(batches: list[BatchInfo], offset: int) -> PlanStep:
    walk = _walk(batches)
    why = f"of the batch that reaches {offset} no record at {offset} or behind is left"
    return walk._replace(name="walk on", text=f"{walk.text}: {why}")


def _record_in(reader: SegmentReader, batch: BatchInfo, offset: int) -> Record | None:
    records = batch_of(read_batch(reader.log.file, batch))
    try:
        records.ensure_valid()
    except CorruptionError as error:
        raise with_advice(CorruptionError(f"{reader.log.path}, position {batch.position}: {error}")) from error
    return next((record for record in records if record.offset >= offset), None)


def _record_step(record: Record, offset: int) -> PlanStep:
    key, value = (None if data is None else len(data) for data in (record.key, record.value))
    missing = "" if record.offset == offset else f" (offset {offset} was compacted away or is a marker's)"
    time = time_text(record.timestamp_ms)
    text = f"offset {record.offset}, time {time}, {_size(key, 'key')}, {_size(value, 'value')}{missing}"
    facts = {"offset": record.offset, "timestamp_ms": record.timestamp_ms, "key_bytes": key, "value_bytes": value}
    return PlanStep("record", text, facts)


def _size(size: int | None, what: str) -> str:
    return f"no {what}" if size is None else f"{size} byte{'' if size == 1 else 's'} of {what}"


# -- by time ---------------------------------------------------------------------------------------------------------


def _explain_time(view: "PartitionView", look: Look, files: CountedFiles, time: int, limit: _Limit) -> Explanation:
    trace: list[Step] = []
    is_answerable = look.segments or time != MAX_TIMESTAMP
    timed = TimedPartition(view, look, lambda: limit.offset)
    found = offset_for_time(timed, time, Isolation.LOG_END, trace) if is_answerable else None
    cost = _reading(files.reads)  # before the entries are looked up once more, to be told
    steps = []
    if time in _SPECIALS:
        steps.append(PlanStep("special", _SPECIALS[time].format(limit=limit.name), {"time": time}))
    else:
        steps += _segments_passed(look, time)
        for segment in look.segments:
            if trace and trace[0] == SegmentChosen(segment.base_offset):
                chosen = f"{segment.files[LOG_SUFFIX]}, the first whose largest time reaches {time_text(time)}"
                steps += _told(trace, segment, segment.open(), chosen, by_time=True)
    steps += [cost, _answer_step(found, limit)]
    return Explanation(str(view.topic_partition), f"time {time_text(time)}", tuple(steps), found)


def _segments_passed(look: Look, time: int) -> Iterator[PlanStep]:
    for segment in look.segments:
        largest = segment.largest_timestamp_ms
        if largest >= time:
            return
        text = f"{segment.files[LOG_SUFFIX]}: its largest time {time_text(largest)} is too early"
        yield PlanStep("pass", text, {"base_offset": segment.base_offset, "largest_timestamp_ms": largest})


def _answer_step(found: TimestampAndOffset | None, limit: _Limit) -> PlanStep:
    facts = {"isolation": limit.name, "limit_offset": limit.offset}
    if found is None:
        return PlanStep("answer", f"no record below the {limit.name}, {limit.offset}", facts)
    epoch = "unknown" if found.leader_epoch is None else found.leader_epoch
    return PlanStep(
        "answer",
        f"offset {found.offset}, time {time_text(found.timestamp_ms)}, leader epoch {epoch}",
        facts | found._asdict(),
    )


# -- steps in words --------------------------------------------------------------------------------------------------


def _told(
    trace: list[Step], segment: SegmentView, reader: SegmentReader, chosen: str, *, by_time: bool = False
) -> Iterator[PlanStep]:
    """The steps of a search in one segment."""
    walked: list[BatchInfo] = []
    for step, following in pairwise([*trace, None]):
        if isinstance(step, BatchWalked):
            walked.append(step.batch)
            if not isinstance(following, BatchWalked):
                yield _walk(walked)
                walked = []
        elif isinstance(step, SegmentChosen):
            yield PlanStep("segment", chosen, {"base_offset": reader.base_offset})
            if by_time and not reader.time_index.entries:
                yield _no_time_entry(segment)
        elif isinstance(step, IndexUsed):
            name = "check" if isinstance(following, TimeIndexUsed) else "index"
            yield _offset_entry(name, step, segment, reader)
        elif step is not None:
            yield _step_in_words(step, reader)


def _step_in_words(step: Step, reader: SegmentReader) -> PlanStep:
    if isinstance(step, WrongIndex):
        return PlanStep("wrong index", f"{step.what}: it is not used", {"problem": step.what})
    if isinstance(step, TimeIndexUsed):
        return _time_entry(step, reader)
    assert isinstance(step, BatchRead)
    batch = step.batch
    text = f"the records of the batch at position {batch.position}, {batch.size} bytes"
    return PlanStep("records", text, _facts_of(batch))


def _no_time_entry(segment: SegmentView) -> PlanStep:
    text = f"{segment.why_no_entries(TIME_INDEX_SUFFIX)}: from the start of the segment"
    facts = {"timestamp_ms": None, "offset": None, "entry": None, "entries": 0, "byte": None}
    file = file_name(segment.base_offset, TIME_INDEX_SUFFIX)
    return PlanStep("time index", text, {**facts, "file": file, "is_missing": TIME_INDEX_SUFFIX not in segment.files})


def _offset_entry(name: str, used: IndexUsed, segment: SegmentView, reader: SegmentReader) -> PlanStep:
    entries, file = reader.offset_index, file_name(reader.base_offset, INDEX_SUFFIX)
    assert isinstance(entries, OffsetEntries)
    facts = {"offset": used.offset, "position": used.position, "entries": len(entries), "file": file}
    if not len(entries):
        facts["is_missing"] = INDEX_SUFFIX not in segment.files
    purpose = "; the batch there must have the time of the entry found next" if name == "check" else ""
    number = _number_of(entries, used.offset)
    if number is None or entries.entry(number) != tuple(used):
        text = (
            f"no entry at or before the target, the first of {len(entries)} is {entries.entry(0).offset}"
            if len(entries)
            else segment.why_no_entries(INDEX_SUFFIX)
        )
        text += f": from position 0{purpose}"
        return PlanStep(name, text, facts | {"entry": None, "byte": None})
    byte = number * entries.ROW.size
    text = f"entry {number} of {len(entries)}, byte {byte} of {file}: offset {used.offset} at position {used.position}"
    return PlanStep(name, text + purpose, facts | {"entry": number, "byte": byte})


def _time_entry(used: TimeIndexUsed, reader: SegmentReader) -> PlanStep:
    entries, file = reader.time_index, file_name(reader.base_offset, TIME_INDEX_SUFFIX)
    assert isinstance(entries, TimeEntries)
    number = bisect_left(range(len(entries)), used.timestamp_ms, key=lambda slot: entries.entry(slot).timestamp_ms)
    byte = number * entries.ROW.size
    text = (
        f"entry {number} of {len(entries)}, byte {byte} of {file}: "
        f"nothing up to offset {used.offset} is after {time_text(used.timestamp_ms)}"
    )
    facts = {"timestamp_ms": used.timestamp_ms, "offset": used.offset, "entry": number, "entries": len(entries)}
    return PlanStep("time index", text, facts | {"byte": byte, "file": file})


def _number_of(entries: OffsetEntries, offset: int) -> int | None:
    """The slot of the entry of an offset; None if there is none."""
    number = bisect_left(range(len(entries)), offset, key=lambda slot: entries.entry(slot).offset)
    return number if number < len(entries) else None


def _walk(batches: list[BatchInfo]) -> PlanStep:
    first, last = batches[0], batches[-1]
    size = last.position + last.size - first.position
    lines = [f"position {batch.position}: {_offsets_of(batch)}, {batch.size} bytes" for batch in batches]
    if len(lines) > _LONGEST_WALK:
        half = _LONGEST_WALK // 2
        lines = [*lines[:half], f"... {len(lines) - 2 * half} more ...", *lines[-half:]]
    count = f"{len(batches)} batch{'es' if len(batches) > 1 else ''}"
    facts = {"position": first.position, "bytes": size, "batches": [_facts_of(batch) for batch in batches]}
    return PlanStep("walk", f"{count}, {size} bytes from position {first.position}", facts, tuple(lines))


def _offsets_of(batch: BatchInfo) -> str:
    if batch.base_offset == batch.last_offset:
        return f"{'up to ' if batch.is_legacy and batch.codec_id else ''}offset {batch.last_offset}"
    return f"offsets {batch.base_offset} to {batch.last_offset}"


def _facts_of(batch: BatchInfo) -> dict[str, int]:
    return {
        "position": batch.position,
        "bytes": batch.size,
        "first_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "max_timestamp_ms": batch.max_timestamp_ms,
    }


def _reading(reads: dict[str, Reads]) -> PlanStep:
    by_suffix: dict[str, Reads] = {}
    for path, (calls, size) in reads.items():
        suffix = f".{path.rpartition('/')[2].partition('.')[2]}"
        before = by_suffix.get(suffix, Reads(0, 0))
        by_suffix[suffix] = Reads(before.calls + calls, before.bytes + size)
    return PlanStep("read", _reads_in_words(sorted(by_suffix.items())), {s: r._asdict() for s, r in by_suffix.items()})


def _reads_in_words(reads: Iterable[tuple[str, Reads]]) -> str:
    parts = [f"{r.bytes} bytes of {suffix} in {r.calls} read{'s' if r.calls != 1 else ''}" for suffix, r in reads]
    return "; ".join(parts) or "nothing but the directory"
