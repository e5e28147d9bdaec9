"""`tidelog compact`: what it tells, what it changes, and when it refuses."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tidelog
from tests.golden.corpus import case
from tests.tables.loads import load_here
from tidelog.cli import output
from tidelog.cli.main import cli
from tidelog.cli.output import json_line
from tidelog.errors import StorageError
from tidelog.log.compaction.cleaned_segment import CleanedSegment
from tidelog.log.compaction.record_filter import FilterCounts
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLEAN_SHUTDOWN, CLEANER_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOCK_FILE, TopicPartition
from tidelog.log.offline_compaction import Compacted
from tidelog.log.unified_log import UnifiedLog

command = import_module("tidelog.cli.compaction_run")

MARKER = '{"version":0,"brokerEpoch":14}'


def a_root(home: Path, *topics: str) -> Path:
    """A root as a broker left it: some compacted topics of the golden corpus, not compacted yet."""
    root = home / "data"
    root.mkdir()
    golden = case("kafka-4.3/5-compaction") / "1-before"
    for topic in topics:
        shutil.copytree(golden / f"{topic}-0", root / f"{topic}-0")
    for checkpoint in golden.glob("*-checkpoint"):
        shutil.copy(checkpoint, root / checkpoint.name)
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (root / CLEAN_SHUTDOWN).write_text(MARKER)
    return root


def files_in(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def compact(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["compact", str(root), *arguments])


def compacted(root: Path, *arguments: str) -> list[dict[str, Any]]:
    done = compact(root, *arguments, "--json")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [json_line(row) for row in rows] == done.stdout.splitlines()
    return rows


def test_a_dry_run_counts_and_changes_nothing(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic")
    before = files_in(root)
    (told,) = compacted(root, "--topic", "k-basic", "--dry-run")
    assert files_in(root) == before
    assert (told["keys"], told["records_read"], told["records_kept"], told["superseded"]) == (8, 28, 8, 20)
    assert told["bytes_after"] < told["bytes_before"]


def test_it_does_what_the_dry_run_promised(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic", "k-gzip", "k-txn")
    topics = ("--topic", "k-basic", "--topic", "k-txn")
    told = compacted(root, *topics)
    promised, done = told[:2], told[2:]
    for promise, deed in zip(promised, done, strict=True):
        assert {**promise, "dry_run": False} == deed
        (log,) = root.glob(f"{deed['topic']}-0")
        assert sum(path.stat().st_size for path in log.glob("*.log")) == deed["bytes_after"]
        assert not list(log.glob("*.deleted"))
    assert (root / CLEANER_CHECKPOINT).read_text() == "0\n2\nk-basic 0 28\nk-txn 0 37\n"


def test_it_leaves_other_topics_and_the_files_of_the_root_as_they_were(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic", "k-gzip")
    before = files_in(root)
    compacted(root, "--topic", "k-basic")
    after = files_in(root)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert {name for name in changed if not name.startswith("k-basic-0/")} == {CLEANER_CHECKPOINT}
    assert not (root / LOCK_FILE).exists()


def test_a_second_time_there_is_nothing_to_win(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic")
    compacted(root, "--topic", "k-basic")
    before = files_in(root)
    (told,) = compacted(root, "--topic", "k-basic", "--no-preview")
    assert told["nothing_because"] == "everything before the active segment is clean"
    assert files_in(root) == before


def test_what_has_only_an_active_segment_is_told_so(tmp_path: Path) -> None:
    load_here(str(tmp_path / "root"))
    for told in compacted(tmp_path / "root", "--topic", "orders"):
        assert told["nothing_because"] == "all of it is in the active segment, which is never compacted"


def test_a_map_that_is_too_small_takes_more_rounds(tmp_path: Path) -> None:
    whole, parts = a_root(tmp_path, "k-basic"), tmp_path / "parts"
    shutil.copytree(whole, parts)
    compacted(whole, "--topic", "k-basic", "--set", "log.cleaner.io.buffer.load.factor=0.9")
    told = compacted(parts, "--topic", "k-basic", "--set", "log.cleaner.io.buffer.load.factor=0.000001")
    assert (told[0]["is_partial"], told[0]["rounds"]) == (True, 1)
    assert told[1]["rounds"] > 1
    assert [path.name for path in parts.glob("k-basic-0/*.log")] == [p.name for p in whole.glob("k-basic-0/*.log")]


def test_people_are_shown_a_table(tmp_path: Path) -> None:
    done = compact(a_root(tmp_path, "k-basic"), "--topic", "k-basic", "--dry-run")
    assert done.exit_code == 0
    title, headings, row = done.stdout.splitlines()
    assert title == "What compaction would save"
    assert headings.split() == ["partition", "keys", "records", "kept", "dropped", "before", "after", "saved"]
    assert row.split()[:5] == ["k-basic-0", "8", "28", "8", "20"]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_gets_less_detail_and_whole_names(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_WIDE", width)
    counts = FilterCounts(records_read=12_345_678, records_kept=345_678, superseded=12_000_000)
    rows = [
        Compacted(TopicPartition("customers", n), 570_000_000, 57_000_000, 0, 9, 1, 345_678, counts) for n in (0, 11)
    ]
    title, *lines = command._table(rows, dry_run=True)
    assert max(map(len, lines)) <= width
    assert len({len(line) for line in lines if "customers" not in line or width > 40}) == 1
    text = "\n".join(lines)
    assert all(word in text for word in ("customers-11", "57 MB", "570 MB", "90%", "12M" if width < 80 else "12"))


def test_without_a_high_watermark_nothing_is_touched(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic")
    (root / HIGH_WATERMARK_CHECKPOINT).unlink()
    before = {name: data for name, data in files_in(root).items() if name.endswith(".log")}
    (told,) = compacted(root, "--topic", "k-basic", "--no-preview")
    assert "nothing is known to be replicated" in told["nothing_because"]
    assert {name: data for name, data in files_in(root).items() if name.endswith(".log")} == before


def test_an_open_transaction_holds_it_back(tmp_path: Path) -> None:
    (told,) = compacted(a_root(tmp_path, "k-txn-open"), "--topic", "k-txn-open", "--no-preview")
    assert told["end_offset"] == 22


def _unclean(root: Path) -> None:
    (root / CLEAN_SHUTDOWN).unlink()


def _no_root(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()


REFUSALS = [
    (_unclean, ("--topic", "k-basic"), 3, "was not closed in good order"),
    (_unclean, ("--topic", "k-basic"), 3, "run `tidelog recover"),
    (_no_root, ("--topic", "k-basic"), 2, "is no log directory of a broker: it has neither meta.properties nor"),
    (lambda root: None, ("--topic", "k-basik"), 2, "has no partition of topic k-basik; the nearest is k-basic"),
    (lambda root: None, ("--topic", "k-basic,k-txn"), 2, "to name several topics, repeat --topic"),
    (shutil.rmtree, ("--topic", "k-basic"), 2, "is no directory"),
    (lambda root: None, ("--topic", "other"), 2, "has no partition of topic other"),
    (lambda root: None, ("--topic", "__cluster_metadata"), 2, "has no partition of topic __cluster_metadata"),
    (lambda root: None, ("--topic", "k-basic", "--set", "cleanup.policy=delete"), 2, "is not one that compacts"),
    (lambda root: None, ("--topic", "k-basic", "--set", "segment.bytes=many"), 2, "segment.bytes"),
    (lambda root: None, ("--topic", "k-basic", "--set", "segment.bytes"), 2, "is not NAME=VALUE"),
    (lambda root: None, ("--topic", "k-basic", "--set", "log.cleaner.speed=9"), 2, "is no topic or cleaner config"),
    (lambda root: None, ("--topic", "k-basic", "--set", "producer.id.expiration.ms=0"), 2, "producer.id.expiration.ms"),
    (lambda root: None, (), 2, "--topic"),
]


@pytest.mark.parametrize(("spoil", "arguments", "code", "words"), REFUSALS)
def test_it_refuses_in_one_sentence_and_changes_nothing(
    spoil: Any, arguments: tuple[str, ...], code: int, words: str, tmp_path: Path
) -> None:
    root = a_root(tmp_path, "k-basic")
    spoil(root)
    before = files_in(root)
    done = compact(root, *arguments)
    assert (done.exit_code, words in done.stderr) == (code, True), done.output
    assert files_in(root) == before


def test_the_last_batch_of_a_producer_stays_as_long_as_the_broker_knows_it(tmp_path: Path) -> None:
    known, forgotten = a_root(tmp_path, "k-idem"), tmp_path / "forgotten"
    shutil.copytree(known, forgotten)
    century = "--set=producer.id.expiration.ms=2147483647"
    kept = [
        compacted(root, "--topic", "k-idem", "--no-preview", expiration)[0]["bytes_after"]
        for root, expiration in ((known, century), (forgotten, "--set=producer.id.expiration.ms=1"))
    ]
    assert kept[0] > kept[1]


def test_a_dry_run_holds_no_more_files_open_than_the_work(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic")
    gc.collect()  # what other tests have left open
    before = len(os.listdir("/proc/self/fd"))
    compacted(root, "--topic", "k-basic", "--dry-run")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_root_that_is_in_use_is_refused(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic")
    lock = LocalFileSystem().lock(str(root / LOCK_FILE))
    try:
        done = compact(root, "--topic", "k-basic")
    finally:
        lock.release()
    assert done.exit_code == 3
    assert f"a broker or another tidelog has {root} open: stop it first" in done.stderr
    assert (root / LOCK_FILE).exists()


def spoil(root: Path, name: str = "k-basic-0/00000000000000000015.log") -> None:
    data = bytearray((root / name).read_bytes())
    data[100] ^= 1
    (root / name).write_bytes(data)


@pytest.mark.parametrize("preview", [(), ("--no-preview",)])
def test_a_damaged_partition_is_told_and_the_others_are_done(preview: tuple[str, ...], tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic", "k-txn")
    spoil(root)
    before = files_in(root)
    done = compact(root, "--topic", "k-basic", "--topic", "k-txn", "--json", *preview)
    assert done.exit_code == 3
    bad, good = [json.loads(line) for line in done.stdout.splitlines()][-2:]
    assert "00000000000000000015.log, position" in bad["error"]
    assert (good["error"], good["end_offset"], good["dry_run"]) == (None, 37, False)
    assert "not compacted, or not to the end: k-basic-0" in done.stderr
    after = files_in(root)
    assert after[CLEAN_SHUTDOWN] == MARKER.encode()  # every log was closed in good order
    assert {n: d for n, d in after.items() if n.startswith("k-basic-0") and n.endswith(".log")} == {
        n: d for n, d in before.items() if n.startswith("k-basic-0") and n.endswith(".log")
    }


def test_a_partition_that_is_no_directory_is_told_too(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic")
    (root / "k-basic-1").write_text("")
    done = compact(root, "--topic", "k-basic", "--no-preview")
    assert done.exit_code == 3
    assert "k-basic-1: error:" in done.stdout
    assert (root / CLEAN_SHUTDOWN).exists()


def test_a_log_that_cannot_be_closed_leaves_the_root_without_its_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(log: UnifiedLog) -> None:
        raise StorageError("the disk is full")

    root = a_root(tmp_path, "k-basic")
    monkeypatch.setattr(UnifiedLog, "close", refuse)
    done = compact(root, "--topic", "k-basic", "--no-preview")
    assert done.exit_code == 3
    assert "has no mark of a clean stop any more (k-basic-0 could not be closed in good order)" in done.stderr
    assert not (root / CLEAN_SHUTDOWN).exists()
    assert not (root / LOCK_FILE).exists()


def test_an_interruption_is_told_and_leaves_the_root_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = a_root(tmp_path, "k-basic", "k-gzip", "k-txn")
    before = files_in(root)

    def press_ctrl_c(segment: CleanedSegment, data: memoryview, *, fast: bool) -> None:
        append(segment, data, fast=fast)
        if list(root.glob("k-gzip-0/*.cleaned")):
            signal.raise_signal(signal.SIGINT)

    append = CleanedSegment.append
    monkeypatch.setattr(CleanedSegment, "append", press_ctrl_c)
    done = compact(root, "--topic", "k-basic", "--topic", "k-gzip", "--topic", "k-txn", "--no-preview", "--json")
    assert done.exit_code == 130
    assert [json.loads(line)["topic"] for line in done.stdout.splitlines()] == ["k-basic"]
    assert "interrupted: compacted k-basic-0; not, or not to the end: k-gzip-0, k-txn-0" in done.stderr
    after = files_in(root)
    assert after[CLEAN_SHUTDOWN] == MARKER.encode()
    assert {n: d for n, d in after.items() if n.endswith(".log") and "k-basic" not in n} == {
        n: d for n, d in before.items() if n.endswith(".log") and "k-basic" not in n
    }
    assert not [name for name in after if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_records_without_a_key_are_not_dropped_unasked(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-nullkey", "k-basic")
    before = files_in(root)
    topics = ("--topic", "k-nullkey", "--topic", "k-basic")
    done = compact(root, *topics)
    assert done.exit_code == 3
    assert "no key and would go: is this topic really compacted?" in done.stdout
    assert "k-nullkey-0: error: " in done.stdout
    after = files_in(root)
    assert {n: d for n, d in after.items() if "nullkey" in n} == {n: d for n, d in before.items() if "nullkey" in n}
    assert "k-basic 0" in (root / CLEANER_CHECKPOINT).read_text()
    told = compacted(root, *topics, "--drop-without-key")
    assert (told[2]["topic"], told[2]["without_key"] > 0, told[2]["error"]) == ("k-nullkey", True, None)


@pytest.mark.parametrize(("answer", "code", "is_done"), [("y\n", 0, True), ("n\n", 1, False), ("", 1, False)])
def test_on_a_terminal_it_asks_first(
    answer: str, code: int, is_done: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(SimpleNamespace):
        def isatty(self) -> bool:
            return True

    root = a_root(tmp_path, "k-basic")
    terminal = SimpleNamespace(stdin=Terminal(), stderr=Terminal(), stdout=sys.stdout)
    monkeypatch.setattr(command, "sys", terminal)
    done = CliRunner().invoke(cli, ["compact", str(root), "--topic", "k-basic"], input=answer)
    assert (done.exit_code, (root / CLEANER_CHECKPOINT).exists()) == (code, is_done), done.output
    assert "Go on? [y/N]" in done.stderr
    assert ("nothing was changed" in done.stderr) is not is_done


def test_tombstones_go_at_once_if_they_need_not_wait(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-tomb-zero")
    waits = tmp_path / "waits"
    shutil.copytree(root, waits)
    _, stays = compacted(waits, "--topic", "k-tomb-zero")
    assert stays["tombstones_kept"] > 0
    _, goes = compacted(root, "--topic", "k-tomb-zero", "--set", " delete.retention.ms = 0 ")
    assert (goes["tombstones_kept"], goes["tombstones_dropped"]) == (0, stays["tombstones_kept"])
    assert goes["records_kept"] == stays["records_kept"] - stays["tombstones_kept"]
    assert goes["bytes_after"] == sum(path.stat().st_size for path in root.glob("k-tomb-zero-0/*.log"))


def test_a_reader_who_leaves_does_not_stop_the_work(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic")
    reading, writing = os.pipe()
    os.close(reading)
    arguments = [sys.executable, "-m", "tidelog", "compact", str(root), "--topic", "k-basic"]
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (root / CLEANER_CHECKPOINT).exists()
    assert (root / CLEAN_SHUTDOWN).exists()


def test_a_topic_named_twice_is_done_once(tmp_path: Path) -> None:
    assert len(compacted(a_root(tmp_path, "k-basic"), "--topic", "k-basic", "--topic", "k-basic", "--dry-run")) == 1


def test_where_nothing_is_to_be_done_one_table_is_enough(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic")
    compacted(root, "--topic", "k-basic")
    done = compact(root, "--topic", "k-basic")
    assert (done.exit_code, done.stdout.count("partition ")) == (0, 1)
    assert "k-basic-0: nothing to do: everything before the active segment is clean" in done.stdout


def test_what_is_too_young_is_told_by_the_config_that_says_so(tmp_path: Path) -> None:
    lag = f"min.compaction.lag.ms={2**62}"
    (told,) = compacted(a_root(tmp_path, "k-basic"), "--topic", "k-basic", "--set", lag)
    assert told["nothing_because"] == f"what is not clean is younger than {lag}"


def test_a_partition_is_not_a_root(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic")
    done = compact(root / "k-basic-0", "--topic", "k-basic")
    assert done.exit_code == 2
    assert f"this is the partition k-basic-0: name its parent {root}" in done.stderr


def a_root_with_a_metadata_log(home: Path) -> Path:
    root = Path(shutil.copytree(case("kafka-4.3/9-metadata") / "image", home / "data"))
    (root / CLEAN_SHUTDOWN).write_text(MARKER)
    return root


def test_without_a_topic_the_metadata_log_says_which_are_compacted(tmp_path: Path) -> None:
    told = compacted(a_root_with_a_metadata_log(tmp_path), "--dry-run")
    assert {row["topic"] for row in told} == {"views"}


def test_a_topic_that_is_not_compacted_by_the_metadata_log_is_refused(tmp_path: Path) -> None:
    root = a_root_with_a_metadata_log(tmp_path)
    done = compact(root, "--topic", "orders", "--dry-run")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "orders is not compacted" in done.stderr
    assert compact(root, "--topic", "orders", "--dry-run", "--set", "cleanup.policy=compact").exit_code == 0


def test_without_a_topic_and_without_a_metadata_log_somebody_has_to_name_one(tmp_path: Path) -> None:
    done = compact(a_root(tmp_path, "k-basic"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--topic" in done.stderr


@pytest.mark.parametrize("way", [(), ("--no-preview",), ("--set", "delete.retention.ms=0")])
def test_records_of_aborted_transactions_are_counted_and_markers_are_not(tmp_path: Path, way: tuple[str, ...]) -> None:
    root = Path(shutil.copytree(case("kafka-4.3/4-transactions") / "image", tmp_path / "data"))
    before = len(list(tidelog.open(root)["txn-main", 0].read()))
    *_, told = compacted(root, "--topic", "txn-main", *way)
    after = len(list(tidelog.open(root)["txn-main", 0].read()))
    assert told["records_read"] - told["records_kept"] == before - after == 57
    assert (told["records_read"], told["aborted"], told["superseded"]) == (105, 57, 0)


def test_the_table_says_how_many_records_of_aborted_transactions_go(tmp_path: Path) -> None:
    root = Path(shutil.copytree(case("kafka-4.3/4-transactions") / "image", tmp_path / "data"))
    done = compact(root, "--topic", "txn-main", "--yes")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("txn-main-0: 57 records of aborted transactions would go") == 1
    assert done.stdout.count("txn-main-0: 57 records of aborted transactions went") == 1
