"""Golden partitions written again: what each broker was told, so that ours can be told the same.

    replay = replays()["kafka-4.3/3-rolls/image/roll-ms-0"]
    with replay.open(tmp_path) as log:
        for batch in replay.batches():
            append_as_leader(log, batch)

The batches are those of the golden `.log` files, one per call, as the clients of these cases sent them. A follower is
given them as they are. A leader is given them as a client sends them, without what a leader stamps on them.
"""

import functools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.golden.corpus import HERE, RELEASE, Partition, case_names, facts, partitions
from tidelog.log import AppendInfo, AppendOrigin, LogConfig, ManualClock, UnifiedLog
from tidelog.log.names import PARTITION_METADATA
from tidelog.log.partition_metadata import parse_uuid
from tidelog.records import RecordBatch, TimestampType, read_batches

NO_LEADER_EPOCH = -1

# Why the files of a partition do not follow from its batches alone. The others are written again.
LEFT_OUT = {
    "4-transactions/image-after-restart": "the image, started and stopped once more: a test of its own",
    "5-compaction/1-after": "compacted: the batches that were appended are gone",
    "5-compaction/2-before": "begins with segments that the compaction of round 1 left",
    "5-compaction/2-after": "compacted",
    "5-compaction/3-before": "begins with segments that the compaction of round 2 left",
    "5-compaction/3-after": "compacted",
    "6-recovery": "crashes and damage: test_recovery.py",
    "9-metadata/image/views-0": "compacted while the broker ran: offsets 0 to 2 are gone",
}

# The config change that made these four roll once more (all in round 1) is not recorded; that they did, is.
ROLLED_BY_HAND = ("k-lat", "k-txn", "k-txn-long", "k-txn-open")

METADATA_TOPIC = "__cluster_metadata"
# What a metadata log has beside what a log writes: the quorum's snapshots of the metadata, and its own state.
OF_THE_QUORUM = (".checkpoint", "quorum-state")

_CASE_8 = f"{RELEASE}/8-consumer-offsets"
_CASE_9 = f"{RELEASE}/9-metadata"

# The topics that a broker makes for itself, with the configs it gives them.
_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": 100 * 1024 * 1024}
_INTERNAL_TOPICS = {
    METADATA_TOPIC: {"configs": {"max.message.bytes": 8 * 1024 * 1024, "segment.index.bytes": 10 * 1024 * 1024}},
    "__consumer_offsets": {"configs": _COMPACTED},
    "__transaction_state": {"configs": {**_COMPACTED, "compression.type": "uncompressed"}},
}


class Replay(NamedTuple):
    """A golden partition and all that its broker knew when it wrote it."""

    partition: Partition
    config: LogConfig
    clock_ms: int
    topic_id: str
    rolls: tuple[int, ...] = ()  # offsets at which a roll was asked for
    log_start_offset: int = 0  # where DeleteRecords moved it at the end

    @property
    def topic(self) -> str:
        return self.partition.path.name.rpartition("-")[0]

    def batches(self) -> Iterator[RecordBatch]:
        for batch in read_batches(self.partition.read()):
            assert isinstance(batch, RecordBatch)
            yield batch

    def open(self, parent: Path, **arguments: Any) -> UnifiedLog:
        """An empty log of the partition's name, with the clock, the config and the topic id of its broker."""
        return UnifiedLog.open(
            parent / self.partition.path.name,
            self.config,
            clock=ManualClock(self.clock_ms),
            rng=random.Random(1),
            topic_id=parse_uuid(self.topic_id),
            **arguments,
        )

    @property
    def epoch(self) -> int:
        """Of the leader. It notes it before it writes, so that it is there in an empty partition too."""
        return 1 if self.topic == METADATA_TOPIC else 0

    def origin_of(self, batch: RecordBatch) -> AppendOrigin:
        if self.topic == METADATA_TOPIC:
            return AppendOrigin.RAFT_LEADER
        if batch.is_control or self.topic.startswith("__"):
            return AppendOrigin.COORDINATOR
        return AppendOrigin.CLIENT

    def expected_files(self) -> dict[str, bytes]:
        return {name: data for name, data in files_of(self.partition.path).items() if not name.endswith(OF_THE_QUORUM)}


