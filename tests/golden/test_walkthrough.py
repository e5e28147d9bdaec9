"""The walk-through that many documents print: topic `log-format`, segment.bytes 5120, sends of 1, 1, 3, 3, 20 and 200.

Kafka 1.0.0 ran it with a client of 0.10.2.2, whose batches hold up to 13 records; its files are the judge of what
has not changed since. Our log is given the same batches and writes what 4.3 would: the offset index names the last
offset of a batch where 1.0 named the first. `index-content` holds the same sends to 14 releases, and shows when that
came about.
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.golden.corpus import Partition, case, partitions
from tests.golden.replays import files_of
from tidelog.log import LogConfig, ManualClock, UnifiedLog
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.lookup import BatchRead, BatchWalked, IndexUsed, SegmentChosen, Step, TimeIndexUsed
from tidelog.log.offset_index import OffsetEntries
from tidelog.log.time_index import TimeEntries
from tidelog.records import RecordBatch, TimestampType, batch_of, read_batches

SEED = case("seed-walkthrough") / "client-0.10.2.2"
DIRECTORY = "log-format-1"
SENDS = {
    "step1-two-sends": 1 + 1,
    "step2-three-records": 3,
    "step3-three-records-one-batch": 3,
    "step4-twenty-records": 20,
    "step5-two-hundred-records-live": 200,
}
LIVE, STOPPED = "step5-two-hundred-records-live", "step6-after-clean-stop"
SEGMENT_BYTES = 5120  # set before the twenty records
FILES = [0, 93, 184]
LAST_TIME_MS = 1_794_771_450_081


def config(segment_bytes: int = SEGMENT_BYTES) -> LogConfig:
    return LogConfig(segment_bytes=segment_bytes, segment_index_bytes=960)


def log_bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def batches_of(step: str) -> list[RecordBatch]:
    """The batches of a step and of those before it."""
    return [batch for batch in read_batches(log_bytes(SEED / step / DIRECTORY)) if isinstance(batch, RecordBatch)]


def open_log(directory: Path, segment_bytes: int = SEGMENT_BYTES) -> UnifiedLog:
    return UnifiedLog.open(
        directory,
        config(segment_bytes),
        clean_shutdown=True,
        clock=ManualClock(LAST_TIME_MS),
        rng=random.Random(1),
    )


def walk_through(directory: Path) -> UnifiedLog:
    """Send what the document sends, with its restart behind the first two records; every step has the `.log` of 1.0."""
    log = open_log(directory, segment_bytes=1 << 30)
    log.assign_epoch_start_offset(0, 0)
    for step, count in SENDS.items():
        if step == "step2-three-records":
            log.close()
            log = open_log(directory, segment_bytes=1 << 30)
            log.assign_epoch_start_offset(1, log.log_end_offset)
        if step == "step4-twenty-records":
            log.config = config()
        before = log.log_end_offset
        for batch in batches_of(step):
            if batch.base_offset >= log.log_end_offset:
                sent = RecordBatch(bytearray(batch.buffer))
                sent.set_last_offset(batch.last_offset - batch.base_offset)
                sent.set_partition_leader_epoch(-1)
                log.append_as_leader(memoryview(sent.buffer), batch.partition_leader_epoch)
                log.update_high_watermark(log.log_end_offset)
                log.tick()
        assert log.log_end_offset - before == count
        assert log_bytes(directory) == log_bytes(SEED / step / DIRECTORY)
    return log


def trace_of(log: UnifiedLog, offset: int) -> list[Step]:
    trace: list[Step] = []
    region = log.read(offset, 1, trace=trace)
    assert offset in [record.offset for record in batch_of(region.read())]
    return trace


def offsets_walked(trace: list[Step]) -> list[tuple[int, int]]:
    return [(step.batch.base_offset, step.batch.last_offset) for step in trace if isinstance(step, BatchWalked)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnifiedLog]:
    """The log that we write, open. Tests only read it."""
    with walk_through(tmp_path_factory.mktemp("walkthrough") / DIRECTORY) as log:
        yield log


@pytest.fixture(scope="module")
def of_1_0(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnifiedLog]:
    """The log that 1.0.0 left, opened by us. Tests only read it."""
    directory = tmp_path_factory.mktemp("of-1.0") / DIRECTORY
    shutil.copytree(SEED / STOPPED / DIRECTORY, directory)
    with open_log(directory) as log:
        yield log


# -- files -----------------------------------------------------------------------------------------------------------


@behaviour("LOG-020")
def test_the_sends_fill_three_files_named_by_their_first_offsets(written: UnifiedLog) -> None:
    assert [segment.base_offset for segment in written.segments] == FILES
    assert [segment.size for segment in written.segments] == [5043, 4669, 2312]
    assert written.log_end_offset == 228
    # Each file would have grown beyond 5120 bytes by the batch that begins the next.
    following = [segment.find_offset(segment.base_offset) for segment in written.segments[1:]]
    for segment, batch in zip(written.segments, following, strict=False):
        assert batch is not None
        assert segment.size <= SEGMENT_BYTES < segment.size + batch.size


def test_while_the_log_is_open_its_files_have_the_sizes_of_1_0(written: UnifiedLog) -> None:
    sizes = {path.name: path.stat().st_size for path in Path(written.directory).iterdir()}
    assert sizes == {name: len(data) for name, data in files_of(SEED / LIVE / DIRECTORY).items()}


def test_closed_it_differs_from_1_0_in_one_index_entry_and_in_a_snapshot_that_1_0_deleted(tmp_path: Path) -> None:
    log = walk_through(tmp_path / DIRECTORY)
    log.close()

    ours, golden = files_of(tmp_path / DIRECTORY), files_of(SEED / STOPPED / DIRECTORY)
    assert golden.pop("00000000000000000000.index") == bytes.fromhex("00000050 00001120")  # 80 at 4384
    assert ours.pop("00000000000000000000.index") == bytes.fromhex("0000005c 00001120")  # 92 at 4384
    # Taken by the restart. 1.0 kept the newest few, 4.3 keeps it until the log is loaded again.
    assert ours.pop("00000000000000000002.snapshot") == golden["00000000000000000093.snapshot"]
    assert ours == golden

    open_log(tmp_path / DIRECTORY).close()
    assert "00000000000000000002.snapshot" not in files_of(tmp_path / DIRECTORY)


def test_the_rows_that_old_tools_printed_of_a_preallocated_time_index_are_its_zeros(written: UnifiedLog) -> None:
    name = "00000000000000000184.timeindex"
    data = (Path(written.directory) / name).read_bytes()
    assert data == bytes(960) == (SEED / LIVE / DIRECTORY / name).read_bytes()
    # 1.0's tool reads rows to the end of the file: a row of zeros is time 0 and relative offset 0.
    rows = [data[start : start + 12] for start in range(0, len(data), 12)]
    printed = [
        f"timestamp: {int.from_bytes(row[:8], 'big')} offset: {184 + int.from_bytes(row[8:], 'big')}" for row in rows
    ]
    tool = (SEED / LIVE / "dump-1.0.0" / f"{name}.print-data-log.stdout").read_text(encoding="utf-8").splitlines()
    assert tool[1:] == printed
    assert list(TimeEntries(LocalFileSystem().open(str(Path(written.directory) / name)), 184)) == []


# -- lookups ---------------------------------------------------------------------------------------------------------

ALL_OF_SEGMENT_0 = [
    (0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 7), (8, 20), (21, 27), (28, 40), (41, 53), (54, 66), (67, 79), (80, 92),
]  # fmt: skip


def test_in_the_files_of_1_0_offset_90_is_found_through_the_entry_of_80(of_1_0: UnifiedLog) -> None:
    assert list(of_1_0.segments[0].offset_index.reader()) == [(80, 4384)]
    chosen, used, walked = trace_of(of_1_0, 90)
    assert (chosen, used) == (SegmentChosen(0), IndexUsed(80, 4384))
    assert offsets_walked([walked]) == [(80, 92)]
    assert isinstance(walked, BatchWalked)
    assert (walked.batch.position, walked.batch.size) == (4384, 659)


@pytest.mark.parametrize("log", ["of_1_0", "written"])
def test_offset_15_lies_before_the_only_entry_and_is_walked_to_from_position_0(
    log: str, request: pytest.FixtureRequest
) -> None:
    chosen, used, *walked = trace_of(request.getfixturevalue(log), 15)
    assert (chosen, used) == (SegmentChosen(0), IndexUsed(0, 0))
    assert offsets_walked(walked) == ALL_OF_SEGMENT_0[:7]


def test_in_our_files_offset_90_lies_before_the_entry_of_its_own_batch(written: UnifiedLog) -> None:
    assert list(written.segments[0].offset_index.reader()) == [(92, 4384)]
    chosen, used, *walked = trace_of(written, 90)
    assert (chosen, used) == (SegmentChosen(0), IndexUsed(0, 0))
    assert offsets_walked(walked) == ALL_OF_SEGMENT_0
    assert trace_of(written, 92)[:2] == [SegmentChosen(0), IndexUsed(92, 4384)]


@pytest.mark.parametrize("log", ["of_1_0", "written"])
@behaviour("LOG-009")
def test_every_offset_and_every_time_is_found(log: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(log)
    records = [record for batch in batches_of(STOPPED) for record in batch]
    for record in records:
        trace_of(found, record.offset)
    for time in {record.timestamp_ms + step for record in records for step in (-1, 0, 1)}:
        first = next(((r.timestamp_ms, r.offset) for r in records if r.timestamp_ms >= time), None)
        answer = found.offset_for_time(time)
        assert (None if answer is None else answer[:2]) == first


@pytest.mark.parametrize("log", ["of_1_0", "written"])
def test_a_time_is_found_by_both_indexes_and_one_batch_is_read(log: str, request: pytest.FixtureRequest) -> None:
    trace: list[Step] = []
    answer = request.getfixturevalue(log).offset_for_time(LAST_TIME_MS - 35, trace=trace)
    assert answer is not None
    # Of the two entries, (...423773, 1) and (...450047, 79), the first is not above ...450046.
    assert [step for step in trace if not isinstance(step, BatchWalked | IndexUsed)] == [
        SegmentChosen(0),
        TimeIndexUsed(1_794_771_423_773, 1),
        *(step for step in trace if isinstance(step, BatchRead)),
    ]
    assert offsets_walked(trace) == ALL_OF_SEGMENT_0[:11]
    (read,) = (step.batch for step in trace if isinstance(step, BatchRead))
    assert read.base_offset <= answer.offset <= read.last_offset == 66
    assert answer.timestamp_ms == LAST_TIME_MS - 35


# -- what the releases write into their indexes ----------------------------------------------------------------------

FIRST_OFFSETS = [3, 6, 9, 12, 15, 18, 20]
LAST_OFFSETS = [5, 8, 11, 14, 17, 19, 20]
TIMES_OF_RECORDS = [4, 8, 9, 14, 18, 20]  # of a compressed batch its last record
TIMES_OF_BATCHES = [5, 8, 11, 14, 19, 20]

RELEASES = {
    **dict.fromkeys(("0.10.2.2", "0.11.0.3", "1.0.0", "1.1.1"), (FIRST_OFFSETS, TIMES_OF_RECORDS)),
    **dict.fromkeys(("2.0.1", "2.3.1", "2.8.2", "3.1.0", "3.4.0", "3.6.2"), (LAST_OFFSETS, TIMES_OF_RECORDS)),
    **dict.fromkeys(("3.7.0", "3.7.1", "3.8.0", "3.9.1"), (LAST_OFFSETS, TIMES_OF_BATCHES)),
}
LIKE_US = [release for release, stored in RELEASES.items() if stored == (LAST_OFFSETS, TIMES_OF_BATCHES)]
PROBES = ["probe-0", "probe-lat-0"]


def probe(release: str, name: str) -> Partition:
    return Partition("index-content", f"by-{release}/{name}")


def probe_config(name: str) -> LogConfig:
    time = "LogAppendTime" if name == "probe-lat-0" else "CreateTime"
    return LogConfig(index_interval_bytes=1, segment_index_bytes=960, message_timestamp_type=time)


@pytest.mark.parametrize("release", RELEASES)
def test_the_releases_index_first_offsets_then_last_then_also_by_time(release: str) -> None:
    fs, path = LocalFileSystem(), probe(release, "probe-0").path
    offsets = OffsetEntries(fs.open(str(path / "00000000000000000000.index")), 0)
    times = TimeEntries(fs.open(str(path / "00000000000000000000.timeindex")), 0)
    assert ([entry.offset for entry in offsets], [entry.offset for entry in times]) == RELEASES[release]


def test_every_release_of_the_corpus_is_looked_at() -> None:
    assert {str(partition) for partition in partitions("index-content")} == {
        str(probe(release, name)) for release in RELEASES for name in PROBES
    }


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("release", LIKE_US)
@pytest.mark.parametrize("as_leader", [False, True])
@behaviour("VAL-025")
def test_the_same_sends_make_the_indexes_of_the_later_releases(
    release: str, name: str, as_leader: bool, tmp_path: Path
) -> None:
    golden = probe(release, name)
    clock = ManualClock(LAST_TIME_MS)
    log = UnifiedLog.open(tmp_path / name, probe_config(name), clock=clock, rng=random.Random(1))
    for batch in read_batches(golden.read()):
        assert isinstance(batch, RecordBatch)
        data = bytearray(batch.buffer)
        if as_leader:
            clock.set_to(batch.max_timestamp_ms)
            sent = RecordBatch(data)
            sent.set_max_timestamp(TimestampType.CREATE_TIME, batch.max_timestamp_ms)
            sent.set_last_offset(batch.last_offset - batch.base_offset)
            sent.set_partition_leader_epoch(-1)
            log.append_as_leader(memoryview(data), batch.partition_leader_epoch)
        else:
            log.append_as_follower(memoryview(data))
    log.close()

    expected = files_of(golden.path)
    expected.pop("partition.metadata", None)
    assert files_of(tmp_path / name) == expected


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("release", RELEASES)
def test_whatever_a_release_put_into_its_indexes_every_record_is_found(release: str, name: str, tmp_path: Path) -> None:
    shutil.copytree(probe(release, name).path, tmp_path / name)
    records = [record for batch in read_batches(log_bytes(tmp_path / name)) for record in batch]
    assert len(records) == 21
    with UnifiedLog.open(
        tmp_path / name, probe_config(name), clean_shutdown=True, clock=ManualClock(LAST_TIME_MS), rng=random.Random(1)
    ) as log:
        for record in records:
            trace_of(log, record.offset)
            first = next(r for r in records if r.timestamp_ms >= record.timestamp_ms)
            answer = log.offset_for_time(record.timestamp_ms)
            assert answer is not None
            assert answer[:2] == (first.timestamp_ms, first.offset)
        assert [segment.wrong_index for segment in log.segments] == [None]
