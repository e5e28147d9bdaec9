"""A broker without a network: logs in roots, one clock, one schedule, and the cleaner that looks after them.

    broker = Broker()
    log = broker.log("fruit", "aab abb c")    segments of records with these keys; the last segment is the active one
    broker.start()
    kept(log)                                 "a3 b5 c6": the key and the offset of every record
    broker.pass_time(minutes=1)               and what is due in it is done

The disk is a simulated one: `broker.disk.fail(...)` lets it refuse.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.log.logs import NOW, SMALL_INDEXES, all_replicated, batch, lead, names_in, records_in
from tidelog.errors import StorageError
from tidelog.log import LogConfig, ManualClock, UnifiedLog
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.compaction.cleaner_states import IN_PROGRESS
from tidelog.log.compaction.log_cleaner import LogCleaner
from tidelog.log.files import read_whole
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLEANED, CLEANER_CHECKPOINT, TopicPartition
from tidelog.log.tasks import Schedule
from tidelog.records import NewRecord
from tidelog.testing.disk import SimulatedFileSystem

FRUIT, CLEAN_FRUIT = "aab abb c", "a3 b5 c6"  # what is written, and what is kept of it
VALUE = b"v" * 30
COMPACT = {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.05, "delete_retention_ms": 1000}


class Broker:
    """What LogManager is to the cleaner, in small. With a directory the files are real ones."""

    def __init__(self, *, roots: int = 1, directory: Path | None = None, **cleaner: Any) -> None:
        self.clock = ManualClock(NOW)
        self.schedule = Schedule(self.clock)
        self.disk = SimulatedFileSystem(self.clock)
        self.fs = self.disk if directory is None else LocalFileSystem()
        self.roots = [f"{directory or '/kafka'}/root{number}" for number in range(roots)]
        for root in self.roots:
            self.fs.make_directory(root)
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.failures: list[tuple[str, StorageError]] = []
        self.files = {root: OffsetCheckpoint(self.fs, f"{root}/{CLEANER_CHECKPOINT}") for root in self.roots}
        self.cleaner = self.new_cleaner(**cleaner)

    def new_cleaner(self, **config: Any) -> LogCleaner:
        """Another cleaner over the same logs, as after a restart."""
        return LogCleaner(self.logs, self.files, CleanerConfig(**config), self.clock, self.schedule, self._root_failed)

    @property
    def root(self) -> str:
        return self.roots[0]

    def _root_failed(self, root: str, error: StorageError) -> None:
        self.failures.append((root, error))
        self.cleaner.root_failed(root)
        for partition, log in list(self.logs.items()):
            if log.directory.startswith(f"{root}/"):
                del self.logs[partition]

    def log(self, name: str, keys: str = "", *, root: int = 0, clean_to: int | None = None, **topic: Any) -> UnifiedLog:
        """A new compacted log of these segments, all replicated, clean up to an offset."""
        partition = TopicPartition(name, 0)
        log = UnifiedLog.open(
            f"{self.roots[root]}/{partition}",
            LogConfig(**{"segment_index_bytes": SMALL_INDEXES.segment_index_bytes, **COMPACT, **topic}),
            clock=self.clock,
            fs=self.fs,
            schedule=self.schedule,
            lock=False,
            on_failure=self._root_failed,
        )
        self.logs[partition] = log
        write(log, keys)
        self.schedule.run_due()  # flushes
        if clean_to is not None:
            self.cleaner.update_checkpoint(self.roots[root], add=(partition, clean_to))
        return log

    # -- time ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the cleaner and let it do what there is to do now."""
        self.cleaner.start()
        self.schedule.run_due()

    def step(self, times: int = 1) -> None:
        """Do as little as can be done at once."""
        for _ in range(times):
            self.schedule.run_due(0)

    def pass_time(self, ms: int = 0, **time: int) -> None:
        """Move the clock and do what is due."""
        self.clock.advance(ms, **time)
        self.schedule.run_due()

    def back_off(self) -> None:
        """Sleep as long as the cleaner does, and let it look again."""
        self.pass_time(self.cleaner.config.backoff_ms)

    # -- looking -------------------------------------------------------------------------------------------------

    def clean_to(self, *logs: UnifiedLog) -> Any:
        """Up to where the checkpoints say that a log is clean; of several logs, a list."""
        found = [self.cleaner.first_dirty_offsets.get(log.topic_partition) for log in logs]
        return found[0] if len(found) == 1 else found

    def text_of_checkpoint(self, root: int = 0) -> str:
        """What lies in the checkpoint of a root."""
        return read_whole(self.fs, f"{self.roots[root]}/{CLEANER_CHECKPOINT}").decode()


def write(log: UnifiedLog, keys: str, *, timestamp_ms: int | None = None, value: bytes = VALUE, **options: Any) -> None:
    """Append one batch per letter, with the letter as key, and roll between the words."""
    now_ms = log.local.clock.now_ms() if timestamp_ms is None else timestamp_ms
    for number, word in enumerate(keys.split(" ")):
        if number:
            log.roll()
        for key in word:
            lead(log, batch([NewRecord(key.encode(), value, now_ms)], **options))
    all_replicated(log)


def kept(log: UnifiedLog) -> str:
    """Every record as its key and its offset."""
    return " ".join(f"{(record.key or b'').decode()}{record.offset}" for record in records_in(log))


def spoil(log: UnifiedLog, base_offset: int, position: int = 70) -> None:
    """Flip the bits of a byte in a segment; by itself one in the records of its first batch."""
    file = log.local.fs.open_write(f"{log.directory}/{base_offset:020d}.log", create=False)
    file.write_at(position, bytes([file.read(position, 1)[0] ^ 0xFF]))
    file.close()


def bytes_of(log: UnifiedLog, bases: Iterable[int]) -> list[bytes]:
    """What lies in the `.log` files of some segments."""
    return [read_whole(log.local.fs, f"{log.directory}/{base:020d}.log") for base in bases]


def half_written(log: UnifiedLog) -> bool:
    """Whether files of a round that is not done lie in the directory."""
    return bool(names_in(log, CLEANED))


def under_way(broker: Broker, *, steps: int = 3) -> UnifiedLog:
    """A log whose cleaning has begun to write."""
    log = broker.log("fruit", FRUIT)
    broker.cleaner.start()
    broker.step(steps)
    assert broker.cleaner.state_of(log.topic_partition) is IN_PROGRESS
    return log
