"""Findings about producer snapshots: whether they can be read, and, where everything is read, what they say.

A snapshot is written when a segment is begun, and says what was known before its first batch. Releases 1.0.0 and 1.0.1
changed what they knew of a producer before they began the segment: the first batch behind one of theirs may be in it.
"""

from collections.abc import Mapping, Sequence

from tidelog.errors import CorruptIndexError, StorageError, TidelogError
from tidelog.fsck.findings import Severity
from tidelog.fsck.notes import Notes
from tidelog.fsck.segment_scan import ProducerStep, SegmentFacts
from tidelog.log.clock import ManualClock
from tidelog.log.files import ReadFileSystem, join, read_whole
from tidelog.log.names import SNAPSHOT_SUFFIX, file_name
from tidelog.log.origin import AppendOrigin
from tidelog.log.overlay_files import OverlayFileSystem
from tidelog.log.producer_append import ProducerAppendInfo
from tidelog.log.producer_entry import ProducerEntry
from tidelog.log.producer_snapshot import parse_snapshot
from tidelog.log.producer_state import ProducerStateManager

__all__ = ["SnapshotCheck"]

_EXPIRATION_MS = 86_400_000  # the default of producer.id.expiration.ms
_SHORTEST_EXPIRATION_MS = 1_000  # nobody sets it below


class SnapshotCheck:
    """The snapshots of one partition."""

    def __init__(
        self,
        notes: Notes,
        fs: ReadFileSystem,
        directory: str,
        offsets: Sequence[int],
        segments: Sequence[SegmentFacts],
        until: int | None = None,
    ) -> None:
        """`until` is where the first segment begins that cannot be read: who wrote behind it is not known."""
        self._notes = notes
        self._fs = fs
        self._directory = directory
        self._offsets = sorted(offsets)
        self._segments = segments
        self._until = until
        self._read: dict[int, list[ProducerEntry]] = {}
        self._known_until = {  # the offset behind the first batch of each segment
            facts.base_offset: int(facts.batches["last"][0]) + 1
            for facts in segments
            if len(facts.batches) and facts.batches["first"][0] == facts.base_offset
        }

    def _path(self, offset: int) -> str:
        return join(self._directory, file_name(offset, SNAPSHOT_SUFFIX))

    def read_all(self) -> None:
        """Find those that cannot be read, and those that know of offsets after their own."""
        for offset in self._offsets:
            path = self._path(offset)
            try:
                entries = self._read[offset] = parse_snapshot(read_whole(self._fs, path))
            except CorruptIndexError as error:
                self._notes.add("SNP-FORMAT", path, str(error))
                continue
            except StorageError as error:
                if self._fs.stat(path) is not None:  # else a live broker has removed it
                    self._notes.add_unreadable(path, error)
                continue
            ahead = [entry for entry in entries if _reaches(entry) >= self._known_until.get(offset, offset)]
            if ahead and offset != self._until:
                message = f"producer {ahead[0].producer_id} has reached offset {_reaches(ahead[0])} in it"
                self._notes.add("SNP-STATE", path, message, offsets=(offset, offset))
                del self._read[offset]

    @property
    def found(self) -> Mapping[int, Sequence[ProducerEntry]]:
        """The producers of each snapshot that was read and knows of no offset after its own, by offset."""
        return self._read

    def note_strays(self, bases: Sequence[int], log_end: int) -> None:
        """Find those that belong to no segment; one may lie at the log end."""
        strays = [offset for offset in self._offsets if offset not in set(bases)]
        if strays and strays[-1] == log_end and strays[-1] >= max(bases, default=0):
            strays.pop()
        for offset in strays:
            is_ahead = offset > log_end
            where = "behind the log end" if is_ahead else "where no segment begins"
            severity = None if is_ahead else Severity.INFO  # a clean stop leaves one, and Kafka goes on behind it
            self._notes.add(
                "SNP-STRAY", self._path(offset), f"it lies {where}", offsets=(offset, offset), severity=severity
            )

    def note_missing(self, *, has_producers: bool, is_clean: bool) -> None:
        """After a clean stop, no snapshot means to Kafka that there are no producers."""
        if has_producers and is_clean and not self._offsets:
            self._notes.add("SNP-MISSING", self._directory, "Kafka would take it that nobody has written with an id")

    def compare(self, *, log_start: int, is_compacted: bool) -> None:
        """Replay the log, and see whether each snapshot says what was known at its offset."""
        segments = self._segments
        producers = ProducerStateManager(OverlayFileSystem(self._fs), f"{self._directory}/-", ManualClock(0))
        steps = [step for facts in segments for step in facts.steps]
        done = 0
        for offset in self._offsets:
            if offset not in self._read or offset < segments[0].base_offset:
                continue
            if self._until is not None and offset > self._until:
                return
            while done < len(steps) and steps[done].batch.last_offset < offset:
                _replay(producers, steps[done])
                done += 1
            modified = self._fs.stat(self._path(offset))
            written_ms = 0 if modified is None else modified.modified_ms
            known = dict(producers.producers)
            first = segments[0].base_offset
            fault = _contradiction(self._read[offset], known, first, log_start, is_compacted, written_ms)
            if fault and done < len(steps) and steps[done].batch.base_offset == offset:
                _replay(producers, steps[done])
                done += 1
                known = dict(producers.producers)
                if _contradiction(self._read[offset], known, first, log_start, is_compacted, written_ms) is None:
                    continue
            if fault:
                self._notes.add("SNP-STATE", self._path(offset), fault, offsets=(offset, offset))
            elif not is_compacted and (forgotten := _forgotten(self._read[offset], known, written_ms)):
                words = f"it does not know producer {forgotten[0].producer_id}, which was silent for less than a day"
                self._notes.add("SNP-EXPIRED", self._path(offset), words, offsets=(offset, offset))


