"""What a topic asks of each record: a key where it is compacted, and a timestamp near the clock.

All records of a batch are looked at, so that the producer hears of every one that must go. If the time of any is
wrong, the batch is refused for its times.

Kafka: LogValidator.validateRecord, processRecordErrors.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.errors import InvalidRecordError, InvalidTimestampError, RecordError
from tidelog.log.config import LogConfig
from tidelog.records.java import wrap_int64
from tidelog.records.record import NO_TIMESTAMP, Record

__all__ = ["RecordFault", "RecordRules", "refuse_faults"]


class RecordFault(NamedTuple):
    """An error of one record, and whether it is one of its time."""

    error: RecordError
    is_of_time: bool = False


class RecordRules:
    """The rules of one topic at one moment."""

    __slots__ = ("_after_max_ms", "_before_max_ms", "_is_compacted", "_now_ms", "_uses_append_time")

    def __init__(self, config: LogConfig, now_ms: int) -> None:
        self._is_compacted = config.is_compacted
        self._uses_append_time = config.uses_append_time
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._now_ms = now_ms

    def check(self, records: Iterable[Record], *, is_append_time: bool) -> None:
        """Refuse the batch of these records if any is at fault; `is_append_time` is what the batch says of itself."""
        refuse_faults(
            fault
            for index, record in enumerate(records)
            if (fault := self.fault_of(index, record, is_append_time=is_append_time)) is not None
        )

    def fault_of(self, index: int, record: Record, *, is_append_time: bool) -> RecordFault | None:
        """What is wrong with the record at `index` of its batch, if anything."""
        if self._is_compacted and record.key is None:
            return RecordFault(RecordError(index, "a compacted topic takes no record without a key"))
        if not self._uses_append_time and record.timestamp_ms != NO_TIMESTAMP:
            if self._is_near(record.timestamp_ms):
                return None
            earliest_ms, latest_ms = self._now_ms - self._before_max_ms, self._now_ms + self._after_max_ms
            message = f"timestamp {record.timestamp_ms} is outside the allowed times, {earliest_ms} to {latest_ms}"
            return RecordFault(RecordError(index, message), is_of_time=True)
        if is_append_time:
            message = "the batch says LogAppendTime, which is for the broker to say"
            return RecordFault(RecordError(index, message), is_of_time=True)
        return None

    def _is_near(self, timestamp_ms: int) -> bool:
        age_ms = wrap_int64(self._now_ms - timestamp_ms)  # in 64 bits, for timestamps near their ends
        return age_ms <= self._before_max_ms and wrap_int64(-age_ms) <= self._after_max_ms


def refuse_faults(faults: Iterable[RecordFault]) -> None:
    """Raise the error of a batch with these faults; none is no error."""
    listed = tuple(faults)
    if not listed:
        return
    errors = tuple(fault.error for fault in listed)
    kind = InvalidTimestampError if any(fault.is_of_time for fault in listed) else InvalidRecordError
    first = errors[0]
    raise kind(f"{len(errors)} records are refused; record {first.batch_index}: {first.message}", errors)
