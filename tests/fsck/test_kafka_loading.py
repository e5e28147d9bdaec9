"""Where a log ends when Kafka loads it. What Kafka really does is compared in tests/compat/test_would_start.py."""

from pathlib import Path

import pytest

from tests.log.logs import sealed
from tidelog.errors import CorruptionError
from tidelog.fsck.kafka_loading import load_as_kafka
from tidelog.fsck.rehearsal import RehearsalFileSystem
from tidelog.log import LogConfig, UnifiedLog
from tidelog.log.local_files import LocalFileSystem
from tidelog.records import NewRecord, read_batches

BATCHES, RECORDS = 4, 3


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log that was closed in good order, with an index entry for every batch but the first."""
    path = tmp_path / "orders-0"
    with UnifiedLog.open(str(path), LogConfig(index_interval_bytes=1)) as log:
        for _ in range(BATCHES):
            log.append([NewRecord(b"key", b"value", 1)] * RECORDS)
    return path


def change_last_batch(directory: Path, changes: dict[int, int], *, is_sealed: bool) -> None:
    """Change bytes of the last batch, under a right checksum or not."""
    path = directory / f"{0:020}.log"
    *others, last = [bytes(batch.buffer) for batch in read_batches(path.read_bytes())]
    bad = sealed(last, changes) if is_sealed else bytes(changes.get(at, byte) for at, byte in enumerate(last))
    path.write_bytes(b"".join([*others, bad]))


def end_by_kafka(directory: Path) -> int:
    fs = RehearsalFileSystem(LocalFileSystem())
    log = load_as_kafka(fs, str(directory), recovery_point=BATCHES * RECORDS, log_start=0, is_clean=True)
    try:
        return log.log_end_offset
    finally:
        log.release()


def test_a_sound_log_ends_after_its_last_batch(directory: Path) -> None:
    assert end_by_kafka(directory) == BATCHES * RECORDS


def test_a_closed_segment_without_the_last_offset_of_its_index_is_empty(directory: Path) -> None:
    change_last_batch(directory, dict.fromkeys(range(23, 27), 255), is_sealed=True)  # its last offset is one before
    assert end_by_kafka(directory) == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_kafka_gives_up_at_an_entry_of_an_old_format_that_it_cannot_open(directory: Path, magic: int) -> None:
    change_last_batch(directory, {16: magic, 17: 3}, is_sealed=False)  # compressed by lz4, it would say
    with pytest.raises(CorruptionError):
        end_by_kafka(directory)
