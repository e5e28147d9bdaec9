"""A broker's storage at work, as a process of its own: `python -m tests.fsck.live_writer ROOT SEED`.

It appends to plain, transactional and compacted logs, rolls, deletes by size, moves log starts, truncates and writes
again, compacts, checkpoints, creates and deletes topics, as fast as it can, until its standard input is closed. The
root is never at rest.
"""

import random
import select
import sys
import time
from collections.abc import Callable

from tidelog.log import LogConfig, LogManager, TopicPartition, UnifiedLog
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.manager.manager_config import ManagerConfig
from tidelog.log.origin import AppendOrigin
from tidelog.records import NewRecord, build_batch
from tidelog.records.control import ControlType, EndTxnMarker, build_end_txn_marker

PLAIN, TXNS, KEYS, COPY = (TopicPartition(name, 0) for name in ("plain", "txns", "keys", "copy"))
MANAGER = ManagerConfig(
    verification=False, initial_task_delay_ms=0, retention_check_interval_ms=20, file_delete_delay_ms=50,
    recovery_point_checkpoint_interval_ms=30, log_start_checkpoint_interval_ms=30,
    high_watermark_checkpoint_interval_ms=30, cleaner=CleanerConfig(backoff_ms=10),
)  # fmt: skip
SMALL = LogConfig(segment_bytes=8_000, index_interval_bytes=256, retention_bytes=40_000, retention_ms=-1)
PROPERTIES = {
    "plain": {}, "txns": {}, "copy": {}, "other": {},
    "keys": {
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "4000",
        "delete.retention.ms": "0",
    },
}  # fmt: skip


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Work:
    """Does one thing after the other, by chance."""

    def __init__(self, manager: LogManager, rng: random.Random, now_ms: Callable[[], int] = now_ms) -> None:
        self._manager = manager
        self._rng = rng
        self._now_ms = now_ms
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()
        self._epoch = 0
        self._ends: list[int] = []  # of batches of the log that is truncated, where it was not replicated

    def step(self) -> None:
        deed = self._rng.choices(
            (self.append, self.append_keys, self.in_txn, self.truncate, self.move_start, self.come_and_go, self.lead),
            (30, 30, 25, 4, 3, 1, 1),
        )[0]
        deed()

    def _log(self, partition: TopicPartition) -> UnifiedLog:
        return self._manager.get_or_create(partition)

    def _put(self, log: UnifiedLog, data: bytes | bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        log.append_as_leader(memoryview(bytearray(data)), self._epoch, origin)
        log.update_high_watermark(log.log_end_offset)

    def _records(self, key: bytes | None = None) -> list[NewRecord]:
        count = self._rng.randrange(1, 5)
        return [
            NewRecord(key or b"k", self._rng.randbytes(self._rng.randrange(150)), self._now_ms()) for _ in range(count)
        ]

    def append(self) -> None:
        if self._rng.random() < 0.5:
            self._put(self._log(PLAIN), build_batch(self._records()))
            return
        log = self._log(COPY)
        log.append_as_leader(memoryview(bytearray(build_batch(self._records()))), self._epoch)
        self._ends.append(log.log_end_offset)
        if len(self._ends) > 10:
            log.update_high_watermark(self._ends.pop(0))

    def append_keys(self) -> None:
        self._put(self._log(KEYS), build_batch(self._records(b"key %d" % self._rng.randrange(20))))

    def in_txn(self) -> None:
        producer = self._rng.randrange(4)
        if producer in self._open and self._rng.random() < 0.3:
            self._open.discard(producer)
            kind = self._rng.choice((ControlType.ABORT, ControlType.COMMIT))
            data = build_end_txn_marker(
                EndTxnMarker(kind, 0), producer_id=producer, producer_epoch=0, timestamp_ms=self._now_ms()
            )
            self._put(self._log(TXNS), data, AppendOrigin.COORDINATOR)
            return
        self._open.add(producer)
        records = self._records()
        sequence = self._sequences.get(producer, 0)
        self._sequences[producer] = sequence + len(records)
        data = build_batch(
            records, producer_id=producer, producer_epoch=0, base_sequence=sequence, is_transactional=True
        )
        self._put(self._log(TXNS), data)

    def truncate(self) -> None:
        """As a follower does: to the end of a batch that is not known to be on all replicas."""
        if self._ends:
            at = self._rng.randrange(len(self._ends))
            self._log(COPY)
            self._manager.truncate_to({COPY: self._ends[at]})
            del self._ends[at + 1 :]

    def move_start(self) -> None:
        log = self._log(self._rng.choice((PLAIN, TXNS)))
        log.delete_records(self._rng.randrange(log.log_start_offset, log.high_watermark + 1))

    def come_and_go(self) -> None:
        other = TopicPartition("other", self._rng.randrange(2))
        if self._manager.get(other) is None:
            self._put(self._log(other), build_batch(self._records()))
        else:
            self._manager.delete(other)

    def lead(self) -> None:
        self._epoch += 1


def main(root: str, seed: int) -> None:
    manager = LogManager.open(root, SMALL, config=MANAGER)
    for topic, properties in PROPERTIES.items():
        manager.update_topic_config(topic, properties)
    work = Work(manager, random.Random(seed))
    for _ in range(500):
        work.step()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(20):
            work.step()
        manager.tick(5)
    manager.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
