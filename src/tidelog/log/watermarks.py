"""How far readers may see.

    log start <= last stable offset <= high watermark <= log end

A follower reads to the log end. A consumer reads to the high watermark, which is what all in-sync replicas have. One
that wants committed transactions only reads to the last stable offset: the high watermark, or the first offset of the
oldest transaction that is open, or whose end is not yet below the high watermark.

The high watermark is the log start until somebody sets it, and until then it is unknown: nobody has said what the
replicas have. A checkpoint must not name it then, since readers take a partition without an entry to its log end.

An offset is a limit in a file, too: the start of the batch that holds it, since batches are given whole. Places are
looked up when somebody first reads up to them, and forgotten when files are cut.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from tidelog.errors import InvalidRequestError, OffsetOutOfRangeError
from tidelog.log.local_log import LocalLog
from tidelog.log.offsets import OffsetMetadata
from tidelog.log.producer_state import ProducerStateManager

__all__ = ["Isolation", "LogOffsets", "Watermarks", "ensure_isolation"]


class Isolation(Enum):
    """How far a reader may see."""

    LOG_END = "log end"  # a follower, or whoever opens a directory by hand
    HIGH_WATERMARK = "high watermark"  # a consumer
    COMMITTED = "last stable offset"  # a consumer that wants committed transactions only


def ensure_isolation(value: object) -> None:
    """Raise InvalidRequestError for anything but an Isolation: to guess could show what is not committed."""
    if not isinstance(value, Isolation):
        names = ", ".join(f"Isolation.{isolation.name}" for isolation in Isolation)
        raise InvalidRequestError(f"{value!r} is no isolation; there are {names}")


class LogOffsets(NamedTuple):
    """The four bounds of a log at one moment, with their places in the files."""

    log_start_offset: int
    log_end: OffsetMetadata
    high_watermark: OffsetMetadata
    last_stable_offset: OffsetMetadata


class Watermarks:
    """The bounds of one log. The log end is kept by the LocalLog, the others here."""

    def __init__(self, local: LocalLog, producers: ProducerStateManager, log_start_offset: int) -> None:
        self.log_start_offset = log_start_offset
        self.listeners: list[Callable[[int], None]] = []  # told of every new high watermark
        self._local = local
        self._producers = producers
        self._high_watermark = OffsetMetadata(log_start_offset)
        self.is_known = False  # somebody has set the high watermark
        self._first_unstable: OffsetMetadata | None = None
        # Places that readers looked up, each beside the very object it belongs to. Readers never set a bound.
        self._places: dict[Isolation, tuple[OffsetMetadata, OffsetMetadata]] = {}
        self.follow_transactions()

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that holds readers back."""
        return None if self._first_unstable is None else self._first_unstable.offset

    @property
    def last_stable_offset(self) -> int:
        unstable, high_watermark = self._first_unstable, self._high_watermark.offset
        return high_watermark if unstable is None else min(unstable.offset, high_watermark)

    def set_high_watermark(self, offset: int) -> int:
        """Set the high watermark, kept between log start and log end; what it is now."""
        if offset < 0:
            raise InvalidRequestError(f"a high watermark of {offset}")
        self.is_known = True
        return self._move(offset)

    def follow_truncation(self, offset: int) -> None:
        """Lower the high watermark to where the log ends now. One that was unknown stays so."""
        self._move(offset)

    def _move(self, offset: int) -> int:
        log_end = self._local.log_end
        target = log_end if offset >= log_end.offset else OffsetMetadata(max(offset, self.log_start_offset))
        self._high_watermark = target
        self._producers.on_high_watermark(target.offset)
        for listener in self.listeners:
            listener(target.offset)
        self.follow_transactions()
        return target.offset

    def follow_transactions(self) -> None:
        """Take over from the producers where the oldest open transaction begins."""
        unstable = self._producers.first_unstable
        if unstable is not None and unstable.offset < self.log_start_offset:
            unstable = OffsetMetadata(self.log_start_offset)
        self._first_unstable = unstable

    def forget_places(self) -> None:
        """Files were cut: look places up again when they are needed."""
        self._high_watermark = OffsetMetadata(self._high_watermark.offset)  # another object: what is known goes with it
        self.follow_transactions()

    def limit(self, isolation: Isolation) -> OffsetMetadata:
        """The first offset that a reader may not see, with its place in the files."""
        if isolation is Isolation.LOG_END:
            return self._local.log_end
        high_watermark, unstable = self._high_watermark, self._first_unstable
        if isolation is Isolation.COMMITTED and unstable is not None and unstable.offset < high_watermark.offset:
            return self._with_place(Isolation.COMMITTED, unstable)
        return self._with_place(Isolation.HIGH_WATERMARK, high_watermark)

    def _with_place(self, isolation: Isolation, bound: OffsetMetadata) -> OffsetMetadata:
        if not bound.is_offset_only:
            return bound
        known = self._places.get(isolation)
        if known is None or known[0] is not bound:
            known = bound, self._locate(bound)
            if not known[1].is_offset_only:
                self._places[isolation] = known
        return known[1]

    def limit_offset(self, isolation: Isolation) -> int:
        """The first offset that a reader may not see."""
        if isolation is Isolation.LOG_END:
            return self._local.log_end.offset
        return self.high_watermark if isolation is Isolation.HIGH_WATERMARK else self.last_stable_offset

    def offsets(self) -> LogOffsets:
        """All four bounds, each with its place."""
        return LogOffsets(
            self.log_start_offset,
            self._local.log_end,
            self.limit(Isolation.HIGH_WATERMARK),
            self.limit(Isolation.COMMITTED),
        )

    def _locate(self, place: OffsetMetadata) -> OffsetMetadata:
        try:
            return self._local.locate(place.offset)
        except OffsetOutOfRangeError:
            return place  # deleted meanwhile: nothing can be read up to there
