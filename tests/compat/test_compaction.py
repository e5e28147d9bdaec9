"""Compacted topics of a real broker, cleaned by our cleaner and by its own.

A broker that does not clean fills a topic and stops. From there three stories are told, each on a copy of its root, and
the tests below look at what was seen on the way.

Handed back: we clean every partition, and the broker serves what we left. It appends, its own cleaner goes over what
ours has cleaned, it stops; we open what it left.

Theirs: the broker cleans the same partitions. We open what it left, append, and clean it again two days later.

Crashed: the power fails while we put cleaned segments in the place of old ones, in each partition at another moment.
The broker loads what it finds, builds the state of the producers from it, and serves it.
"""

import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.compat import broker_clients as clients
from tests.compat.broker import Broker
from tests.compat.broker_clients import Consumed
from tests.compat.compacted_topic import (
    CLEANING,
    CODECS,
    CONFIGS,
    FINAL,
    GZIP,
    KEYS,
    LZ4,
    MIXED,
    NEVER,
    PARTITIONS,
    PLAIN,
    SNAPPY,
    TOPIC,
    TRANSACTIONS,
    WAITING,
    WITHOUT_TRANSACTIONS,
    ZSTD,
    PowerCut,
    Values,
    active_base_of,
    consume_all,
    directory_of,
    dumped,
    empty_batches_of,
    ends_in,
    it_cleans,
    kept_of,
    kernels,
    left_of,
    left_of_committed,
    now_ms,
    our_config,
    paths_in,
    producers_of,
    we_clean,
    we_crash,
    we_open,
    with_underscores,
    write_transactions,
    write_values,
)
from tests.compat.written_log import batches_of, files_of, read_log
from tests.interop.judges import Seen
from tidelog.log import Isolation, ManualClock, UnifiedLog
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLEANED, DELETED, RECOVERY_POINT_CHECKPOINT, SWAP, TopicPartition
from tidelog.records import Codec

SILENCED = {GZIP, SNAPPY, LZ4, ZSTD}  # all keys that the first producer wrote are written again by others

every_partition = pytest.mark.parametrize("partition", PARTITIONS)


# -- what the broker writes ------------------------------------------------------------------------------------------


@dataclass
class Produced:
    """A root in which a broker has filled the topic and cleaned nothing; it is stopped."""

    root: Path
    consumed: list[Consumed] = field(default_factory=list)
    committed: list[Consumed] = field(default_factory=list)


@pytest.fixture(scope="module")
def produced(tmp_path_factory: pytest.TempPathFactory) -> Produced:
    story = Produced(tmp_path_factory.mktemp("produced") / "root")
    with Broker.format(story.root, {"log.cleaner.enable": "false"}).running() as broker:
        clients.create_topic(broker, TOPIC, len(PARTITIONS), **with_underscores(CONFIGS | WAITING))
        for partition in WITHOUT_TRANSACTIONS:
            for seed in range(3):  # each a new producer, and the first falls silent
                write_values(broker, partition, seed=seed, is_idempotent=seed != 1 and partition != PLAIN)
        write_transactions(broker, rounds=16, late_from=11)
        story.consumed, story.committed = consume_all(broker)
    return story


# -- handed back -----------------------------------------------------------------------------------------------------


@dataclass
class HandedBack:
    """What was seen of the partitions, in the order of the story."""

    root: Path
    cleaned: Path  # a copy of the root as we left it
    ends: list[int] = field(default_factory=list)  # of our cleaning
    names: set[str] = field(default_factory=set)  # in the root, while the broker runs
    consumed: list[Consumed] = field(default_factory=list)
    committed: list[Consumed] = field(default_factory=list)
    ours_by_time: dict[int, list[int]] = field(default_factory=dict)  # offsets that we name for times
    by_time: dict[int, list[int]] = field(default_factory=dict)  # and the broker
    appended: list[Consumed] = field(default_factory=list)
    appended_committed: list[Consumed] = field(default_factory=list)
    ends_at_end: list[int] = field(default_factory=list)  # of the broker's cleaning
    consumed_at_end: list[Consumed] = field(default_factory=list)
    committed_at_end: list[Consumed] = field(default_factory=list)


