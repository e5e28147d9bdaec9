"""A small load: rows for three partitions of a topic, and a process that is killed in the middle of it.

python -m tests.tables.loads ROOT 20        load into a root, and be killed with the twentieth call to the disk
"""

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from tests.log.logs import NOW
from tidelog.log import ManualClock
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tidelog.tables.load import load_table

ROWS = [{"value": [b"a%d" % number for number in range(6)], "partition": [0, 0, 1, 1, 0, 1]},
        {"value": [b"b" * 700, b"c" * 700, b"d"], "partition": [1, 0, 2]}]  # fmt: skip
Values = dict[int, list[bytes | None]]
ADDED: Values = {
    0: [b"a0", b"a1", b"a4", b"c" * 700],
    1: [b"a2", b"a3", b"a5", b"b" * 700],
    2: [b"d"],
}


def forget_missing(root: Path) -> None:
    """Remove from the checkpoints every partition without a directory, as if it had never had records."""
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        checkpoint = OffsetCheckpoint(LocalFileSystem(), str(root / name))
        checkpoint.write({place: at for place, at in checkpoint.read().items() if (root / str(place)).is_dir()})


class DeadlyDisk(LocalFileSystem):
    """The local disk, under a process that is killed with its n-th call of those that matter."""

    def __init__(self, kill_at: int) -> None:
        self.calls_left = kill_at

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: str) -> bool:
        self._count()
        return super().remove(path)

    def sync_directory(self, path: str) -> None:
        self._count()
        super().sync_directory(path)


def load_here(root: str, kill_at: int = 0) -> int:
    """Load the rows; how many calls it took."""
    disk = DeadlyDisk(kill_at)
    batches = [pa.RecordBatch.from_pydict(each) for each in ROWS]
    load_table(batches, root, "orders", partitions=3, fs=disk, clock=ManualClock(NOW), rng=random.Random(7))
    return kill_at - disk.calls_left


def kill_in(write: Callable[[str, int], int], root: Path, call: int) -> None:
    """Do a write in a process of its own, which is killed with one of its calls."""
    process = os.fork()
    if not process:
        try:
            write(str(root), call)
        finally:
            os._exit(1)  # it was to be killed
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"call {call} was not made"


if __name__ == "__main__":
    load_here(sys.argv[1], int(sys.argv[2]))
