"""Partition directories that our engine wrote, before Apache Kafka's own dump tool and record classes.

The tool checks an index against its log: each entry must point at the batch whose last offset it names, each entry of
a time index must name the largest timestamp of its batch. All directories are written once and shown to the tool a few
hundred files at a time, so the tests below only compare.
"""

import re
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.behaviours import behaviour
from tests.compat.kafka_tools import DumpedFile, Verdict, dump_log, judge_files, parse_dump
from tests.compat.written_log import CODECS, WrittenLog, batches_of, files_of, write_plain, write_transactions
from tidelog.log import LogConfig, UnifiedLog
from tidelog.records import Codec, read_batches

SEGMENT_BYTES = 24 * 1024
ENTRY_SIZES = {".index": 8, ".timeindex": 12}
FILES_A_RUN = 400  # all names stand in one argument, which may have 128 KiB


# -- the directories -----------------------------------------------------------------------------------------------


def plain(log: WrittenLog) -> None:
    write_plain(log)


def transactions(log: WrittenLog) -> None:
    write_transactions(log)


def in_one_codec(codec: Codec) -> Callable[[WrittenLog], None]:
    return lambda log: write_plain(log, [codec], rounds=200)


def truncated(log: WrittenLog) -> None:
    """Cut inside the active segment, then several segments back, inside a batch; what follows is of a later epoch."""
    write_plain(log)
    log.truncate_to(log.end - 3)
    write_plain(log, rounds=2)
    log.truncate_to(log.end // 2)
    log.leader_epoch = 4
    write_plain(log)


def reopened(log: WrittenLog) -> None:
    """Closed and opened again between the batches, as clean and as not."""
    for clean_shutdown in (True, False, True, False):
        write_transactions(log, rounds=3, first=log.end)
        log.reopen(clean_shutdown=clean_shutdown)


def log_start_moved(log: WrittenLog) -> None:
    """Its oldest segments deleted, the log start inside of one."""
    write_plain(log)
    log.delete_records(log.end // 2)


def rolled_by_time(log: WrittenLog) -> None:
    for _ in range(12):
        write_plain(log, rounds=1)
        log.clock.advance(minutes=30)


INTERVALS = [0, 100, 4096]
CASES: dict[str, tuple[dict[str, object], Callable[[WrittenLog], None]]] = {
    **{
        f"{codec.label}-interval-{interval}": ({"index_interval_bytes": interval}, in_one_codec(codec))
        for codec in CODECS
        for interval in INTERVALS
    },
    **{f"transactions-{interval}": ({"index_interval_bytes": interval}, transactions) for interval in INTERVALS},
    **{
        f"to-{name}": ({"compression_type": name, "index_interval_bytes": 100}, transactions)
        for name in ("uncompressed", "gzip", "snappy", "lz4", "zstd")
    },
    "append-time": ({"message_timestamp_type": "LogAppendTime", "index_interval_bytes": 0}, transactions),
    "append-time-to-zstd": ({"message_timestamp_type": "LogAppendTime", "compression_type": "zstd"}, plain),
    "preallocated": ({"preallocate": True, "index_interval_bytes": 100}, transactions),
    "preallocated-truncated": ({"preallocate": True, "index_interval_bytes": 0}, truncated),
    "index-full": ({"segment_index_bytes": 60, "index_interval_bytes": 0}, plain),
    "truncated": ({"index_interval_bytes": 100}, truncated),
    "reopened": ({"index_interval_bytes": 100}, reopened),
    "log-start-moved": ({"index_interval_bytes": 100}, log_start_moved),
    "rolled-by-time": ({"segment_ms": 3_600_000, "index_interval_bytes": 0}, rolled_by_time),
}


class Dumped(NamedTuple):
    """What the tool says of many files, and what it complains of on standard error."""

    files: list[DumpedFile]
    complaints: list[str]


class Directories:
    """The directories, as closed, and what the tools said of them."""

    def __init__(self, root: Path) -> None:
        self.logs: dict[str, WrittenLog] = {}
        self.images: dict[str, dict[str, bytes]] = {}
        for number, (name, (configs, write)) in enumerate(CASES.items()):
            config = LogConfig(**{"segment_bytes": SEGMENT_BYTES, **configs})  # type: ignore[arg-type]
            log = self.logs[name] = WrittenLog(root / f"{name}-0", config, seed=number)
            write(log)
            log.close()
            self.images[name] = files_of(log.directory)

    def paths(self, *suffixes: str) -> list[Path]:
        found = [path for log in self.logs.values() for path in log.directory.iterdir() if path.suffix in suffixes]
        return sorted(found)

    def of(self, name: str, dumped: "Dumped", suffix: str) -> list[DumpedFile]:
        """What was said of the files of one directory."""
        folder = f"{self.logs[name].directory}/"
        return [file for file in dumped.files if file.name.startswith(folder) and file.name.endswith(suffix)]


def dump(paths: list[Path], *options: str) -> Dumped:
    """Run the tool over many files."""
    files: list[DumpedFile] = []
    complaints: list[str] = []
    for start in range(0, len(paths), FILES_A_RUN):
        result = dump_log(paths[start : start + FILES_A_RUN], *options)
        assert result.exit == 0, result.stderr
        files += parse_dump(result.stdout)
        complaints += result.stderr.splitlines()
    assert [file.name for file in files] == [str(path) for path in paths]
    return Dumped(files, complaints)


def gaps(log: WrittenLog) -> list[str]:
    """What the tool must complain of in the logs of a directory: records that do not follow each other.

    4.3 takes it that -1 goes before the first record of a file, so it complains of every segment but that of offset 0.
    """
    lines = []
    bases = [int(path.stem) for path in sorted(log.directory.glob("*.log"))]
    for base, following in zip(bases, [*bases[1:], log.end], strict=True):
        offsets = [-1, *(offset for offset in log.offsets if base <= offset < following)]
        pairs = [(a, b) for a, b in pairwise(offsets) if b != a + 1]
        if pairs:
            lines.append(f"Non-consecutive offsets in {log.directory}/{base:020}.log")
            lines += [f"  {a} is followed by {b}" for a, b in pairs]
    return lines


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Directories:
    return Directories(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def logs(written: Directories) -> Dumped:
    return dump(written.paths(".log"), "--deep-iteration")


@pytest.fixture(scope="module")
def indexes(written: Directories) -> Dumped:
    return dump(written.paths(".index", ".timeindex"), "--deep-iteration")


@pytest.fixture(scope="module")
def others(written: Directories) -> Dumped:
    """Snapshots and transaction indexes, for which the tool has no options."""
    return dump(written.paths(".snapshot", ".txnindex"))


@pytest.fixture(scope="module")
def judged(written: Directories) -> dict[Path, Verdict]:
    paths = written.paths(".log")
    return dict(zip(paths, judge_files(paths), strict=True))


every_case = pytest.mark.parametrize("name", CASES)


# -- what they say -------------------------------------------------------------------------------------------------


def test_the_directories_hold_what_they_are_meant_to(written: Directories) -> None:
    """So that the verdicts below are about something: rolls, every codec, index entries, aborted and open ones."""
    for name, log in written.logs.items():
        assert len(list(log.directory.glob("*.log"))) >= (5 if name == "log-start-moved" else 6), name
        assert not [path for path in log.directory.iterdir() if path.suffix in (".deleted", ".swap", ".cleaned")]
    for suffix in ENTRY_SIZES:
        assert sum(path.stat().st_size > 0 for path in written.paths(suffix)) > len(CASES) * 4
    log = written.logs["transactions-100"]
    assert {Codec.from_id(batch.codec) for batch in batches_of(log.directory)} == set(CODECS)
    assert len(log.aborted) > 10
    assert len(log.open_transactions) == 1
    assert len({ends for _, ends in log.markers}) == 2


def test_the_tool_finds_nothing_wrong_in_the_indexes(written: Directories) -> None:
    files, complaints = dump(written.paths(".index", ".timeindex"), "--verify-index-only")
    assert complaints == []
    for file in files:
        assert set(file.notes) <= {f"{file.name} is empty."}


def test_every_index_passes_the_check_by_which_a_broker_keeps_it(written: Directories) -> None:
    files, complaints = dump(written.paths(".index", ".timeindex"), "--index-sanity-check")
    assert complaints == []
    for file in files:
        assert set(file.notes) <= {f"{file.name} is empty.", f"{file.name} passed sanity check."}


def test_the_tool_complains_of_nothing_but_gaps_that_are_there(
    written: Directories, logs: Dumped, indexes: Dumped, others: Dumped
) -> None:
    assert (indexes.complaints, others.complaints) == ([], [])
    assert sorted(logs.complaints) == sorted(line for log in written.logs.values() for line in gaps(log))


@every_case
def test_the_tool_prints_every_entry_of_every_index(written: Directories, indexes: Dumped, name: str) -> None:
    """No entry is left out as one of the zeros behind the last, and a trimmed index holds nothing else."""
    for suffix, size in ENTRY_SIZES.items():
        for file in written.of(name, indexes, suffix):
            entries = [note for note in file.notes if re.fullmatch(r"(timestamp|offset): \d+ \w+: \d+", note)]
            assert len(entries) * size == Path(file.name).stat().st_size
            assert entries or file.notes in ([], [f"{file.name} is empty."])


@every_case
def test_the_tool_reads_every_batch_and_record_of_every_log(written: Directories, logs: Dumped, name: str) -> None:
    batches = []
    for file in written.of(name, logs, ".log"):
        assert file.notes == [f"Log starting offset: {int(Path(file.name).stem)}"]
        batches += file.batches
    assert {batch.fields["isvalid"] for batch in batches} == {"true"}
    assert {batch.fields["magic"] for batch in batches} == {"2"}
    offsets = [int(record.fields["offset"]) for batch in batches for record in batch.records]
    assert offsets == written.logs[name].offsets


@every_case
def test_kafkas_classes_read_the_records_that_were_sent(
    written: Directories, judged: dict[Path, Verdict], name: str
) -> None:
    log = written.logs[name]
    verdicts = [judged[path] for path in sorted(log.directory.glob("*.log"))]
    assert [verdict.error for verdict in verdicts] == [None] * len(verdicts)
    assert all(verdict.valid_bytes == verdict.size for verdict in verdicts)
    batches = [batch for verdict in verdicts for batch in verdict.batches]
    types = ["CreateTime", "LogAppendTime"]
    assert [
        (record.offset, record.timestamp, record.key, record.value, record.headers, batch.fields["timestampType"])
        for batch in batches
        if not batch.fields["isControl"]
        for record in batch.records
    ] == [(*record[:5], types[record.timestamp_type]) for record in log.records]
    markers = [record for batch in batches if batch.fields["isControl"] for record in batch.records]
    assert [(record.offset, record.control_type) for record in markers] == [(at, end.name) for at, end in log.markers]


@every_case
@behaviour("IDX-033")
def test_the_tool_lists_the_transactions_that_were_aborted(written: Directories, others: Dumped, name: str) -> None:
    lines = [note for file in written.of(name, others, ".txnindex") for note in file.notes]
    assert lines == [
        f"version: 0 producerId: {txn.producer_id} firstOffset: {txn.first_offset} "
        f"lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
        for txn in written.logs[name].aborted
    ]


@every_case
def test_the_tool_reads_the_last_snapshot_as_the_producers_are(written: Directories, others: Dumped, name: str) -> None:
    log = written.logs[name]
    snapshots = written.of(name, others, ".snapshot")
    assert int(Path(snapshots[-1].name).stem) == log.end
    fields = [dict(re.findall(r"(\w+): (\S+)", note)) for note in snapshots[-1].notes]
    assert {int(line["producerId"]): int(line["lastSequence"]) for line in fields} == log.last_sequences
    began = {int(line["producerId"]): line["currentTxnFirstOffset"] for line in fields}
    is_open = {producer: text for producer, text in began.items() if "empty" not in text}
    assert {producer: int(re.sub(r"\D", "", text)) for producer, text in is_open.items()} == log.open_transactions


@behaviour("SEG-024")
def test_a_preallocated_segment_is_no_longer_than_its_batches_once_it_is_closed(
    written: Directories, tmp_path: Path
) -> None:
    for name in ("preallocated", "preallocated-truncated"):
        directory = written.logs[name].directory
        sizes = {path.name: path.stat().st_size for path in directory.glob("*.log")}
        assert max(sizes.values()) <= SEGMENT_BYTES
        assert sum(sizes.values()) == sum(batch.size_in_bytes for batch in batches_of(directory))
        shutil.copytree(directory, tmp_path / directory.name)
        with UnifiedLog.open(tmp_path / directory.name, written.logs[name].log.config, clean_shutdown=True) as log:
            assert (log.size, log.active_segment.size) == (sum(sizes.values()), sizes[max(sizes)])


def test_the_tool_changes_no_file(written: Directories, logs: Dumped, indexes: Dumped, others: Dumped) -> None:
    """It opens indexes as a broker does, and one that is missing it creates: none was."""
    assert {name: files_of(log.directory) for name, log in written.logs.items()} == written.images


# -- a log that is open, and damage --------------------------------------------------------------------------------


def test_the_tool_reads_the_files_of_a_log_that_is_open(tmp_path: Path) -> None:
    """Its indexes have their full size, zeros behind the last entry."""
    log = WrittenLog(tmp_path / "open-0", LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=100), seed=1)
    write_transactions(log)
    log.log.tick()  # the last index entries are written with the heartbeat
    active = tmp_path / "open-0" / f"{log.log.active_segment.base_offset:020}.index"
    assert active.stat().st_size == log.log.config.segment_index_bytes
    copy = tmp_path / "copy-0"  # the tool takes no lock
    shutil.copytree(log.directory, copy)
    paths = sorted(path for path in copy.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
    files, complaints = dump(paths, "--verify-index-only")
    assert complaints == []
    assert [note for file in files if file.name.endswith("index") for note in file.notes] == []
    log.close()


@behaviour("SEG-037")
def test_a_follower_that_is_sent_many_batches_at_once_indexes_each(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=0)
    leader = WrittenLog(tmp_path / "leader-0", config, seed=1)
    write_transactions(leader)
    with UnifiedLog.open(tmp_path / "follower-0", config, clock=leader.clock) as follower:
        while follower.log_end_offset < leader.end:
            batches = list(read_batches(leader.log.read(follower.log_end_offset, 10_000).read()))
            data = b"".join(bytes(batch.buffer) for batch in batches)
            follower.append_as_follower(memoryview(bytearray(data)))
    leader.close()
    for log in sorted((tmp_path / "follower-0").glob("*.log")):
        entries = log.with_suffix(".index").stat().st_size // ENTRY_SIZES[".index"]
        assert entries == len(list(read_batches(log.read_bytes()))) - 1
    paths = sorted(path for path in (tmp_path / "follower-0").iterdir() if path.suffix in ENTRY_SIZES)
    assert dump(paths, "--verify-index-only").complaints == []
    assert b"".join(read_logs(tmp_path / "follower-0")) == b"".join(read_logs(tmp_path / "leader-0"))


def read_logs(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.glob("*.log"))]


def test_the_tool_would_tell_of_one_wrong_entry(tmp_path: Path) -> None:
    """The verdicts above are worth something: one bit in an offset index, one in a time index."""
    log = WrittenLog(tmp_path / "damaged-0", LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=100), seed=1)
    write_plain(log)
    log.close()
    index, time_index = (tmp_path / "damaged-0" / f"{0:020}{suffix}" for suffix in ENTRY_SIZES)
    for path, position in ((index, 8 + 3), (time_index, 12 + 7)):
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)
    result = dump_log([index, time_index], "--verify-index-only")
    assert f"Mismatches in :{index}" in result.stderr
    assert "Found timestamp mismatch in" in result.stderr
    assert str(time_index) in result.stderr
