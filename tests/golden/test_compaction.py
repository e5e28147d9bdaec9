"""Directories before and after a round of real Kafka's cleaner: ours makes the same of them.

A partition is opened with the recorded configs and checkpoint; the clock stands where Kafka's cleaner read it. Files
are equal to the byte. Where batches are compressed, a compressor may give other bytes: they are equal after
decompression, and the entries of the offset index name the same offsets.
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours import behaviour
from tests.golden.corpus import case, facts
from tidelog.log import LogConfig, ManualClock, UnifiedLog, batch_windows
from tidelog.log.checkpoints import read_offsets
from tidelog.log.compaction import cleaner
from tidelog.log.compaction.cleanable import CleanableLog, cleanable_log
from tidelog.log.compaction.cleaner import CleanedRound, Cleaner
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import (
    CLEANER_CHECKPOINT,
    INDEX_SUFFIX,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    TopicPartition,
)
from tidelog.log.offset_index import OffsetEntries
from tidelog.records import RecordBatch
from tidelog.records.batches import read_batches

CASE = "kafka-4.3/5-compaction"
TOPICS: dict[str, Any] = facts(CASE, "topics.json")
ROUNDS = (1, 2, 3)
ELSEWHERE = {"leader-epoch-checkpoint"}  # the start of the broker added an epoch


def root_of(number: int, when: str) -> Path:
    return case(CASE) / f"{number}-{when}"


def checkpointed(number: int, when: str, name: str, topic: str) -> int | None:
    return read_offsets(LocalFileSystem(), str(root_of(number, when) / name)).get(TopicPartition(topic, 0))


def batches_of(directory: Path) -> Iterator[RecordBatch]:
    for path in sorted(directory.glob(f"*{LOG_SUFFIX}")):
        for batch in read_batches(path.read_bytes()):
            assert isinstance(batch, RecordBatch)
            yield batch


def clock_of(number: int, topic: str) -> int:
    """When Kafka cleaned the topic: by a horizon it stamped, or any time of the round if it stamped none."""
    retention_ms = LogConfig.from_properties(TOPICS[topic]["configs"]).delete_retention_ms
    before, after = (
        {batch.delete_horizon_ms for batch in batches_of(root_of(number, when) / f"{topic}-0")}
        for when in ("before", "after")
    )
    stamped = {horizon - retention_ms for horizon in after - before if horizon is not None}
    assert len(stamped) <= 1
    times: dict[str, int] = facts(CASE, "clock.json")[f"{number}-after"]
    return stamped.pop() if stamped else times["started"]


def opened(number: int, topic: str, home: Path) -> UnifiedLog:
    directory = home / f"{topic}-0"
    shutil.copytree(root_of(number, "before") / f"{topic}-0", directory)
    log = UnifiedLog.open(
        directory,
        LogConfig.from_properties(TOPICS[topic]["configs"]),
        log_start_offset=checkpointed(number, "before", LOG_START_CHECKPOINT, topic) or 0,
        clean_shutdown=True,
        clock=ManualClock(clock_of(number, topic)),
        rng=random.Random(1),
    )
    log.update_high_watermark(log.log_end_offset)
    return log


def cleanable(log: UnifiedLog, number: int) -> CleanableLog:
    topic = log.topic_partition.topic
    return cleanable_log(log, checkpointed(number, "before", CLEANER_CHECKPOINT, topic), log.local.clock.now_ms())


def clean(log: UnifiedLog, to_clean: CleanableLog) -> CleanedRound:
    work = Cleaner(CleanerConfig.from_properties(facts(CASE, "broker.json")), log.local.clock).clean(to_clean)
    while True:
        try:
            next(work)
        except StopIteration as end:
            done: CleanedRound = end.value
            return done


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name not in ELSEWHERE}


def is_compressed(directory: Path) -> bool:
    return any(batch.codec for batch in batches_of(directory))


def contents(directory: Path) -> dict[str, Any]:
    """The files, with batches as their headers and records, and offset indexes as their offsets."""
    found: dict[str, Any] = files_of(directory)
    for name, data in found.items():
        if name.endswith(LOG_SUFFIX):
            found[name] = [
                (batch.header._replace(crc=0, batch_length=0), list(batch.records())) for batch in read_batches(data)
            ]
        elif name.endswith(INDEX_SUFFIX):
            file = LocalFileSystem().open(str(directory / name))
            found[name] = [entry.offset for entry in OffsetEntries(file, int(name[:20]), len(data) // 8)]
    return found


@pytest.mark.parametrize("by", ["readable", "kernels"])
@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("topic", TOPICS)
@behaviour("CLN-064")
def test_a_round_makes_of_a_directory_what_kafka_makes_of_it(
    topic: str, number: int, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "kernels":  # however little there is to do
        monkeypatch.setattr(cleaner, "_KERNEL_FROM", 0)
        monkeypatch.setattr(batch_windows, "_KERNEL_FROM", 0)
    log = opened(number, topic, tmp_path)
    to_clean = cleanable(log, number)
    end = clean(log, to_clean).end_offset if to_clean.is_due else to_clean.first_dirty
    assert end == checkpointed(number, "after", CLEANER_CHECKPOINT, topic)

    log.local.clock.advance(log.config.file_delete_delay_ms)  # type: ignore[attr-defined]
    log.tick()
    log.close()

    after = root_of(number, "after") / f"{topic}-0"
    look = contents if is_compressed(after) else files_of
    assert look(tmp_path / f"{topic}-0") == look(after)
