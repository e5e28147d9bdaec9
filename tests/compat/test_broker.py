"""A real broker and our engine take turns on the same directories.

Two stories are told once each, and the tests below look at what was seen on the way.

Served: the broker creates a topic and stops; we write into its partition directories; it starts again and serves what
we wrote; it appends; it stops; we open what it left. Once it takes our word that all was closed in good order, once the
marker of that is taken away, and it recovers our files.

Crashed: the broker is killed while it appends. It recovers the original and we a copy.
"""

import random
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError, Message

from tests.behaviours import behaviour
from tests.compat import broker_clients as clients
from tests.compat.broker import Broker
from tests.compat.broker_clients import Consumed
from tests.compat.written_log import (
    NO_PRODUCER,
    WrittenLog,
    batches_of,
    files_of,
    read_log,
    write_plain,
    write_transactions,
)
from tests.interop.judges import Seen
from tidelog.errors import LockedError
from tidelog.log import Isolation, LogConfig, UnifiedLog
from tidelog.log.checkpoints import CleanShutdownFile, LeaderEpochCheckpoint, OffsetCheckpoint
from tidelog.log.list_offsets import MAX_TIMESTAMP
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import TopicPartition
from tidelog.log.producer_state import ActiveProducer
from tidelog.log.set_aside import SET_ASIDE
from tidelog.records import BATCH_HEADER_SIZE, Codec, Header, NewRecord, read_batches

SERVED, CRASHED = "served", "crashed"
PARTITIONS = [0, 1, 2]
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
MIB = 1 << 20
INDEX_INTERVAL = 100
HOUR_MS = 3_600_000

