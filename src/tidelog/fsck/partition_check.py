"""One partition: its files are listed, its segments read, and everything else compared with what was read."""

import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from tidelog.errors import CheckpointError, StorageError
from tidelog.fsck.batch_order import Layout, are_dense, lay_out
from tidelog.fsck.doubts import note_doubts
from tidelog.fsck.epoch_check import WrongEpoch, check_epochs, epochs_of_log
from tidelog.fsck.findings import Finding, Severity
from tidelog.fsck.index_check import check_offset_index, check_time_index
from tidelog.fsck.index_spacing import IndexSpacing
from tidelog.fsck.log_check import GapRules, judged_damage, note_damage, note_gaps, note_layout
from tidelog.fsck.loose_batches import place_loose, unbury
from tidelog.fsck.lost_ends import Indexes, check_txn_indexes, lost_ends, note_undecided
from tidelog.fsck.notes import Notes
from tidelog.fsck.partition_files import PartitionFiles
from tidelog.fsck.places import PartitionPlace
from tidelog.fsck.producer_check import SnapshotCheck
from tidelog.fsck.quarantine import Notice
from tidelog.fsck.root_files import LogEnds, RootFiles
from tidelog.fsck.segment_facts import Batches, span_of
from tidelog.fsck.segment_scan import Damage, SegmentFacts, scan_segment
from tidelog.fsck.txn_check import note_lost_markers
from tidelog.log.checkpoints import read_epochs
from tidelog.log.files import ReadFileSystem, join, opened, read_whole
from tidelog.log.local_files import LocalReadFiles
from tidelog.log.names import (
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    SWAP,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from tidelog.log.partition_metadata import read_topic_id
from tidelog.log.set_aside import SET_ASIDE

__all__ = ["PartitionCheck"]

_RECALLED = "compare it with a replica (tidelog diff); then take its line out of the manifest of that repair"
_REBUILT_BY_RECOVERY = ("IDX-", "TIX-", "TXN-", "SNP-")
_READ_WHOLE = "Kafka reads the whole segment to make one"
_QUORUM = (
    "a repair leaves it as it is, since a metadata log without some of its records is another cluster: restore the "
    "directory from a backup, or let another controller of the quorum replicate it"
)
_LOSSES = ("LOG-CRC", "LOG-LENGTH", "LOG-TORN", "LOG-ZEROS", "LOG-CODEC", "LOG-RECORDS", "LOG-DELTAS", "LOG-ORDER")
_OFFSETS_IN_INDEXES = ((INDEX_SUFFIX, 8, slice(0, 4)), (TIME_INDEX_SUFFIX, 12, slice(8, 12)))  # size of an entry

OnBytes = Callable[[int], None]


class PartitionCheck:
    """The check of one partition directory. First `scan` every segment, in any order and thread, then `finish`."""

    def __init__(
        self,
        fs: ReadFileSystem,
        place: PartitionPlace,
        root: RootFiles,
        *,
        deep: bool,
        explained: Sequence[tuple[int, int]] = (),
        notices: Sequence[Notice] = (),
    ) -> None:
        """`explained` are offsets that earlier repairs have taken out, `notices` what they noted for later checks."""
        self.place = place
        self.root = root
        self.explained = explained
        self.notes = Notes(root.place.path, place.topic_partition)
        self.files = PartitionFiles(fs, place.path, place.topic_partition)
        self.segments: list[SegmentFacts] = []
        self.layout = Layout([], [], [], [], [])
        self.wrong_epochs: list[WrongEpoch] = []
        self.is_compacted = False
        self.gaps: list[tuple[str, int, int]] = []  # file and offsets that are missing, and nothing says why
        self.kept_txn_indexes: set[int] = set()  # base offsets: they list markers in the lost end of the segment
        self.spacing = IndexSpacing()
        self.recalled: list[Finding] = []  # what earlier repairs noted
        self._fs = fs
        self._deep = deep
        self._notices = notices
        self._unread: set[int] = set()  # base offsets of segments that cannot be read
        self._is_live = place.is_live and root.place.has_files

    # -- reading -------------------------------------------------------------------------------------------------

    def scan(self, base_offset: int, on_bytes: OnBytes = lambda count: None) -> SegmentFacts | None:
        """Read one segment; None if that was not possible, which is noted."""
        path = self.files.path(base_offset, LOG_SUFFIX)
        try:
            with opened(self._fs.open(path)) as file:
                return scan_segment(file, base_offset, deep=self._deep, on_bytes=on_bytes)
        except StorageError as error:
            if self._fs.stat(path) is not None:  # else a live broker has removed it
                self.notes.add_unreadable(path, error)
                self._unread.add(base_offset)
            return None

    @property
    def is_sound(self) -> bool:
        """Whether every byte of the log is a batch in its place."""
        return self.layout.is_right and not any(facts.damage for facts in self.segments)

    @property
    def ends(self) -> LogEnds | None:
        """Where the log begins and ends, by its sound batches; None if that cannot be known.

        One without any segment ends where Kafka would begin it.
        """
        if not self.segments:
            start = self.log_start or 0
            return LogEnds(start, start) if not self.files.bases and not self.notes.has("FILE-READ") else None
        if self.segments[-1].is_unread:
            return None
        ends = [self.segments[-1].base_offset]
        for facts, which in zip(self.segments, self.layout.in_place, strict=True):
            if which.any():
                ends.append(int(facts.batches["last"][which].max()) + 1)
        for segment, batch, offset in self.layout.shifted:
            row = self.segments[segment].batches[batch]
            ends.append(offset + span_of(row) + 1)
        ends += [int(placed.run.of(self.segments)["last"].max()) + 1 for placed in self.layout.moved]
        return LogEnds(self.segments[0].base_offset, max(ends))

    # -- comparing -----------------------------------------------------------------------------------------------

    def finish(self, segments: Sequence[SegmentFacts]) -> None:
        """Look at everything, now that the segments have been read."""
        self.segments = sorted([*segments, *self._unread_segments()], key=lambda facts: facts.base_offset)
        self.is_compacted = self._was_cleaned() or any(facts.looks_compacted for facts in self.segments)
        self.layout = self._lay_out()
        self._check_names()
        self._check_metadata()
        self._check_logs()
        for facts in self.segments:
            if not facts.is_unread:
                self._check_indexes(facts)
        self._check_producers()
        self._leave_to_missing_index()
        self._leave_to_recovery()
        note_doubts(self.notes, self.segments, self.layout)
        if self.is_quorum:
            self.notes.findings = [
                replace(one, remedy=_QUORUM) if one.code.startswith("LOG-") and one.code != "LOG-GAP" else one
                for one in self.notes.findings
            ]
        if isinstance(self._fs, LocalReadFiles):
            self._check_owners()

    def _lay_out(self) -> Layout:
        """Find the place of every batch: by the order of those that stand in one, then of those that do not."""
        layout = self._lay_out_once()
        if any(facts.buried for facts in self.segments) and unbury(layout, self.segments, layout.bases, self._reached):
            layout = self._lay_out_once()
        return layout

    def _lay_out_once(self) -> Layout:
        layout = lay_out(
            self.segments, self.closed_at, self._is_copy, may_have_gaps=lambda: self.may_have_gaps,
            is_witnessed=self.is_witnessed,
            is_named_right=self.is_named_right,
        )  # fmt: skip
        return place_loose(
            layout, self.segments, layout.bases, self._reached, self._is_copy,
            may_have_gaps=lambda: self.may_have_gaps, closed_at=self.closed_at,
        )  # fmt: skip

    @cached_property
    def may_have_gaps(self) -> bool:
        """Whether the offset of a batch need not be the one after the batch before it.

        So it is in a compacted log, and what says that a log is compacted may not be here: then the batches themselves
        do, by their gaps. Too few batches prove nothing.
        """
        policy = self.root.policies.is_compacted(self.place.topic_partition.topic) if self._is_live else None
        if self.is_compacted or self.is_quorum or policy:
            return True
        is_told = policy is False or (self._is_live and self.root.is_known(CLEANER_CHECKPOINT))
        are_without = are_dense(self.segments, self.explained)
        return not is_told if are_without is None else not are_without

    def is_witnessed(self, facts: SegmentFacts, first: int, last: int) -> bool:
        """Whether a checkpoint, an index or a producer snapshot knows the offsets that a batch of a segment claims."""
        if (self._reached or 0) > last or last + 1 in self.files.snapshots:
            return True
        return any(first <= offset <= last for offset in self._indexed_offsets(facts.base_offset))

    def is_named_right(self, facts: SegmentFacts) -> bool:
        """Whether an index with the name of a segment knows the last offset of a batch behind the first one.

        Indexes store offsets relative to their name: those of files that were renamed together know none.
        """
        known = set(facts.batches["last"][1:].tolist())
        return bool(known) and any(offset in known for offset in self._indexed_offsets(facts.base_offset))

    def _indexed_offsets(self, base: int) -> Iterator[int]:
        """The offsets in the indexes of a segment; one that cannot be read is reported when it is checked itself."""
        for suffix, size, field in _OFFSETS_IN_INDEXES:
            if not self.files.has(base, suffix):
                continue
            try:
                data = read_whole(self._fs, self.files.path(base, suffix))
            except StorageError:
                continue
            for start in range(0, len(data) - size + 1, size):
                yield base + int.from_bytes(data[start : start + size][field], "big")

    @property
    def _reached(self) -> int | None:
        """An offset that the log has reached, by the checkpoints; None if they do not know it."""
        if not self._is_live:
            return None
        known = [
            self.root.offset_of(name, self.place.topic_partition)
            for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
        ]
        return max((offset for offset in known if offset is not None), default=None)

    def _leave_to_missing_index(self) -> None:
        """Make errors warnings if they are about time and transaction indexes of a segment without offset index.

        Kafka reads such a segment whenever it starts, and rebuilds all of its indexes.
        """
        missing = {
            finding.file.removesuffix(INDEX_SUFFIX) for finding in self.notes.findings if finding.code == "IDX-MISSING"
        }
        for number, finding in enumerate(self.notes.findings):
            is_rebuilt = finding.code.startswith(("TIX-", "TXN-")) and finding.code != "TXN-MARKER"
            if is_rebuilt and finding.severity is Severity.ERROR and finding.file.rpartition(".")[0] in missing:
                self.notes.findings[number] = replace(finding, severity=Severity.WARNING)

    def _leave_to_recovery(self) -> None:
        """Make findings info if they are about files that Kafka rebuilds when it starts after a crash.

        After an unclean shutdown it reads every segment from the recovery point on, and rebuilds its indexes and the
        producer snapshots after it.
        """
        if not self._is_live or self._is_clean or not self.segments:
            return
        recovered_from = self.root.offset_of(RECOVERY_POINT_CHECKPOINT, self.place.topic_partition) or 0
        bases = [facts.base_offset for facts in self.segments]
        first = bases[max(bisect_right(bases, recovered_from) - 1, 0)]
        for number, finding in enumerate(self.notes.findings):
            name = finding.file.rpartition("/")[2]
            is_beside = finding.code.startswith(_REBUILT_BY_RECOVERY) and name[:20].isdecimal()
            if is_beside and finding.code != "TXN-MARKER" and int(name[:20]) >= first:
                self.notes.findings[number] = replace(
                    finding, severity=Severity.INFO, remedy="none: Kafka rebuilds it when it starts"
                )

    def _unread_segments(self) -> Iterator[SegmentFacts]:
        """Stand for the segments that cannot be read: what follows from them is not judged."""
        for base in self._unread:
            facts = SegmentFacts(self.files.path(base, LOG_SUFFIX), base, 0)
            facts.is_unread = True
            yield facts

    @property
    def last_log(self) -> str:
        """The path of the last segment, or of the one that Kafka would begin."""
        base = self.segments[-1].base_offset if self.segments else self.log_start or 0
        return self.files.path(base, LOG_SUFFIX)

    def recall(self) -> None:
        """Tell what earlier repairs have left to people, unless it is found once more."""
        found = {(finding.code, finding.file) for finding in self.notes.findings}
        for notice in self._notices:
            path = join(self.files.directory, notice.file)
            if notice.code == "SEG-DOUBT" and notice.file in self.files.stats and (notice.code, path) not in found:
                message = f"was in doubt when it was repaired on {notice.repaired}: {notice.why}"
                self._recall(notice, path, message)
            elif notice.offsets is not None and self.place.topic_partition not in self.root.losses:
                self._recall(notice, path, self._about_loss(*notice.offsets, notice.repaired))

    def _about_loss(self, first: int, last: int, repaired: str) -> str:
        """What became of offsets that were after the end of the log when it was repaired."""
        gone = f"{last - first + 1} offsets ({first} to {last}) were" if last > first else f"offset {first} was"
        message = f"{gone} gone when it was repaired on {repaired}"
        end = first if self.ends is None else min(self.ends.end, last + 1)
        if end <= first:
            return f"{message}, and nothing has been written since"
        now = f"offset {first} is" if end == first + 1 else f"offsets {first} to {end - 1} are"
        return f"{message}; {now} there now, written or restored since"

    def _recall(self, notice: Notice, path: str, message: str) -> None:
        self.notes.add(notice.code, path, message, offsets=notice.offsets, severity=Severity.INFO, remedy=_RECALLED)
        self.recalled.append(self.notes.findings[-1])

    def again(self, root: RootFiles) -> "PartitionCheck":
        """The same check once more, by what the files of the root say now."""
        return PartitionCheck(
            self._fs, self.place, root, deep=self._deep, explained=self.explained, notices=self._notices
        )

    def _was_cleaned(self) -> bool:
        cleaned = self.root.offset_of(CLEANER_CHECKPOINT, self.place.topic_partition) if self._is_live else None
        return cleaned is not None and cleaned > 0

    def _may_be_cleaning(self, *, is_clean: bool) -> bool:
        """Whether a compaction may have removed offsets although no checkpoint says so: it is written at the end.

        By the topic's policy; where nothing tells it, after a stop that was not clean.
        """
        if not self._is_live:
            return False
        policy = self.root.policies.is_compacted(self.place.topic_partition.topic)
        return not is_clean if policy is None else policy

    @property
    def closed_at(self) -> int | None:
        """The log end when the root was closed in good order."""
        if not self._is_clean:
            return None
        return self.root.offset_of(RECOVERY_POINT_CHECKPOINT, self.place.topic_partition)

    @property
    def log_start(self) -> int | None:
        """The log start, or None where no checkpoint can tell."""
        if not self._is_live or not self.root.is_known(LOG_START_CHECKPOINT):
            return None
        first = self.segments[0].base_offset if self.segments else 0
        return max(self.root.offset_of(LOG_START_CHECKPOINT, self.place.topic_partition) or 0, first)

    def noted_epoch(self, offset: int) -> int | None:
        """The leader epoch of an offset by the epoch checkpoint; None if it cannot tell."""
        try:
            entries = read_epochs(self._fs, join(self.files.directory, LEADER_EPOCH_CHECKPOINT))
        except (CheckpointError, StorageError):
            return None
        return max((entry.epoch for entry in entries if entry.start_offset <= offset), default=None)

    @property
    def start_by_epochs(self) -> int | None:
        """The log start by the leader epochs, if they begin inside the first segment: deleting records folds them."""
        try:
            entries = read_epochs(self._fs, join(self.files.directory, LEADER_EPOCH_CHECKPOINT))
        except (CheckpointError, StorageError):
            return None
        if self._unread:
            return None
        in_log = epochs_of_log(self.segments, self.layout)
        if not entries or not in_log or not in_log[0].start_offset < entries[0].start_offset:
            return None
        return entries[0].start_offset if entries[0].start_offset <= self.segments[-1].next_offset else None

    @property
    def _is_clean(self) -> bool:
        return self._is_live and self.root.is_clean

    @property
    def _will_be_recovered(self) -> bool:
        """Whether the next start recovers the directory, also one that is copied from another root or deleted."""
        return self.root.place.has_files and not self.root.is_clean

    def _check_names(self) -> None:
        files, notes = self.files, self.notes
        for name in files.misnamed:
            notes.add("PAR-NAME", join(files.directory, name), "Kafka cannot tell which offset it begins at")
        for name in files.foreign:
            what = "not a file of a partition"
            if name.startswith(SET_ASIDE):
                what = "batches that recovery set aside, because offsets went back: look at them, and remove the file"
            notes.add("PAR-FOREIGN", join(files.directory, name), what)
        for name in files.leftovers:
            message, severity = "a compaction did not come to its end", None
            if self._will_be_recovered:
                severity = Severity.INFO  # a start settles it
            if self.root.is_in_use:
                message, severity = "a compaction is at work", Severity.INFO
            notes.add("PAR-LEFTOVER", join(files.directory, name), message, severity=severity)
        for name in files.deleted:
            notes.add("PAR-DELETED", join(files.directory, name), "it waits to be removed")
        for name in files.orphans:
            severity = Severity.INFO if self._will_be_recovered else None  # a start removes it
            notes.add("SEG-NO-LOG", join(files.directory, name), "its .log file is missing", severity=severity)
        if not files.bases:
            severity = Severity.INFO if self._may_be_new else None
            notes.add("PAR-EMPTY", files.directory, "there is no .log file", severity=severity)

    @property
    def _may_be_new(self) -> bool:
        """Whether a directory may be empty because a crash came, or we, while it was made: nothing knows its log."""
        checkpoints = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT)
        known = (self.root.offset_of(name, self.place.topic_partition) for name in checkpoints)
        return self._is_live and not self.root.is_clean and not any(known)

    def _check_metadata(self) -> None:
        path = join(self.files.directory, PARTITION_METADATA)
        try:
            if read_topic_id(self._fs, path) is None and self.needs_topic_id and not self.is_quorum:
                self.notes.add("PAR-METADATA", path, "it is missing: the broker would set the directory aside")
        except CheckpointError as error:
            self.notes.add("PAR-METADATA", path, str(error).removeprefix(f"{path}: "))
        except StorageError as error:
            self.notes.add_unreadable(path, error)

    @property
    def needs_topic_id(self) -> bool:
        """Whether the identity of the root says that the broker knows topics by their ids."""
        meta = self.root.meta
        return self._is_live and meta is not None and meta.version >= 1

    @property
    def is_quorum(self) -> bool:
        return self.place.topic_partition.topic == CLUSTER_METADATA_TOPIC

    def code_of(self, facts: SegmentFacts, damage: Damage) -> str:
        """The code under which damage of a segment was noted."""
        is_last = facts is self.segments[-1]
        return judged_damage(facts, damage, is_last=is_last, is_clean=self._was_closed, flushed=self._flushed)[0]

    @property
    def _flushed(self) -> int | None:
        """The offset from which on a crash may have left anything; None if it is unknown."""
        if not self._is_live or self._is_clean or not self.root.is_known(RECOVERY_POINT_CHECKPOINT):
            return None
        return self.root.offset_of(RECOVERY_POINT_CHECKPOINT, self.place.topic_partition) or 0

    @property
    def _was_closed(self) -> bool:
        """Whether nothing has been appended since the root was closed in good order."""
        return self._is_clean and not self.root.is_in_use

    def _check_logs(self) -> None:
        is_clean = self._was_closed
        for facts in self.segments:
            note_damage(
                self.notes, facts, is_last=facts is self.segments[-1], is_clean=is_clean, flushed=self._flushed
            )  # fmt: skip
        note_layout(self.notes, self.segments, self.layout, is_clean=is_clean, flushed=self._flushed)
        rules = GapRules(
            log_start=self.log_start or 0,
            is_compacted=self.is_compacted or self.is_quorum,
            may_be_compacted=not self._is_live or not self.root.is_known(CLEANER_CHECKPOINT),
            may_be_cleaning=lambda: self._may_be_cleaning(is_clean=is_clean),
            explained=self.explained,
        )
        self.gaps = note_gaps(self.notes, self.segments, self.layout, rules)
        self.wrong_epochs = check_epochs(
            self.notes, self._fs, self.files.directory, self.segments, self.layout,
            log_start=self.log_start, is_clean=is_clean,
        )  # fmt: skip

    def _check_indexes(self, facts: SegmentFacts) -> None:
        base, notes = facts.base_offset, self.notes
        is_last = facts is self.segments[-1]
        is_open = is_last and not self._is_clean
        may_lack = is_open and (self.root.is_in_use or not facts.size)  # they are made with the first entry
        path = self.files.path(base, INDEX_SUFFIX)
        data = self._content(path, base, INDEX_SUFFIX)
        if data is not None:
            steps = check_offset_index(notes, path, data, facts, is_open=is_open)
            if steps is not None:
                self.spacing.take(steps)
        elif not may_lack and not self._has(base, INDEX_SUFFIX):
            notes.add("IDX-MISSING", path, _READ_WHOLE)
        path = self.files.path(base, TIME_INDEX_SUFFIX)
        data = self._content(path, base, TIME_INDEX_SUFFIX)
        if data is not None:
            check_time_index(notes, path, data, facts, is_open=is_open)
        elif facts.max_timestamp_ms >= 0 and not may_lack and not self._has(base, TIME_INDEX_SUFFIX):
            is_rebuilt = not self._has(base, INDEX_SUFFIX)
            words = _READ_WHOLE if is_rebuilt else "Kafka makes an empty one: lookups by time pass over the segment"
            notes.add("TIX-MISSING", path, words)

    def _has(self, base: int, suffix: str) -> bool:
        """Whether a file of a segment is there, or on its way from a compaction: a start gives it its name."""
        return self.files.has(base, suffix) or file_name(base, suffix) + SWAP in self.files.stats

    def _content(self, path: str, base: int, suffix: str) -> bytes | None:
        """What a file holds; None if it is not there, or cannot be read, which is noted."""
        if not self.files.has(base, suffix):
            return None
        try:
            return read_whole(self._fs, path)
        except StorageError as error:
            if self._fs.stat(path) is not None:
                self.notes.add_unreadable(path, error)
            return None

    def _check_producers(self) -> None:
        until = min(self._unread, default=None)
        known = [facts for facts in self.segments if until is None or facts.base_offset < until]
        snapshots = SnapshotCheck(self.notes, self._fs, self.files.directory, self.files.snapshots, known, until)
        snapshots.read_all()
        ends = self.ends
        if not self.segments:
            return
        first = self.segments[0].base_offset
        indexes, ends_lost = self._transaction_indexes(), lost_ends(self.segments, self.layout)
        if until is None:
            self.kept_txn_indexes = self._compare_txn_indexes(Notes(None, None), known, indexes, ends_lost)
            missing = self._missing(ends_lost)
            note_lost_markers(self.notes, self.segments, indexes, missing, self.kept_txn_indexes)
            note_undecided(self.notes, known, ends_lost, self.kept_txn_indexes, missing, snapshots.found)
        if not self.is_sound:
            return  # what the damaged batches did is not known, nor where the log ends
        if ends is not None:
            snapshots.note_strays(self.files.bases, ends.end)
        self._compare_txn_indexes(self.notes, known, indexes, ends_lost)
        start = self.log_start or 0
        has_producers = any(facts.has_producers and facts.next_offset > start for facts in self.segments)
        snapshots.note_missing(has_producers=has_producers, is_clean=self._is_clean)
        if self._deep and known:
            snapshots.compare(log_start=max(self.log_start or 0, first), is_compacted=self.is_compacted)

    def _is_copy(self, facts: SegmentFacts, number: int) -> bool:
        """Whether a batch has another with the same offset and the same bytes."""
        batch = facts.batches[number]
        data = self._bytes_of(facts, batch)
        for other in self.segments:
            batches = other.batches
            is_alike = (batches["first"] == batch["first"]) & (batches["size"] == batch["size"])
            if other is facts:
                is_alike[number] = False
            if any(self._bytes_of(other, one) == data for one in batches[is_alike]):
                return True
        return False

    def _bytes_of(self, facts: SegmentFacts, batch: Batches) -> bytes:
        with opened(self._fs.open(facts.path)) as file:
            return file.read(int(batch["position"]), int(batch["size"]))

    def _compare_txn_indexes(
        self, notes: Notes, known: Sequence[SegmentFacts], indexes: Indexes, ends: dict[int, tuple[int, int]]
    ) -> set[int]:
        unchecked = {base for base, (_, data) in indexes.items() if data is None and self._has(base, TXN_INDEX_SUFFIX)}
        return check_txn_indexes(
            notes, known, indexes, ends, unchecked=unchecked,
            first_offset=max(self.log_start or 0, self.segments[0].base_offset), is_compacted=self.is_compacted,
        )  # fmt: skip

    def _transaction_indexes(self) -> dict[int, tuple[str, bytes | None]]:
        """Path and content by base offset."""
        paths = {facts.base_offset: self.files.path(facts.base_offset, TXN_INDEX_SUFFIX) for facts in self.segments}
        return {base: (path, self._content(path, base, TXN_INDEX_SUFFIX)) for base, path in paths.items()}

    def _missing(self, ends: dict[int, tuple[int, int]]) -> list[tuple[int, int]]:
        """Offsets that were lost, now or in an earlier repair."""
        torn = [facts for facts in self.segments if facts.damage and facts.damage[-1].position >= facts.sound_end]
        at_ends = [ends[facts.base_offset] for facts in torn if facts.base_offset in ends]
        damaged = [finding.offsets for finding in self.notes.findings if finding.code in _LOSSES and finding.offsets]
        return sorted({*damaged, *at_ends, *self._still_missing(), *((first, last) for _, first, last in self.gaps)})

    def _still_missing(self) -> Iterator[tuple[int, int]]:
        """What earlier repairs found missing; offsets after the end of a log go to other records later."""
        for first, last in self.explained:
            for facts in self.segments:
                batches = facts.batches
                inside = (batches["last"] >= first) & (batches["first"] <= last)
                if inside.any():
                    first = int(batches["last"][inside].max()) + 1
            if first <= last:
                yield first, last

    def _check_owners(self) -> None:
        """Files that the owner of the directory may not write: a broker that runs as that user cannot start."""
        try:
            directory = os.stat(self.files.directory)
            unread = {finding.file for finding in self.notes.findings if finding.code == "FILE-READ"}
            for name in self.files.stats:
                path = join(self.files.directory, name)
                if path in unread:
                    continue  # that it cannot be written either is no news
                file = os.lstat(path)
                if not stat.S_ISREG(file.st_mode):
                    continue  # the owner of a link says nothing about what it points to
                is_own = file.st_uid == directory.st_uid
                may = file.st_mode & (0o200 if is_own else 0o020 if file.st_gid == directory.st_gid else 0o002)
                if not may and directory.st_uid != 0:
                    message = f"it belongs to user {file.st_uid}, the directory to {directory.st_uid}"
                    self.notes.add("FILE-OWNER", path, message, severity=Severity.WARNING)
        except OSError:
            return  # a file went while we looked