@pytest.fixture(scope="module")
def handed_back(produced: Produced, tmp_path_factory: pytest.TempPathFactory) -> HandedBack:
    place = tmp_path_factory.mktemp("handed")
    story = HandedBack(place / "root", place / "cleaned")
    shutil.copytree(produced.root, story.root)
    clock = ManualClock(now_ms())
    with we_open(story.root, clock) as manager:
        with kernels():
            we_clean(manager, story.root, clock, PARTITIONS)
        for partition in WITHOUT_TRANSACTIONS:
            log = manager.logs[TopicPartition(TOPIC, partition)]
            places = [
                log.offset_for_time(time_ms, Isolation.HIGH_WATERMARK) for time_ms in times_in(produced, partition)
            ]
            story.ours_by_time[partition] = [-1 if place is None else place.offset for place in places]
    story.ends = ends_in(story.root)
    shutil.copytree(story.root, story.cleaned)
    with Broker(story.root, CLEANING).running() as broker:
        story.names = {path.name for path in story.root.iterdir()}
        story.consumed, story.committed = consume_all(broker)
        for partition in WITHOUT_TRANSACTIONS:
            story.by_time[partition] = clients.offset_for_time(broker, TOPIC, partition, times_in(produced, partition))
        for partition in WITHOUT_TRANSACTIONS:
            write_values(broker, partition, seed=3)
        write_transactions(broker, rounds=8)
        story.appended, story.appended_committed = consume_all(broker)
        story.ends_at_end = it_cleans(broker)
        story.consumed_at_end, story.committed_at_end = consume_all(broker)
    return story


def times_in(produced: Produced, partition: int) -> list[int]:
    return [record.timestamp_ms for record in produced.consumed[partition].records[::30]]


