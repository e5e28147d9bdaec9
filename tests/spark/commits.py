"""A small commit without Spark: rows of two tasks for three partitions of a topic, and a process that is killed in it.

python -m tests.spark.commits ROOT 20        stage, commit, and be killed with the twentieth call to the disk
"""

import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tests.log.logs import NOW
from tests.tables.loads import ADDED, ROWS, DeadlyDisk, Values
from tidelog.log import LogManager, ManualClock
from tidelog.log.files import FileSystem
from tidelog.log.names import TopicPartition
from tidelog.log.watermarks import Isolation
from tidelog.spark.commit import Order, commit, look
from tidelog.spark.committed_batches import BatchKey
from tidelog.spark.dealing import Dealer, shapes_of
from tidelog.spark.staged_pieces import Piece, attempt_name, job_of_batch
from tidelog.spark.staging import Staging, stage_rows
from tidelog.spark.write_options import WriteOptions

__all__ = [
    "ADDED",
    "KEY",
    "ROWS",
    "Values",
    "commit_here",
    "commit_order",
    "options_for",
    "order_of",
    "stage",
    "values",
]

KEY = BatchKey("0d7c", 4)


def options_for(root: str, **changes: Any) -> WriteOptions:
    """Three partitions, small segments; nobody is waited for."""
    configs = (("segment.bytes", "1024"),)
    return WriteOptions(root, "orders", 3, configs=configs, lock_timeout_ms=1)._replace(**changes)


def stage(
    fs: FileSystem, options: WriteOptions, rows: Mapping[str, object], *, task: int = 0, key: BatchKey = KEY
) -> tuple[Piece, ...]:
    """What a task stages."""
    there = look(options, fs=fs, clock=ManualClock(NOW))
    shapes = shapes_of([] if options.overwrite else there, options.topic, options.partitions)
    dealer = Dealer(options.topic, shapes, options.partitions, first=task)
    attempt = attempt_name(job_of_batch(*key), random.Random(str((task, fs.list(options.root)))))
    return stage_rows([pa.RecordBatch.from_pydict(dict(rows))], dealer, Staging(fs, options, attempt))


def order_of(
    fs: FileSystem, options: WriteOptions, tasks: Sequence[Mapping[str, object]] = ROWS, key: BatchKey = KEY
) -> Order:
    """What a job of some tasks wants to have committed."""
    pieces = [piece for task, rows in enumerate(tasks) for piece in stage(fs, options, rows, task=task, key=key)]
    counts = {"orders": options.partitions or 1} | {
        piece.topic: options.partitions or 1 for piece in pieces if options.topic is None
    }
    return Order(options, pieces, counts, job_of_batch(*key), key)


def commit_order(fs: FileSystem, order: Order) -> bool:
    """Commit in one thread, at a time that stands still."""
    return commit(order, fs=fs, clock=ManualClock(NOW), rng=random.Random(7), threads=1)


def values(fs: FileSystem, root: str, topic: str = "orders") -> Values:
    """What a broker finds that starts on a root."""
    found: Values = {}
    with LogManager.open(root, fs=fs, clock=ManualClock(NOW)) as manager:
        for log in manager.logs_of_topic(topic):
            number = TopicPartition(*log.topic_partition).partition
            found[number] = [record.value for record in log.records(isolation=Isolation.LOG_END)]
    return found


def commit_here(root: str, kill_at: int = 0) -> int:
    """Stage and commit on this machine; how many calls it took."""
    disk = DeadlyDisk(kill_at)
    commit_order(disk, order_of(disk, options_for(root)))
    return kill_at - disk.calls_left


if __name__ == "__main__":
    commit_here(sys.argv[1], int(sys.argv[2]))