every_partition = pytest.mark.parametrize("partition", PARTITIONS)


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which a broker has created the topics; it is stopped. Stories are told on copies."""
    root = tmp_path_factory.mktemp("created") / "root"
    with Broker.format(root).running() as broker:
        clients.create_topic(broker, SERVED, len(PARTITIONS), index_interval_bytes=INDEX_INTERVAL)
        clients.create_topic(broker, CRASHED, len(PARTITIONS), segment_bytes=MIB)
    return root


def copy_of(root: Path, place: Path) -> Path:
    shutil.copytree(root, place / "root")
    return place / "root"


# -- set aside -----------------------------------------------------------------------------------------------------


def test_a_broker_serves_a_log_from_which_recovery_has_set_batches_aside(created: Path, tmp_path: Path) -> None:
    root = copy_of(created, tmp_path)
    directory = root / f"{SERVED}-0"
    with UnifiedLog.open(directory) as log:
        log.append([NewRecord(b"k", b"first"), NewRecord(b"k", b"second")])
    segment = max(directory.glob("*.log"))
    segment.write_bytes(segment.read_bytes() * 2)  # the same offsets once more
    with UnifiedLog.open(directory) as log:
        assert len(log.notices) == 1
    [aside] = directory.glob(f"{SET_ASIDE}*")
    before = aside.read_bytes()
    with Broker(root).running() as broker:
        consumed = clients.consume(broker, SERVED, 0)
    assert [seen.value for seen in consumed.records] == [b"first", b"second"]
    assert aside.read_bytes() == before


# -- served --------------------------------------------------------------------------------------------------------

SMALL_SEGMENTS = {"segment_bytes": 24 * 1024, "index_interval_bytes": INDEX_INTERVAL}
CONFIGS = [
    LogConfig(**SMALL_SEGMENTS),  # type: ignore[arg-type]
    LogConfig(**SMALL_SEGMENTS),  # type: ignore[arg-type]
    LogConfig(**SMALL_SEGMENTS, message_timestamp_type="LogAppendTime", preallocate=True),  # type: ignore[arg-type]
]


class Answers(NamedTuple):
    """What ours says of a partition before it is closed; the broker must say the same."""

    times: list[int]
    offsets: list[int]  # by those times
    largest: tuple[int, int]
    producers: list[ActiveProducer]


@dataclass
class Served:
    """What was seen of the three partitions, in the order of the story."""

    root: Path
    is_clean: bool
    logs: list[WrittenLog] = field(default_factory=list)
    answers: list[Answers] = field(default_factory=list)
    ours: list[dict[str, bytes]] = field(default_factory=list)  # files as we closed them
    names: list[str] = field(default_factory=list)  # in the root, while the broker runs
    consumed: list[Consumed] = field(default_factory=list)
    committed: list[Consumed] = field(default_factory=list)
    offsets: list[list[int]] = field(default_factory=list)
    largest: list[tuple[int, int]] = field(default_factory=list)
    producers: list[list[dict[str, str]]] = field(default_factory=list)
    consumed_at_end: list[Consumed] = field(default_factory=list)
    committed_at_end: list[Consumed] = field(default_factory=list)

    def directory(self, partition: int) -> Path:
        return self.root / f"{SERVED}-{partition}"


@pytest.fixture(scope="module", params=["clean", "unclean"])
def served(request: pytest.FixtureRequest, created: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    story = Served(copy_of(created, tmp_path_factory.mktemp(SERVED)), request.param == "clean")
    we_write(story)
    if not story.is_clean:
        break_off(story)
    with Broker(story.root).running() as broker:
        story.names = sorted(path.name for path in story.root.iterdir())
        for partition in PARTITIONS:
            times = story.answers[partition].times
            story.consumed.append(clients.consume(broker, SERVED, partition))
            story.committed.append(clients.consume(broker, SERVED, partition, committed=True))
            story.offsets.append(clients.offset_for_time(broker, SERVED, partition, times))
            story.largest.append(clients.offset_of_largest_time(broker, SERVED, partition))
            story.producers.append(clients.describe_producers(broker, SERVED, partition))
            with pytest.raises(LockedError):
                UnifiedLog.open(story.directory(partition))
        it_writes(broker)
        for partition in PARTITIONS:
            story.consumed_at_end.append(clients.consume(broker, SERVED, partition))
            story.committed_at_end.append(clients.consume(broker, SERVED, partition, committed=True))
    return story


def we_write(story: Served) -> None:
    """Fill the directories that the broker has made, and note in its root how far they are on the disk."""
    fs = LocalFileSystem()
    checkpoint = OffsetCheckpoint(fs, str(story.root / RECOVERY_POINTS))
    recovery_points = checkpoint.read()
    assert CleanShutdownFile(fs, str(story.root)).exists()
    now_ms = time.time_ns() // 1_000_000 - HOUR_MS  # producers of long ago would be forgotten
    for partition, config in enumerate(CONFIGS):
        epochs = LeaderEpochCheckpoint(fs, str(story.directory(partition) / "leader-epoch-checkpoint")).read()
        log = WrittenLog(
            story.directory(partition),
            config,
            seed=partition,
            now_ms=now_ms,
            leader_epoch=epochs[-1].epoch,
            clean_shutdown=True,
        )
        if partition == 0:
            write_plain(log)
        elif partition == 1:
            write_transactions(log)
        else:
            for producer in [NO_PRODUCER, 77, 78] * 60:
                log.send(codec=list(Codec)[log.end % 5], producer=producer)
        story.logs.append(log)
        story.answers.append(answers_of(log))
        log.close()
        recovery_points[TopicPartition(SERVED, partition)] = log.log.recovery_point
        story.ours.append(files_of(log.directory))
    checkpoint.write(recovery_points)


def answers_of(log: WrittenLog) -> Answers:
    times = sorted({record.timestamp_ms + shift for record in log.records[::40] for shift in (0, 1)})
    times.append(max(record.timestamp_ms for record in log.records) + 1)
    found = [log.log.offset_for_time(time, Isolation.HIGH_WATERMARK) for time in times]
    largest = log.log.offset_for_time(MAX_TIMESTAMP, Isolation.HIGH_WATERMARK)
    assert largest is not None
    return Answers(
        times,
        [-1 if place is None else place.offset for place in found],
        (largest.offset, largest.timestamp_ms),
        log.log.producers.active_producers(),
    )


def break_off(story: Served) -> None:
    """Make it a crash: no marker, nothing known to be on the disk, a torn batch, an index of noise, one of zeros."""
    fs = LocalFileSystem()
    CleanShutdownFile(fs, str(story.root)).delete()
    OffsetCheckpoint(fs, str(story.root / RECOVERY_POINTS)).write({})
    for partition in PARTITIONS:
        directory = story.directory(partition)
        *_, active = sorted(directory.glob("*.log"))
        with active.open("ab") as file:
            file.write(random.Random(partition).randbytes(99))
        first, second, *_ = sorted(directory.glob("*.index"))
        first.write_bytes(random.Random(partition).randbytes(first.stat().st_size))
        second.with_suffix(".timeindex").write_bytes(bytes(second.with_suffix(".timeindex").stat().st_size))


def new_records(seed: int, count: int) -> list[NewRecord]:
    rng = random.Random(seed)
    now_ms = time.time_ns() // 1_000_000
    headers = (Header("h", b"1"), Header("none", None))
    return [
        NewRecord(
            rng.choice([None, b"key"]), rng.randbytes(rng.randrange(200)), now_ms + i, headers[: rng.randrange(3)]
        )
        for i in range(count)
    ]


def it_writes(broker: Broker) -> None:
    """The broker appends behind what we wrote, for producers of all kinds."""
    for partition in PARTITIONS:
        clients.produce(broker, SERVED, partition, new_records(partition, 50), enable_idempotence=False)
        clients.produce(
            broker, SERVED, partition, new_records(10 + partition, 70), enable_idempotence=True, compression_type="lz4"
        )
    producer = clients.new_producer(broker, transactional_id="t")
    producer.init_transactions(clients.TIMEOUT_S)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for partition in PARTITIONS:
            clients.send(producer, SERVED, partition, new_records(20 + partition, 10))
        end(clients.TIMEOUT_S)


def test_the_broker_sets_no_directory_aside(served: Served) -> None:
    """One that it does not take for its own it renames to `-stray`, and serves an empty one in its place."""
    partitions = {f"{SERVED}-{partition}" for partition in PARTITIONS}
    assert {name for name in served.names if name.startswith(SERVED)} == partitions
    for partition in PARTITIONS:
        ours, now = served.ours[partition], files_of(served.directory(partition))
        assert now["partition.metadata"] == ours["partition.metadata"]


@every_partition
def test_a_consumer_reads_every_record_we_wrote(served: Served, partition: int) -> None:
    log, consumed = served.logs[partition], served.consumed[partition]
    assert len(log.records) > 500
    assert consumed.records == log.records
    assert consumed.end == log.end


@every_partition
def test_a_consumer_of_committed_data_reads_what_we_committed(served: Served, partition: int) -> None:
    log, committed = served.logs[partition], served.committed[partition]
    assert committed.records == log.committed
    assert committed.end == log.stable_end
    assert (log.stable_end < log.end) == (partition == 1)  # where a transaction was left open


@every_partition
@behaviour("LOG-076")
def test_the_broker_answers_by_time_as_we_do(served: Served, partition: int) -> None:
    answers = served.answers[partition]
    assert served.offsets[partition] == answers.offsets
    assert served.largest[partition] == answers.largest
    assert answers.offsets[-1] == -1  # behind every record


@every_partition
@behaviour("LOG-013", "LOG-014")
def test_the_broker_knows_the_producers_from_what_we_left(served: Served, partition: int) -> None:
    table = [
        {
            "ProducerId": str(producer.producer_id),
            "ProducerEpoch": str(producer.epoch),
            "LatestCoordinatorEpoch": str(producer.coordinator_epoch),
            "LastSequence": str(producer.last_sequence),
            "LastTimestamp": str(producer.last_timestamp_ms),
            "CurrentTransactionStartOffset": "None"
            if producer.txn_start_offset < 0
            else str(producer.txn_start_offset),
        }
        for producer in served.answers[partition].producers
    ]
    assert sorted(served.producers[partition], key=str) == sorted(table, key=str)
    assert len(table) == [0, 4, 2][partition]


@every_partition
def test_the_broker_leaves_the_files_of_our_rolled_segments_as_they_are(served: Served, partition: int) -> None:
    """Where it recovers them, it builds the indexes and snapshots that we had written."""
    ours, now = served.ours[partition], files_of(served.directory(partition))
    active = max(name for name in ours if name.endswith(".log"))
    rolled = {name: data for name, data in ours.items() if name[0].isdigit() and name < active[:20]}
    assert len(rolled) > 20
    assert {name: now.get(name) for name in rolled} == rolled
    assert now[active].startswith(ours[active])
    assert now[f"{active[:20]}.snapshot"] == ours[f"{active[:20]}.snapshot"]


@every_partition
def test_the_broker_appends_behind_what_we_wrote(served: Served, partition: int) -> None:
    log, consumed = served.logs[partition], served.consumed_at_end[partition]
    ours = len(log.records)
    assert consumed.records[:ours] == log.records
    assert consumed.records[ours].offset == log.end
    assert len(consumed.records) == ours + 50 + 70 + 3 * 10


@every_partition
@pytest.mark.parametrize("clean_shutdown", [True, False], ids=["clean again", "recovered again"])
@behaviour("LDR-014")
def test_we_read_what_the_broker_left_and_change_no_file(
    served: Served, partition: int, clean_shutdown: bool, tmp_path: Path
) -> None:
    """But for two things that a broker would do as well.

    The snapshot of our close, where no segment begins, goes when a later one is there. Entries of the active segment's
    indexes are spaced anew by recovery: whoever opens a log begins to count index.interval.bytes from where it ends.
    """
    directory = tmp_path / f"{SERVED}-{partition}"
    shutil.copytree(served.directory(partition), directory)
    before = files_of(directory)
    with UnifiedLog.open(directory, CONFIGS[partition], clean_shutdown=clean_shutdown) as log:
        check(log, served, partition)
        active = log.active_segment.base_offset
    after = files_of(directory)
    del before[f"{served.logs[partition].end:020}.snapshot"]
    if not clean_shutdown:
        for suffix in (".index", ".timeindex"):
            assert after.pop(f"{active:020}{suffix}")
            assert before.pop(f"{active:020}{suffix}")
    assert after == before


def check(log: UnifiedLog, served: Served, partition: int) -> None:
    consumed, committed = served.consumed_at_end[partition], served.committed_at_end[partition]
    assert log.log_end_offset == consumed.end
    log.update_high_watermark(log.log_end_offset)
    assert read_log(log, Isolation.HIGH_WATERMARK) == consumed.records
    assert log.last_stable_offset == committed.end
    assert read_log(log, Isolation.COMMITTED) == committed.records


# -- crashed -------------------------------------------------------------------------------------------------------


@dataclass
class Crashed:
    """Three partitions after the kill, recovered by the broker (`theirs`) and by us (`ours`)."""

    acknowledged: list[dict[int, bytes]]  # by partition: the value at an offset
    theirs: Path
    ours: Path
    consumed: list[Consumed] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # of our logs
    records: list[list[Seen]] = field(default_factory=list)  # as we read them


NOISY, TORN, FLIPPED = PARTITIONS  # the active segment of each is damaged besides, in its own way


@pytest.fixture(scope="module")
def crashed(created: Path, tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    place = tmp_path_factory.mktemp(CRASHED)
    root = copy_of(created, place)
    broker = Broker(root)
    story = Crashed(produce_until_killed(broker), root, place / "ours")
    add_noise(active_log(root, NOISY))
    tear(active_log(root, TORN))
    flip(active_log(root, FLIPPED))
    shutil.copytree(root, story.ours)
    with broker.running():
        story.consumed = [clients.consume(broker, CRASHED, partition) for partition in PARTITIONS]
    recovery_points = OffsetCheckpoint(LocalFileSystem(), str(story.ours / RECOVERY_POINTS)).read()
    for partition in PARTITIONS:
        with UnifiedLog.open(
            story.ours / f"{CRASHED}-{partition}",
            LogConfig(segment_bytes=MIB),
            recovery_point=recovery_points.get(TopicPartition(CRASHED, partition), 0),
        ) as log:
            story.ends.append(log.log_end_offset)
            story.records.append(read_log(log, max_bytes=MIB))
    return story


def active_log(root: Path, partition: int) -> Path:
    return max((root / f"{CRASHED}-{partition}").glob("*.log"))


def add_noise(log: Path) -> None:
    """Put bytes that mean nothing behind the log and behind its index, which has its full size."""
    for path in (log, log.with_suffix(".index")):
        with path.open("ab") as file:
            file.write(random.Random(1).randbytes(99))


def tear(log: Path) -> None:
    """Take the end of the last batch away."""
    log.write_bytes(log.read_bytes()[:-11])


def flip(log: Path) -> None:
    """Change one bit among the records of a batch in the middle."""
    data = bytearray(log.read_bytes())
    batches = list(read_batches(bytes(data)))
    position = sum(batch.size_in_bytes for batch in batches[: len(batches) // 2])
    data[position + BATCH_HEADER_SIZE + 100] ^= 1
    log.write_bytes(data)


def produce_until_killed(broker: Broker) -> list[dict[int, bytes]]:
    """Send until every partition has more than two segments, then kill the broker while more is under way."""
    acknowledged: list[dict[int, bytes]] = [{} for _ in PARTITIONS]

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            acknowledged[partition][offset] = value

    rng = random.Random(4)
    broker.start()
    try:
        producer = clients.new_producer(broker, enable_idempotence=True, linger_ms=1, batch_size=20_000)
        deadline = time.monotonic() + clients.TIMEOUT_S
        while min(len(values) for values in acknowledged) * 1000 < 2.5 * MIB:
            assert time.monotonic() < deadline
            for partition in PARTITIONS:
                producer.produce(CRASHED, value=rng.randbytes(1000), partition=partition, on_delivery=delivered)
            while len(producer) > 1000:  # a broker that must always have something to write
                producer.poll(0.01)
            producer.poll(0)
        assert len(producer) > 0
    finally:
        broker.kill()
    producer.purge()
    producer.flush(clients.TIMEOUT_S)
    return acknowledged


@every_partition
@behaviour("LDR-023")
def test_after_a_kill_we_and_the_broker_come_to_the_same_end(crashed: Crashed, partition: int) -> None:
    theirs, ours = (batches_of(root / f"{CRASHED}-{partition}") for root in (crashed.theirs, crashed.ours))
    assert [bytes(batch.buffer) for batch in ours] == [bytes(batch.buffer) for batch in theirs]
    assert crashed.ends[partition] == crashed.consumed[partition].end == ours[-1].next_offset
    assert crashed.records[partition] == crashed.consumed[partition].records


@every_partition
def test_after_a_kill_our_recovery_leaves_the_files_that_the_brokers_does(crashed: Crashed, partition: int) -> None:
    """Only the epochs differ: the broker is elected again."""
    theirs, ours = (files_of(root / f"{CRASHED}-{partition}") for root in (crashed.theirs, crashed.ours))
    assert len([name for name in ours if name.endswith(".log")]) >= 3
    del theirs["leader-epoch-checkpoint"], ours["leader-epoch-checkpoint"]
    assert ours == theirs


def test_a_kill_loses_nothing_that_was_acknowledged_and_damage_only_what_lies_behind(crashed: Crashed) -> None:
    for partition in PARTITIONS:
        acknowledged = crashed.acknowledged[partition]
        kept = {record.offset: record.value for record in crashed.records[partition]}
        lost = set(acknowledged) - set(kept)
        if partition == FLIPPED:
            assert lost == {offset for offset in acknowledged if offset >= crashed.ends[partition]} != set()
        else:
            assert len(lost) <= (100 if partition == TORN else 0)  # at most the torn batch
        assert {offset: kept[offset] for offset in acknowledged if offset in kept} == {
            offset: value for offset, value in acknowledged.items() if offset not in lost
        }


# -- locks ---------------------------------------------------------------------------------------------------------


def test_a_broker_does_not_start_in_a_root_of_which_we_hold_a_partition(created: Path, tmp_path: Path) -> None:
    root = copy_of(created, tmp_path)
    broker = Broker(root)
    (root / ".lock").touch()  # a broker removes it when it stops
    with UnifiedLog.open(root / f"{SERVED}-0", clean_shutdown=True):
        before = files_of(root / f"{SERVED}-0")
        assert broker.refuses_to_start()
        assert files_of(root / f"{SERVED}-0") == before
    with broker.running():  # so it was the lock
        assert clients.consume(broker, SERVED, 0) == Consumed([], 0)