def _reaches(entry: ProducerEntry) -> int:
    return max(entry.last_offset, -1 if entry.txn_first_offset is None else entry.txn_first_offset)


def _replay(producers: ProducerStateManager, step: ProducerStep) -> None:
    updates: dict[int, ProducerAppendInfo] = {}
    try:
        txn = producers.stage(updates, step.batch, AppendOrigin.REPLICATION, step.marker)
    except TidelogError:
        return  # a batch that Kafka passes over as well
    producers.apply(updates)
    if txn is not None:
        producers.complete_txn(txn)


def _contradiction(
    snapshot: Sequence[ProducerEntry],
    replayed: Mapping[int, ProducerEntry],
    first: int,
    log_start: int,
    is_compacted: bool,
    written_ms: int,
) -> str | None:
    """What a snapshot says of a producer that the log does not.

    A producer may be known only from batches that are gone: they lay before the log start, or were compacted. And one
    that has been silent may have been forgotten, see `_may_have_expired`. Of a transaction that began before the
    `first` offset that is left, the replay knows a later beginning. If it began before the log start, so may the
    snapshot, and of a producer that only wrote before it, it need not know anything: a broker that starts replays no
    segment that ends there.
    """
    for entry in snapshot:
        other = replayed.get(entry.producer_id)
        may_be_gone = is_compacted or _reaches(entry) < log_start
        if other is None:
            if not may_be_gone and (entry.batches or entry.txn_first_offset is not None):
                return f"it knows producer {entry.producer_id}, the log does not"
        elif not may_be_gone and _essence_since(first, log_start, entry, other) != _essence(other):
            return f"it says {_essence(entry)} of producer {entry.producer_id}, the log says {_essence(other)}"
        elif is_compacted and entry.txn_first_offset is None and other.txn_first_offset is not None:
            return f"the transaction of producer {entry.producer_id} is open, it says it is not"
    for other in _unnamed(snapshot, replayed, written_ms):
        is_gone = (is_compacted and other.txn_first_offset is None) or other.last_offset < log_start
        if not is_gone and not _may_have_expired(other, snapshot, written_ms):
            return f"it does not know producer {other.producer_id}"
    return None


def _unnamed(
    snapshot: Sequence[ProducerEntry], replayed: Mapping[int, ProducerEntry], written_ms: int
) -> list[ProducerEntry]:
    """The producers of the log that a snapshot does not know, without those that every broker forgets after a day."""
    named = {entry.producer_id for entry in snapshot}
    return [
        other
        for producer_id, other in replayed.items()
        if producer_id not in named
        and (other.txn_first_offset is not None or other.last_timestamp_ms > written_ms - _EXPIRATION_MS)
    ]


def _forgotten(
    snapshot: Sequence[ProducerEntry], replayed: Mapping[int, ProducerEntry], written_ms: int
) -> list[ProducerEntry]:
    """Those of them that a broker has forgotten if its producer.id.expiration.ms is below the default."""
    unnamed = _unnamed(snapshot, replayed, written_ms)
    return [other for other in unnamed if _may_have_expired(other, snapshot, written_ms)]


def _may_have_expired(other: ProducerEntry, snapshot: Sequence[ProducerEntry], written_ms: int) -> bool:
    """Whether a broker may have forgotten a producer that a snapshot does not know, whatever its configuration.

    It forgets those that have been silent for long enough and have no open transaction: never one that is younger, by
    time and by offset, than one that it keeps.
    """
    if other.txn_first_offset is not None or other.last_timestamp_ms > written_ms - _SHORTEST_EXPIRATION_MS:
        return False
    return not any(
        kept.last_timestamp_ms < other.last_timestamp_ms and kept.last_offset < other.last_offset
        for kept in snapshot
        if kept.txn_first_offset is None and kept.batches
    )


def _essence_since(
    first: int, log_start: int, entry: ProducerEntry, other: ProducerEntry
) -> tuple[int, int, int, int | None]:
    """The essence of an entry, had its open transaction begun where that of the other did, if both may be right."""
    begun, in_log = entry.txn_first_offset, other.txn_first_offset
    if begun is None or in_log is None:
        return _essence(entry)
    is_cut = begun < first or in_log < min(log_start, begun)
    return (*_essence(entry)[:3], in_log if is_cut else begun)


def _essence(entry: ProducerEntry) -> tuple[int, int, int, int | None]:
    """Epoch, last sequence, last offset, first offset of the open transaction."""
    return entry.epoch, entry.last_sequence, entry.last_offset, entry.txn_first_offset
