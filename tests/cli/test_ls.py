"""`tidelog ls`: what lies in a directory, for people and for programs."""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from tests.golden.corpus import case
from tests.log.logs import NOW
from tests.tables.loads import DeadlyDisk, kill_in, load_here
from tests.view.scans import some, write_log
from tidelog.cli.main import cli
from tidelog.log.clock import ManualClock
from tidelog.log.names import STAGED_FILE, UNFINISHED_WRITE
from tidelog.records import Codec, NewRecord
from tidelog.tables.load import load_table

WALKTHROUGH = "client-0.10.2.2/step6-after-clean-stop"


def ls(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["ls", *map(str, arguments)])


def listed(*arguments: str | Path) -> list[dict[str, Any]]:
    done = ls(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def a_root(home: Path) -> Path:
    return Path(shutil.copytree(case("seed-walkthrough") / WALKTHROUGH, home / "data"))


def test_a_partition_is_one_line(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    title, headings, row = ls(root).stdout.splitlines()
    assert title == f"{root}: 1 partition, 12 kB"
    assert headings.split("  ")[0] == "partition"
    assert row.split() == ["log-format-1", "0", "228", "3", "12", "kB", "2026-11-15T19:37:30Z"]


def test_nothing_is_called_sound_that_nobody_has_checked(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    assert [len(row["notices"]) for row in listed(root)] == [0]
    (root / "replication-offset-checkpoint").unlink()
    *_, row = ls(root).stdout.splitlines()
    assert row.endswith("  1 note, see -l")
    assert "\nnote: " in ls(root, "-l").stdout
    assert " ok" not in ls(root, "-l").stdout


def test_segments_fit_a_narrow_terminal_and_odd_files_are_told_of(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    (root / "log-format-1" / "00000000000000000093.index").unlink()
    write_log(root, [("put", Codec.ZSTD, some(2))], "late-0")
    os.rename(root / "late-0" / f"{0:020}.log", root / "late-0" / f"{10**8:020}.log")
    lines = ls(root, "-l").stdout.splitlines()
    assert [line for line in lines[1:] if len(line) > 80 and not line.startswith("note: ")] == []
    assert "files: 3 .log; 1 entry in 2 .index, 4 entries in 3 .timeindex" in lines
    assert "note: 00000000000000000093.index: missing" in lines
    [title] = [number for number, line in enumerate(lines) if line == "log-format-1"]
    assert lines[title + 1].split() == ["offsets", "records", "bytes", "from", "to", "codecs"]
    assert lines[title + 2].split()[:4] == ["0", "to", "92", "93"]


def test_the_segments_of_the_walk_through_are_those_of_the_documents(tmp_path: Path) -> None:
    (partition,) = listed(a_root(tmp_path), "--long")
    assert [segment["base_offset"] for segment in partition["details"]] == [0, 93, 184]
    assert [segment["records"] for segment in partition["details"]] == [93, 91, 44]
    assert [segment["codecs"] for segment in partition["details"]] == [["none"]] * 3
    assert partition["details"][0]["files"] == {".log": "whole", ".index": "1 entry", ".timeindex": "2 entries"}


def test_the_smallest_time_of_a_segment_need_not_be_that_of_its_first_record(tmp_path: Path) -> None:
    from tidelog.log import LogConfig, UnifiedLog
    from tidelog.records import NewRecord

    with UnifiedLog.open(tmp_path / "late-0", LogConfig()) as log:
        for second in (9, 3, 7):
            log.append([NewRecord(None, b"v", 1_700_000_000_000 + 1000 * second)])
    (partition,) = listed(tmp_path, "--long")
    assert partition["details"][0]["smallest_timestamp_ms"] == 1_700_000_003_000
    assert partition["details"][0]["first_timestamp_ms"] == 1_700_000_009_000
    [row] = [line for line in ls(tmp_path, "-l").stdout.splitlines() if line.endswith("none")]
    assert row.split()[-3:] == ["2023-11-14T22:13:23Z", "2023-11-14T22:13:29Z", "none"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("size", [100, 300_000], ids=["small", "large"])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_smallest_time_need_not_be_that_of_the_first_record_of_a_batch(
    tmp_path: Path, codec: Codec, size: int, is_damaged: bool
) -> None:
    def times(*seconds: int) -> list[NewRecord]:
        value = random.Random(3).randbytes(size)
        return [NewRecord(None, value, 1_700_000_000_000 + 1000 * second) for second in seconds]

    log = write_log(tmp_path, [("put", codec, times(9, 8)), ("put", codec, times(5, 1, 7))], "late-0")
    if is_damaged:  # the first batch cannot be decoded, which keeps nobody from listing
        path = log / f"{0:020}.log"
        path.write_bytes(path.read_bytes()[:61] + bytes(9) + path.read_bytes()[70:])
    (partition,) = listed(tmp_path, "--long")
    assert partition["details"][0]["smallest_timestamp_ms"] == 1_700_000_001_000
    assert "2023-11-14T22:13:21Z" in ls(tmp_path, "-l").stdout


def test_the_high_watermark_is_shown_where_it_tells_something(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    (root / "replication-offset-checkpoint").write_text("0\n1\nlog-format 1 100\n")
    _, headings, row = ls(root).stdout.splitlines()
    assert "high watermark" in headings
    assert "segments" not in headings
    assert len(row) <= 80
    assert "100" in row.split()


def test_a_missing_index_is_told(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    (root / "log-format-1" / "00000000000000000093.index").unlink()
    (partition,) = listed(root, "--long")
    assert partition["details"][1]["files"][".index"] == "missing"


def test_a_partition_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    shutil.copytree(root / "log-format-1", root / "log-format-2")
    log = root / "log-format-1" / "00000000000000000093.log"
    log.write_bytes(log.read_bytes()[:-10])
    done = ls(root)
    assert done.exit_code == 3
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["log-format-1", "log-format-2"]
    assert "cannot be read" in done.stdout
    assert done.stderr.startswith(f"tidelog: {root}/log-format-1/00000000000000000093.log, ")
    assert len(done.stderr.splitlines()) == 1


def test_deleted_and_stray_directories_are_listed_as_such(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    shutil.copytree(root / "log-format-1", root / f"old-0.{'0' * 32}-delete")
    marks = {row["topic"]: row["mark"] for row in listed(root)}
    assert marks == {"log-format": None, "old": "delete"}


def test_what_spark_has_staged_is_no_partition(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    staged = root / f"log-format-1.{'0' * 32}-delete"
    staged.mkdir()
    assert [row["mark"] for row in listed(root)] == [None]  # a task makes it before it has a megabyte to write
    (staged / STAGED_FILE).write_bytes(b"batches")
    assert [row["mark"] for row in listed(root)] == [None]
    shutil.copy(root / "log-format-1" / f"{0:020}.log", staged)
    assert [row["mark"] for row in listed(root)] == [None, "delete"]


def test_a_root_in_which_there_is_only_something_staged_has_no_partitions(tmp_path: Path) -> None:
    (tmp_path / f"orders-0.{'0' * 32}-delete").mkdir()
    (tmp_path / f"orders-0.{'0' * 32}-delete" / STAGED_FILE).write_bytes(b"batches")
    done = ls(tmp_path)
    assert (done.exit_code, done.stdout) == (0, "no partitions\n")


def test_only_the_topics_that_were_asked_for(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    shutil.copytree(root / "log-format-1", root / "other-0")
    assert [row["topic"] for row in listed(root, "--topic", "other")] == ["other"]


def test_a_topic_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    done = ls(a_root(tmp_path), "--topic", "nothing")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert "nothing" in done.stderr


def test_an_empty_directory_and_a_missing_one_are_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for directory in (tmp_path / "empty", tmp_path / "missing"):
        done = ls(directory)
        assert done.exit_code == 2
        assert len(done.stderr.splitlines()) == 1
        assert str(directory) in done.stderr


def test_nothing_in_the_directory_changes(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}
    assert ls(root, "--long").exit_code == 0
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")} == before


def test_names_that_a_terminal_would_obey_are_spelt_out(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    (root / "log-format-1").rename(root / "log\x1b[31m-1")
    done = ls(root)
    assert "\x1b[31m" not in done.stdout
    assert "log\\x1b[31m-1" in done.stdout


def test_a_topic_that_is_not_there_is_told_before_anything_is_printed(tmp_path: Path) -> None:
    done = ls(a_root(tmp_path), "--json", "--topic", "log-format", "--topic", "none")
    assert (done.exit_code, done.stdout) == (2, "")


def test_an_unfinished_load_hides_its_bytes_and_times_with_its_records(tmp_path: Path) -> None:
    """Wherever a load is killed, ls shows what it showed before."""
    load_here(str(tmp_path / "before"))
    facts = ("partition", "log_end_offset", "segments", "bytes", "largest_timestamp_ms")
    of_segments = ("base_offset", "next_offset", "bytes", "records", "largest_timestamp_ms")

    def shown(root: Path) -> list[Any]:
        return [
            [row[name] for name in facts] + [[one[name] for name in of_segments] for one in row["details"]]
            for row in listed(root, "-l")
        ]

    before = shown(tmp_path / "before")
    calls = load_later(str(shutil.copytree(tmp_path / "before", tmp_path / "whole")))
    assert shown(tmp_path / "whole") != before
    hidden = 0
    for call in (*range(1, calls, 9), *range(calls - 8, calls)):
        root = Path(shutil.copytree(tmp_path / "before", tmp_path / f"killed-{call}"))
        kill_in(load_later, root, call)
        if (root / UNFINISHED_WRITE).exists():
            assert shown(root) == before, call
            told = ls(root).stderr
            assert "a load into orders is under way or was interrupted; its records are not shown" in told
            hidden += 1
    assert hidden > 3


def load_later(root: str, kill_at: int = 0) -> int:
    """Load more, with later times, into more segments."""
    disk = DeadlyDisk(kill_at)
    rows = [pa.RecordBatch.from_pydict({"value": [b"v" * 300] * 5, "partition": [0, 1, 2, 0, 1]})] * 4
    configs = {"segment.bytes": "1024"}
    load_table(rows, root, "orders", configs=configs, fs=disk, clock=ManualClock(NOW + 10**9), rng=random.Random(7))
    return kill_at - disk.calls_left