def files_of(directory: Path) -> dict[str, bytes]:
    """Every file of a directory, by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def append_as_follower(replay: Replay, log: UnifiedLog, batch: RecordBatch) -> AppendInfo:
    """Give a log a batch as its leader has it."""
    return _append(replay, log, batch.base_offset, lambda: log.append_as_follower(memoryview(bytearray(batch.buffer))))


def append_as_leader(replay: Replay, log: UnifiedLog, batch: RecordBatch) -> AppendInfo:
    """Give a log a batch as it was sent, at the time at which it was appended."""
    origin = replay.origin_of(batch)
    clock = log.local.clock
    assert isinstance(clock, ManualClock)
    clock.set_to(batch.max_timestamp_ms if is_stamped_by(batch, log) else replay.clock_ms)
    sent = bytearray(batch.buffer) if origin is AppendOrigin.RAFT_LEADER else as_sent(batch, log)
    epoch = batch.partition_leader_epoch
    return _append(replay, log, batch.base_offset, lambda: log.append_as_leader(memoryview(sent), epoch, origin))


def _append(replay: Replay, log: UnifiedLog, base_offset: int, append: Any) -> AppendInfo:
    if base_offset in replay.rolls:
        log.roll()
    info = append()
    assert isinstance(info, AppendInfo)
    log.update_high_watermark(log.log_end_offset)
    log.tick()
    return info


def is_stamped_by(batch: RecordBatch, log: UnifiedLog) -> bool:
    """Whether the leader stamped its own time on a batch."""
    return log.config.uses_append_time and batch.timestamp_type is TimestampType.LOG_APPEND_TIME


def as_sent(batch: RecordBatch, log: UnifiedLog) -> bytearray:
    """The batch without the stamps of its leader: offsets from 0, no epoch, CreateTime and its largest timestamp."""
    data = bytearray(batch.buffer)
    sent = RecordBatch(data)
    if is_stamped_by(batch, log):
        sent.set_max_timestamp(TimestampType.CREATE_TIME, batch.max_timestamp_ms)
        times = [record.timestamp_ms for record in sent]
        sent.set_max_timestamp(TimestampType.CREATE_TIME, max(times))
    sent.set_last_offset(batch.last_offset - batch.base_offset)
    sent.set_partition_leader_epoch(NO_LEADER_EPOCH)
    return data


def delete_records(replay: Replay, log: UnifiedLog) -> None:
    """Move the log start to where DeleteRecords moved it."""
    if replay.log_start_offset:
        log.delete_records(replay.log_start_offset)
        log.tick()


# -- what the corpus says of each --------------------------------------------------------------------------------------


def reason_to_leave_out(partition: Partition) -> str | None:
    """Why a partition is not written again; None if it is."""
    name = str(partition).removeprefix(f"{RELEASE}/")
    return next((reason for prefix, reason in LEFT_OUT.items() if f"{name}/".startswith(f"{prefix}/")), None)


@functools.cache
def replays() -> dict[str, Replay]:
    """Every partition of 4.3 whose files are determined, by the name that the corpus gives it."""
    found = [partition for partition in partitions(*case_names(RELEASE)) if not reason_to_leave_out(partition)]
    return {str(partition): _replay(partition) for partition in found}


def _replay(partition: Partition) -> Replay:
    topic, _, number = partition.path.name.rpartition("-")
    return Replay(
        partition,
        _config(partition, topic),
        _clock_ms(partition.case, topic),
        _topic_id(partition, topic),
        rolls=(_active_base(partition.case, topic),) if topic in ROLLED_BY_HAND else (),
        log_start_offset=_log_start_offset(partition.case, topic, int(number)),
    )


def _topics(case: str) -> dict[str, Any]:
    """`topics.json` of a case, or what its operations say of its topics in the same form."""
    if case not in (_CASE_8, _CASE_9):
        topics: dict[str, Any] = facts(case, "topics.json")
        return topics
    created = [arguments for operation, arguments, _ in facts(_CASE_9, "operations.json") if operation == "create"]
    return {about["topic"]: about for about in created} | _INTERNAL_TOPICS


def _config(partition: Partition, topic: str) -> LogConfig:
    defaults = json.loads((HERE / RELEASE / "topic-defaults.json").read_text(encoding="utf-8"))
    return LogConfig.from_properties(defaults | _topics(partition.case)[topic].get("configs", {}))


def _clock_ms(case: str, topic: str) -> int:
    """A time at which the broker ran; what it was to the millisecond matters only where it was stamped on a batch."""
    name = case.removeprefix(f"{RELEASE}/")
    if name == "4-transactions":
        clock_ms = facts(case, "clock.json")["before_stop"]
    elif name == "5-compaction":
        clock_ms = facts(case, "clock.json")["1-before"]["stopped"]
    elif name == "7-lookups":
        clock_ms = facts(case, "clock.json")["answers_taken_before"]
    elif case in (_CASE_8, _CASE_9):
        clock_ms = facts(f"{RELEASE}/10-layout", "clock.json")["stopped"]
    else:
        clock_ms = facts(case, "topics.json")[topic]["clock"]
    return int(clock_ms)


def _topic_id(partition: Partition, topic: str) -> str:
    """As the controller gave it; of an internal topic only its own directory tells."""
    about = _topics(partition.case)[topic]
    if "topicId" in about:
        return str(about["topicId"])
    if partition.case == _CASE_9 and topic in facts(_CASE_9, "topic-ids.json"):
        return str(facts(_CASE_9, "topic-ids.json")[topic])
    return (partition.path / PARTITION_METADATA).read_text(encoding="utf-8").rpartition(" ")[2]


def _active_base(case: str, topic: str) -> int:
    return int(facts(case, "clock.json")["1-after"]["active_base"][topic])


def _log_start_offset(case: str, topic: str, number: int) -> int:
    if case == _CASE_9:
        for operation, arguments, _ in facts(case, "operations.json"):
            if operation == "delete_records" and (arguments["topic"], arguments["partition"]) == (topic, number):
                return int(arguments["offset"])
    return int(_topics(case)[topic].get("deleteRecordsTo", 0))
