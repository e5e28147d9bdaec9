"""A real process that appends and flushes is killed in the middle of it, on a real disk.

What it said was flushed is there; what follows is a beginning of what it would have appended. The page cache survives
a kill, so little is lost here: the crash campaign (tests/property/test_crashes.py) takes that away, too.
"""

import random
import signal
import subprocess
import sys
from pathlib import Path

from tidelog.log import LogConfig, UnifiedLog
from tidelog.records import NewRecord, build_batch

KILLS = 6
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500, segment_index_bytes=4096)
PRODUCER = 7
NEVER = 2**62  # the records are old


def batch_at(number: int) -> bytes:
    """The batch that comes as the n-th, from 0: what a record is can be told from its offset alone."""
    rng = random.Random(number)
    records = [NewRecord(b"%d" % number, rng.randbytes(rng.randint(0, 300)), 1_700_000_000_000 + number)]
    return bytes(build_batch(records, producer_id=PRODUCER, producer_epoch=0, base_sequence=number))


def stored(number: int) -> bytes:
    """The same batch as it lies in the log: with its offset, and the leader epoch 0."""
    data = batch_at(number)
    return number.to_bytes(8, "big") + data[8:12] + bytes(4) + data[16:]


def append_for_ever(directory: str) -> None:
    """What the process does: append, flush now and then, and say up to which offset."""
    log = UnifiedLog.open(directory, CONFIG, producer_id_expiration_ms=NEVER)
    print(log.log_end_offset, flush=True)  # noqa: T201 - this is how it tells
    while True:
        number = log.log_end_offset
        log.append_as_leader(memoryview(bytearray(batch_at(number))), leader_epoch=0)
        log.update_high_watermark(number + 1)
        if number % 5 == 0:
            log.flush()
            print(log.recovery_point, flush=True)  # noqa: T201
        if number % 7 == 0:
            log.tick()


def kill_at_a_random_moment(directory: Path, rng: random.Random) -> int:
    """Start the process, kill it; the offset up to which it said that all was flushed."""
    command = [sys.executable, "-m", "tests.log.test_kill", str(directory)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(rng.randint(1, 60))]
        process.send_signal(signal.SIGKILL)
        said += [int(line) for line in process.stdout if line.endswith("\n")]
    assert process.returncode == -signal.SIGKILL
    return said[-1]


def test_what_a_killed_process_said_was_flushed_is_there(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    rng = random.Random(4)
    flushed = 0
    for _ in range(KILLS):
        flushed = max(flushed, kill_at_a_random_moment(directory, rng))
        with UnifiedLog.open(directory, CONFIG, producer_id_expiration_ms=NEVER) as log:
            assert log.log_end_offset >= flushed
            found = b"".join(segment.log.file.read(0, segment.size) for segment in log.segments)
            assert found == b"".join(stored(number) for number in range(log.log_end_offset))
            entry = log.producers.last_entry(PRODUCER)
            assert log.log_end_offset - 1 == (-1 if entry is None else entry.last_sequence)
    assert flushed > 50
    assert len(list(directory.glob("*.log"))) > 1


if __name__ == "__main__":
    append_for_ever(sys.argv[1])
