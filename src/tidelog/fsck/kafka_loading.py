"""Load a log exactly as Kafka 4.3 does when it starts, in memory, to find out what would be left of it.

`LogLoader` loads a log as Kafka does, except where Kafka would lose data that can be kept. Here Kafka's behaviour is
followed to the end: offsets of batches are not compared with those before them; if an index cannot hold them, the whole
segment is emptied; and if they are smaller than the base offset of the segment, Kafka does not start.

Kafka: LogLoader.recoverLog and LogSegment.recover.
"""

import random
from collections.abc import Generator, Iterable

from tidelog.errors import CorruptIndexError, CorruptionError
from tidelog.fsck.rehearsal import RehearsalFileSystem
from tidelog.log.batch_windows import BatchWindow
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.config import LogConfig
from tidelog.log.loader import LogLoader
from tidelog.log.offsets import MAX_OFFSET
from tidelog.log.recovery import SegmentRecovery
from tidelog.log.segment import LogSegment
from tidelog.log.tasks import Schedule
from tidelog.log.unified_log import UnifiedLog
from tidelog.records.java import MAX_INT32

__all__ = ["load_as_kafka"]

_DAY_MS = 86_400_000
_DEFAULTS = LogConfig()


def load_as_kafka(
    fs: RehearsalFileSystem,
    directory: str,
    *,
    recovery_point: int,
    log_start: int,
    is_clean: bool,
    config: LogConfig = _DEFAULTS,
) -> UnifiedLog:
    """The log that Kafka would have. What it writes and removes on the way stays in the memory of `fs`."""
    clock: Clock = SystemClock()
    loader = _KafkaLoader(
        directory,
        config,
        recovery_point=max(recovery_point, 0),
        log_start_offset=max(log_start, 0),
        clean_shutdown=is_clean,
        producer_id_expiration_ms=_DAY_MS,
        verification=True,
        clock=clock,
        fs=fs,
        rng=random.Random(0),
        schedule=Schedule(clock),
        lock=False,
    )
    return loader.load()


class _KafkaRecovery(SegmentRecovery):
    keeps_unreadable = True

    def _first_out_of_order(self, window: BatchWindow) -> int | None:
        return None


class _KafkaLoader(LogLoader):
    recovery = _KafkaRecovery

    def _first_unflushed(self, names: Iterable[str]) -> int:
        """Kafka recovers a segment without an index when it opens it, and does not count what it cuts then."""
        return MAX_OFFSET

    def _recover_unflushed(self) -> Generator[None, None, None]:
        unflushed = self.segments.from_offset(self._recovery_point)
        for number, segment in enumerate(unflushed):
            following = unflushed[number + 1 :]
            try:
                bytes_cut = yield from self._recover_segment(segment, following)
            except CorruptIndexError as error:
                self._note_cut(segment, 0, following if segment.size else (), str(error))
                if segment.size:
                    self._remove(following)
                bytes_cut = segment.truncate_to(segment.base_offset)
            if bytes_cut:
                break

    def _split(self, segment: LogSegment) -> None:
        if segment.next_offset() - segment.base_offset <= MAX_INT32:  # then the offsets lie below the segment
            raise CorruptionError(f"{segment.log.path}: offsets that do not fit the segment, which ends below them")
        super()._split(segment)
