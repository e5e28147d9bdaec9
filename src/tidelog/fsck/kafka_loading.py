"""Load a log exactly as Kafka 4.3 does when it starts, in memory, to find out what would be left of it.

`LogLoader` loads a log as Kafka does, except where Kafka would lose data that can be kept. Here Kafka's behaviour is
followed to the end: offsets of batches are not compared with those before them; if an index cannot hold them, the whole
segment is emptied; and if they are smaller than the base offset of the segment, Kafka does not start. A log that was
closed in good order ends where its last index says.

Kafka: LogLoader.recoverLog and LogSegment.recover.
"""

import random
from collections.abc import Generator, Iterable
from dataclasses import replace

from tidelog.errors import CorruptIndexError, CorruptionError, StorageError
from tidelog.fsck.rehearsal import RehearsalFileSystem
from tidelog.log.batch_scan import read_batch, scan_batches
from tidelog.log.batch_windows import BatchWindow
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.config import LogConfig
from tidelog.log.files import join
from tidelog.log.leftovers import settle_leftovers
from tidelog.log.loader import LogLoader, Steps
from tidelog.log.names import (
    CLEANED,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP,
    file_name,
)
from tidelog.log.offsets import MAX_OFFSET
from tidelog.log.recovery import SegmentRecovery
from tidelog.log.segment import LogSegment
from tidelog.log.tasks import Schedule
from tidelog.log.text_files import to_number
from tidelog.log.unified_log import UnifiedLog
from tidelog.records.java import MAX_INT32
from tidelog.records.legacy import LegacyBatch

__all__ = ["load_as_kafka"]

_DAY_MS = 86_400_000
_DEFAULTS = LogConfig()
_NAMED_BY_OFFSET = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, SWAP, CLEANED)


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
    epochs = join(directory, LEADER_EPOCH_CHECKPOINT)
    if LEADER_EPOCH_CHECKPOINT in fs.list(directory) and fs.stat(epochs) is None:
        raise StorageError(f"{epochs}: a link that leads nowhere")
    others = _hide_other_than_files(fs, directory)
    _rename_as_kafka(fs, directory)
    clock: Clock = SystemClock()
    loader = _KafkaLoader(
        directory,
        replace(config, segment_index_bytes=max(config.segment_index_bytes, _DEFAULTS.segment_index_bytes)),
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
    loader.index_bytes = config.segment_index_bytes
    log = loader.load()
    for segment in log.segments:
        if segment.log.path in others:
            raise StorageError(f"{segment.log.path}: Is a directory")
    return log


def _hide_other_than_files(fs: RehearsalFileSystem, directory: str) -> set[str]:
    """Hide what is named like the log of a segment and is no file: Kafka overlooks it. Returns the directories."""
    found = set()
    for name in fs.list(directory):
        path = join(directory, name)
        about = fs.stat(path)
        if name.endswith(LOG_SUFFIX) and (about is None or about.is_directory):
            fs.remove(path)
            if about is not None:
                found.add(path)
    return found


def _rename_as_kafka(fs: RehearsalFileSystem, directory: str) -> None:
    """Settle names that Java parses as offsets, and that are not 20 digits.

    Kafka takes the offset from such a name, and opens the file whose name has 20: of a log that is an empty one, and an
    index is not used. An empty segment before offset 0 is the same as one at 0.
    """
    for name in fs.list(directory):
        digits, _, suffix = name.partition(".")
        offset, kind = to_number(digits, 64), suffix.removesuffix(SWAP)
        if offset is None or (offset >= 0 and digits == f"{offset:020}") or not f".{suffix}".endswith(_NAMED_BY_OFFSET):
            continue
        path = join(directory, name)
        ends = suffix if offset >= 0 else kind  # a swapped segment before 0 replaces none
        target = join(directory, file_name(max(offset, 0), f".{ends}"))
        if f".{suffix}" == SNAPSHOT_SUFFIX and fs.stat(target) is None:
            fs.rename(path, target)
        elif f".{suffix}".endswith(CLEANED) or (f".{kind}" == LOG_SUFFIX and fs.stat(target) is None):
            fs.open_write(target).close()
        fs.remove(path)


class _KafkaRecovery(SegmentRecovery):
    keeps_unreadable = True

    def _first_out_of_order(self, window: BatchWindow) -> int | None:
        return None


class _KafkaLoader(LogLoader):
    recovery = _KafkaRecovery
    index_bytes = _DEFAULTS.segment_index_bytes  # what indexes may have; they are rehearsed with more room

    def _first_unflushed(self, names: Iterable[str]) -> int:
        """Kafka recovers a segment without an index when it opens it, and does not count what it cuts then."""
        return MAX_OFFSET

    def _recover_unflushed(self) -> Generator[None, None, None]:
        unflushed = self.segments.from_offset(self._recovery_point)
        for number, segment in enumerate(unflushed):
            following = unflushed[number + 1 :]
            try:
                bytes_cut = yield from self._recover_segment(segment, following)
            except (CorruptIndexError, StorageError) as error:  # the disk refuses, a snapshot of producers for example
                self._note_cut(segment, 0, following if segment.size else (), str(error))
                if segment.size:
                    self._remove(following)
                bytes_cut = segment.truncate_to(segment.base_offset)
            if bytes_cut:
                break

    def _recover_segment(
        self, segment: LogSegment, following: tuple[LogSegment, ...] = ()
    ) -> Generator[None, None, int]:
        bytes_cut = yield from super()._recover_segment(segment, following)
        self._ensure_indexes_fit(segment)
        return bytes_cut

    def _settle_leftovers(self) -> None:
        settle_leftovers(self._fs, self._directory, self._open_segment, like_kafka=True)

    def _end_of(self, segment: LogSegment) -> int:
        """Kafka looks for the last offset of the index from its position on: if no batch has it, the segment is empty.

        It opens a compressed entry of the old formats to learn its first offset, and gives up if it cannot.
        """
        target = segment.offset_index.last_offset
        file, size = segment.log.file, segment.size
        found = before = None
        for batch in scan_batches(file, segment.offset_index.lookup(target).position, size):
            is_wrapper = batch.is_legacy and batch.codec_id
            first = LegacyBatch(read_batch(file, batch)).base_offset if is_wrapper else batch.base_offset
            if first >= target:
                is_in_before = first > target and before is not None and before.last_offset >= target
                found = before if is_in_before else batch
                break
            before = batch
        if found is None and before is not None and before.last_offset >= target:
            found = before
        if found is None:
            return segment.base_offset
        *_, last = scan_batches(file, found.position, size)
        return last.next_offset

    def _prepare_to_append(self, log_end: int) -> Steps:
        self._ensure_indexes_fit(self.segments.active)
        yield from super()._prepare_to_append(log_end)

    def _ensure_indexes_fit(self, segment: LogSegment) -> None:
        """Indexes that Kafka writes get the size of the config, and it gives up if their entries do not fit."""
        size = self.index_bytes
        for index in (segment.offset_index, segment.time_index):
            if index.entries * index.ROW.size > size:
                raise CorruptionError(f"{index.path}: {index.entries} entries do not fit segment.index.bytes={size}")

    def _split(self, segment: LogSegment) -> None:
        if segment.next_offset() - segment.base_offset <= MAX_INT32:  # then the offsets lie below the segment
            raise CorruptionError(f"{segment.log.path}: offsets that do not fit the segment, which ends below them")
        super()._split(segment)