def test_there_is_something_to_clean_in_every_partition(produced: Produced, handed_back: HandedBack) -> None:
    """So that the tests below are about something."""
    for partition in PARTITIONS:
        consumed, end = produced.consumed[partition], handed_back.ends[partition]
        active = active_base_of(produced.root, partition)
        assert end == active if partition != MIXED else 0 < end < active  # an open transaction keeps the cleaner out
        assert len(left_of(consumed.records, produced.committed[partition].records, end)) < 0.6 * len(consumed.records)
        assert len(list(directory_of(produced.root, partition).glob("*.log"))) >= 4
        assert None in {record.value for record in consumed.records[: end // 2]}
        codecs = {
            Codec.from_id(batch.codec).label for batch in batches_of(directory_of(handed_back.cleaned, partition))
        }
        assert CODECS[partition] in codecs


@every_partition
@behaviour("CLN-064")
def test_a_consumer_is_given_the_last_value_of_every_key_as_we_left_it(
    produced: Produced, handed_back: HandedBack, partition: int
) -> None:
    before, after = produced.consumed[partition], handed_back.consumed[partition]
    expected = left_of(before.records, produced.committed[partition].records, handed_back.ends[partition])
    assert after.records == expected
    assert after.end == before.end


@every_partition
@behaviour("CLN-017")
def test_a_consumer_of_committed_data_is_given_the_last_committed_value_of_every_key(
    produced: Produced, handed_back: HandedBack, partition: int
) -> None:
    before, after = produced.committed[partition], handed_back.committed[partition]
    assert after.records == left_of_committed(before.records, handed_back.ends[partition])
    assert after.end == before.end


@pytest.mark.parametrize("partition", WITHOUT_TRANSACTIONS)
def test_the_broker_answers_by_time_as_we_do(handed_back: HandedBack, partition: int) -> None:
    """Nothing at all, where a segment lies before of which nothing is left: that one counts as young."""
    offsets = handed_back.by_time[partition]
    assert offsets == handed_back.ours_by_time[partition]
    assert len(set(offsets)) > 1
    assert set(offsets) - {-1} <= {record.offset for record in handed_back.consumed[partition].records}


def test_the_broker_sets_no_directory_aside(handed_back: HandedBack) -> None:
    """One that it does not take for its own it renames to `-stray`, and serves an empty one in its place."""
    assert {name for name in handed_back.names if name.startswith(TOPIC)} == {f"{TOPIC}-{p}" for p in PARTITIONS}


@every_partition
def test_the_broker_goes_on_behind_what_we_left(handed_back: HandedBack, partition: int) -> None:
    """For the producers whose transactions we have cleaned, too."""
    before, after = handed_back.consumed[partition], handed_back.appended[partition]
    count = len(before.records)
    assert after.records[:count] == before.records
    assert after.records[count].offset >= before.end
    assert len(after.records) == count + {TRANSACTIONS: 8 * 20, MIXED: 8 * 30}.get(partition, 15 * 14)
    assert handed_back.appended_committed[partition].end == after.end  # what was left open is decided


@every_partition
def test_the_brokers_cleaner_goes_over_what_ours_has_cleaned(handed_back: HandedBack, partition: int) -> None:
    before, committed = handed_back.appended[partition], handed_back.appended_committed[partition]
    after, end = handed_back.consumed_at_end[partition], handed_back.ends_at_end[partition]
    assert after == Consumed(left_of(before.records, committed.records, end), before.end)
    assert handed_back.committed_at_end[partition] == Consumed(left_of_committed(committed.records, end), committed.end)
    assert end > handed_back.ends[partition]


def test_we_open_what_the_broker_has_cleaned_after_us(handed_back: HandedBack, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(handed_back.root, root)
    with we_open(root, ManualClock(now_ms())) as manager:
        for partition in PARTITIONS:
            log = manager.logs[TopicPartition(TOPIC, partition)]
            assert read_log(log, Isolation.HIGH_WATERMARK) == handed_back.consumed_at_end[partition].records
            assert read_log(log, Isolation.COMMITTED) == handed_back.committed_at_end[partition].records
            assert log.log_end_offset == handed_back.consumed_at_end[partition].end


# -- theirs ----------------------------------------------------------------------------------------------------------


@dataclass
class Theirs:
    """What the broker made of the partitions, and what we made of that."""

    root: Path
    again: Path  # a copy of the root, cleaned once more by us
    ends: list[int] = field(default_factory=list)
    consumed: list[Consumed] = field(default_factory=list)
    committed: list[Consumed] = field(default_factory=list)
    opened: list[list[Seen]] = field(default_factory=list)  # as we read it, with what we appended
    opened_committed: list[list[Seen]] = field(default_factory=list)
    ends_again: list[int] = field(default_factory=list)
    cleaned: list[list[Seen]] = field(default_factory=list)  # as we read it at the end


@pytest.fixture(scope="module")
def theirs(produced: Produced, tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    place = tmp_path_factory.mktemp("theirs")
    story = Theirs(place / "root", place / "again")
    shutil.copytree(produced.root, story.root)
    with Broker(story.root, CLEANING).running() as broker:
        story.ends = it_cleans(broker)
        story.consumed, story.committed = consume_all(broker)
    shutil.copytree(story.root, story.again)
    clock = ManualClock(now_ms())
    with we_open(story.again, clock) as manager:
        logs = [manager.logs[TopicPartition(TOPIC, partition)] for partition in PARTITIONS]
        for log in logs:
            values = Values(4, KEYS[::2])
            for _ in range(20):
                log.append(values.take(10))
            story.opened.append(read_log(log, Isolation.HIGH_WATERMARK))
            story.opened_committed.append(read_log(log, Isolation.COMMITTED))
        clock.advance(days=2)  # tombstones stay for one
        we_clean(manager, story.again, clock, range(MIXED))  # of the last, nothing more can be cleaned
        story.ends_again = ends_in(story.again)
        story.cleaned = [read_log(log, Isolation.HIGH_WATERMARK) for log in logs]
    return story


@every_partition
def test_we_leave_the_batches_that_the_broker_leaves(handed_back: HandedBack, theirs: Theirs, partition: int) -> None:
    """With the same flags: horizons were set where it sets them. Empty ones too, for producers and for the log end."""
    ours, end = directory_of(handed_back.cleaned, partition), handed_back.ends[partition]
    assert end == theirs.ends[partition]
    assert kept_of(ours, end) == kept_of(directory_of(theirs.root, partition), end)
    assert any(not kept.offsets for kept in kept_of(ours, end)) == (partition in SILENCED)
    names, their_names = (
        sorted(path.name for path in directory.iterdir() if path.suffix != DELETED)
        for directory in (ours, directory_of(theirs.root, partition))
    )
    assert names == their_names


@every_partition
@behaviour("CLN-013")
def test_we_keep_the_entries_of_aborted_transactions_that_the_broker_keeps(
    handed_back: HandedBack, theirs: Theirs, partition: int
) -> None:
    ours, others = (
        {name: data for name, data in files_of(directory_of(root, partition)).items() if name.endswith(".txnindex")}
        for root in (handed_back.cleaned, theirs.root)
    )
    assert ours == others
    assert bool(ours) == (partition in (TRANSACTIONS, MIXED))


@pytest.mark.parametrize("partition", [PLAIN, TRANSACTIONS])
def test_we_write_the_indexes_that_the_broker_writes(handed_back: HandedBack, theirs: Theirs, partition: int) -> None:
    """Where nothing is compressed, batches have the same size, whoever wrote them."""
    ours, others = (
        {name: data for name, data in files_of(directory_of(root, partition)).items() if name.endswith("index")}
        for root in (handed_back.cleaned, theirs.root)
    )
    active = f"{active_base_of(theirs.root, partition):020}"
    assert {name: data for name, data in ours.items() if name < active} == {
        name: data for name, data in others.items() if name < active
    }
    assert any(ours.values())


@every_partition
def test_we_read_what_the_broker_has_cleaned(theirs: Theirs, partition: int) -> None:
    consumed, committed = theirs.consumed[partition], theirs.committed[partition]
    assert theirs.opened[partition][: len(consumed.records)] == consumed.records
    assert theirs.opened[partition][len(consumed.records)].offset == consumed.end
    assert theirs.opened_committed[partition][: len(committed.records)] == committed.records


@every_partition
def test_we_clean_again_what_the_broker_has_cleaned(theirs: Theirs, partition: int) -> None:
    """A day after the broker's round the tombstones go that it has kept."""
    first, end = theirs.ends[partition], theirs.ends_again[partition]
    left = left_of(theirs.opened[partition], theirs.opened_committed[partition], end)
    if partition == MIXED:
        assert (end, theirs.cleaned[partition]) == (first, left)
        return
    expired = {record.offset for record in left if record.value is None and record.offset < first}
    assert end == active_base_of(theirs.again, partition) > first
    assert theirs.cleaned[partition] == [record for record in left if record.offset not in expired]
    assert expired


# -- the dump tool ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cleaned_roots(handed_back: HandedBack, theirs: Theirs) -> list[Path]:
    return [handed_back.cleaned, theirs.again]


def test_every_index_of_a_cleaned_segment_passes_the_check_by_which_a_broker_keeps_it(
    cleaned_roots: list[Path],
) -> None:
    files, complaints = dumped(paths_in(cleaned_roots, ".index", ".timeindex"), "--index-sanity-check")
    assert complaints == []
    for file in files:
        assert set(file.notes) <= {f"{file.name} is empty.", f"{file.name} passed sanity check."}


def test_the_tool_finds_nothing_wrong_in_the_indexes_of_cleaned_segments(cleaned_roots: list[Path]) -> None:
    """But for empty batches: where an entry names the time of one, as the broker's do, the tool looks for a record."""
    paths = paths_in(cleaned_roots, ".index", ".timeindex")
    files, complaints = dumped(paths, "--verify-index-only")
    empty = {batch.max_timestamp_ms for path in paths for batch in empty_batches_of(path.with_suffix(".log"))}
    allowed = {f"  Index timestamp: {timestamp_ms}, log timestamp: -1" for timestamp_ms in empty}
    assert [line for line in complaints if not line.startswith("Found timestamp mismatch in :")] == [
        line for line in complaints if line in allowed
    ]
    for file in files:
        assert set(file.notes) <= {f"{file.name} is empty."}
    assert sum(path.stat().st_size > 0 for path in paths) > len(paths) // 2


def test_the_tool_reads_every_record_of_cleaned_segments(
    cleaned_roots: list[Path], handed_back: HandedBack, theirs: Theirs
) -> None:
    """Gaps are what it complains of, and there are some."""
    paths = paths_in(cleaned_roots, ".log")
    files, complaints = dumped(paths, "--deep-iteration", "--print-data-log")
    gaps = re.compile(r"Non-consecutive offsets in \S+\.log|  -?\d+ is followed by \d+")
    assert [line for line in complaints if not gaps.fullmatch(line)] == []
    found: Counter[Path] = Counter()
    for path, file in zip(paths, files, strict=True):
        assert file.notes == [f"Log starting offset: {int(path.stem)}"]
        assert {batch.fields["isvalid"] for batch in file.batches} <= {"true"}
        found[path.parent] += sum(record.control is None for batch in file.batches for record in batch.records)
    for partition in PARTITIONS:
        assert found[directory_of(handed_back.cleaned, partition)] == len(handed_back.consumed[partition].records)
        assert found[directory_of(theirs.again, partition)] == len(theirs.cleaned[partition])


def test_the_tool_reads_what_lies_beside_cleaned_segments(cleaned_roots: list[Path]) -> None:
    assert dumped(paths_in(cleaned_roots, ".txnindex", ".snapshot"))[1] == []
    assert paths_in(cleaned_roots, CLEANED, SWAP, DELETED) == []


# -- crashed ---------------------------------------------------------------------------------------------------------

# The power fails before the file of this number (from 0) is renamed to a name that ends so.
MOMENTS = {
    PLAIN: (SWAP, 0),
    GZIP: (SWAP, 2),
    SNAPPY: (DELETED, 0),
    LZ4: (DELETED, 4),
    ZSTD: (FINAL, 1),
    TRANSACTIONS: (DELETED, 1),
    MIXED: (FINAL, NEVER),  # all are renamed, none of the old files is removed
}
UNDONE = {PLAIN, GZIP}  # a file ends in `.cleaned`
LEFT = {
    PLAIN: {CLEANED},
    GZIP: {CLEANED, SWAP},
    SNAPPY: {SWAP},
    LZ4: {SWAP, DELETED},
    ZSTD: {SWAP, DELETED},
    TRANSACTIONS: {SWAP, DELETED},
    MIXED: {DELETED},
}


@dataclass
class Crashed:
    """What lay there after the crash, what the broker served, and the producers it knew when it was stopped."""

    root: Path
    ends: dict[int, int] = field(default_factory=dict)  # up to where we were cleaning
    suffixes: dict[int, set[str]] = field(default_factory=dict)
    ours: list[list[Seen]] = field(default_factory=list)  # as we load a copy of it
    consumed: list[Consumed] = field(default_factory=list)
    committed: list[Consumed] = field(default_factory=list)


@pytest.fixture(scope="module")
def crashed(produced: Produced, tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    place = tmp_path_factory.mktemp("crashed")
    story = Crashed(place / "root")
    shutil.copytree(produced.root, story.root)
    fs = LocalFileSystem()
    CleanShutdownFile(fs, str(story.root)).delete()
    OffsetCheckpoint(fs, str(story.root / RECOVERY_POINT_CHECKPOINT)).write({})
    for partition in PARTITIONS:
        directory = directory_of(story.root, partition)
        story.ends[partition] = we_crash(directory, PowerCut(*MOMENTS[partition]))
        suffixes = {path.suffix for path in directory.iterdir()}
        story.suffixes[partition] = suffixes & {CLEANED, SWAP, DELETED}
        for snapshot in directory.glob("*.snapshot"):
            snapshot.unlink()
        copy = directory_of(place, partition)
        shutil.copytree(directory, copy)
        with UnifiedLog.open(copy, our_config()) as log:
            story.ours.append(read_log(log))
    with Broker(story.root).running() as broker:
        story.consumed, story.committed = consume_all(broker)
    return story


@every_partition
def test_the_power_fails_where_it_was_meant_to(crashed: Crashed, partition: int) -> None:
    assert crashed.suffixes[partition] == LEFT[partition]


@every_partition
@behaviour("CLN-051", "CLN-052", "CLN-053", "CLN-054", "CLN-055")
def test_the_broker_drops_or_completes_a_swap_that_we_left(
    produced: Produced, crashed: Crashed, partition: int
) -> None:
    before, committed = produced.consumed[partition], produced.committed[partition]
    end = 0 if partition in UNDONE else crashed.ends[partition]
    assert crashed.consumed[partition] == Consumed(left_of(before.records, committed.records, end), before.end)
    assert crashed.committed[partition] == Consumed(left_of_committed(committed.records, end), committed.end)


@every_partition
def test_we_make_of_a_swap_that_was_left_what_the_broker_makes_of_it(crashed: Crashed, partition: int) -> None:
    assert crashed.ours[partition] == crashed.consumed[partition].records


@every_partition
@behaviour("CLN-009", "CLN-034")
def test_from_what_we_left_the_broker_knows_every_producer(
    produced: Produced, crashed: Crashed, partition: int
) -> None:
    """Without a snapshot: epoch and sequence are in batches that we kept, empty where all keys were written again."""
    known = producers_of(crashed.root, partition)
    assert known == producers_of(produced.root, partition)
    assert len(known) == {PLAIN: 0, TRANSACTIONS: 2, MIXED: 4}.get(partition, 2)
