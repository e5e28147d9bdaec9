"""`tidelog compact`: what it tells, what it changes, and when it refuses."""

import gc
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.golden.corpus import case
from tidelog.cli.main import cli
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLEAN_SHUTDOWN, CLEANER_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOCK_FILE

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
    return [json.loads(line) for line in done.stdout.splitlines()]


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
    assert "What compaction would win" in done.stdout
    assert "k-basic-0" in done.stdout
    assert "superseded" in done.stdout


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
    (_unclean, ("--topic", "k-basic"), 2, "was not closed in good order"),
    (_no_root, ("--topic", "k-basic"), 2, "is no log directory of a broker"),
    (shutil.rmtree, ("--topic", "k-basic"), 2, "is no directory"),
    (lambda root: None, ("--topic", "other"), 2, "has no partition of topic other"),
    (lambda root: None, ("--topic", "__cluster_metadata"), 2, "has no partition of topic __cluster_metadata"),
    (lambda root: None, ("--topic", "k-basic", "--set", "cleanup.policy=delete"), 2, "is not one that compacts"),
    (lambda root: None, ("--topic", "k-basic", "--set", "segment.bytes=many"), 2, "segment.bytes"),
    (lambda root: None, ("--topic", "k-basic", "--set", "segment.bytes"), 2, "is not NAME=VALUE"),
    (lambda root: None, ("--topic", "k-basic", "--set", "log.cleaner.speed=9"), 2, "log.cleaner.speed"),
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
    assert "locked" in done.stderr
    assert (root / LOCK_FILE).exists()


def test_damage_ends_it_without_the_marker_of_a_clean_stop(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic")
    path = root / "k-basic-0" / "00000000000000000015.log"
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    before = {name: content for name, content in files_in(root).items() if name.endswith(".log")}
    done = compact(root, "--topic", "k-basic", "--no-preview")
    assert done.exit_code == 3
    assert "00000000000000000015.log, position" in done.stderr
    assert not (root / CLEAN_SHUTDOWN).exists()  # the broker that starts next looks closely
    assert {name: content for name, content in files_in(root).items() if name.endswith(".log")} == before
