"""`tidelog reindex`: what it tells, what it changes, and how it ends."""

import json
import textwrap
from pathlib import Path

from click.testing import CliRunner, Result

from tests.fsck.test_reindex import a_root, beside_the_logs, files_in, remove_files_beside_the_logs
from tidelog.cli.main import cli
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import LOCK_FILE

PAGE = Path(__file__).parents[2] / "docs" / "reindex.md"

# Producers of the test's log wrote years ago: they must not be forgotten for that.
SETTINGS = (
    "--set", "index.interval.bytes=100", "--set", "segment.index.bytes=4096",
    "--set", "producer.id.expiration.ms=2147483647",
)  # fmt: skip
WITHOUT_SNAPSHOTS = (*SETTINGS, "--only", "index", "--only", "timeindex", "--only", "txnindex")


def reindex(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["reindex", str(root), *arguments])


def test_a_dry_run_names_what_would_change_and_changes_nothing(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    index = sorted((root / "orders-0").glob("*.index"))[1]
    index.unlink()
    before = files_in(root)
    done = reindex(root, *WITHOUT_SNAPSHOTS, "--dry-run")
    assert done.exit_code == 0, done.output
    assert f"orders-0/{index.name}  missing" in done.stdout
    assert files_in(root) == before


def test_verify_ends_with_1_where_something_would_change(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    assert reindex(root, *WITHOUT_SNAPSHOTS, "--verify").exit_code == 0
    sorted((root / "orders-0").glob("*.timeindex"))[0].write_bytes(bytes(12))
    before = files_in(root)
    assert reindex(root, *WITHOUT_SNAPSHOTS, "--verify").exit_code == 1
    assert files_in(root) == before


def test_files_are_rebuilt_and_the_root_is_left_as_it_was(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    before = {name: data for name, data in files_in(root).items() if not name.endswith(".snapshot")}
    remove_files_beside_the_logs(root)
    done = reindex(root, *WITHOUT_SNAPSHOTS, "--topic", "orders")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[1].split() == ["partition", "log", "equal", "stale", "missing", "extra"]
    assert files_in(root) == before


def test_the_page_about_it_shows_what_is_printed(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    first, second, *_ = sorted((root / "orders-0").glob("*.index"))
    first.write_bytes(first.read_bytes()[:8])
    second.with_suffix(".timeindex").unlink()
    (root / "orders-0" / "00000000000000000099.txnindex").write_bytes(bytes(34))
    shown = reindex(root, *WITHOUT_SNAPSHOTS, "--dry-run").stdout
    assert textwrap.indent(shown, "    ") in PAGE.read_text(encoding="utf-8")


def test_programs_get_an_object_per_partition(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    remove_files_beside_the_logs(root)
    done = reindex(root, *SETTINGS, "--json")
    (told,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (told["topic"], told["partition"], told["dry_run"], told["error"]) == ("orders", 0, False, None)
    assert {file["state"] for file in told["files"]} == {"missing"}
    assert {f"orders-0/{file['name']}" for file in told["files"]} == set(beside_the_logs(root))


def test_a_torn_log_ends_with_3_and_the_others_are_rebuilt(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    torn = root / "torn-0"
    torn.mkdir()
    (torn / "00000000000000000000.log").write_bytes(bytes(100))
    remove_files_beside_the_logs(root)
    done = reindex(root, *SETTINGS)
    assert done.exit_code == 3
    assert "run tidelog fsck --repair" in done.stdout
    assert "tidelog: left as they are: torn-0" in done.stderr
    assert [name for name in beside_the_logs(root) if name.startswith("orders-0/")]
    assert [path.name for path in torn.iterdir()] == ["00000000000000000000.log"]


def test_a_root_in_use_ends_with_3_and_wrong_words_with_2(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    lock = LocalFileSystem().lock(str(root / LOCK_FILE))
    assert reindex(root).exit_code == 3
    lock.release()
    wrong = [("--set", "index.interval.bytes"), ("--set", "no.config=1"), ("--topic", "order"), ("--only", "log")]
    for arguments in wrong:
        done = reindex(root, *arguments)
        assert done.exit_code == 2, done.output
    assert "the nearest is orders" in reindex(root, "--topic", "order").stderr


def test_the_interval_is_that_of_the_sound_indexes_and_it_is_named(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    limits = ("--set", "segment.index.bytes=4096", "--only", "index", "--only", "timeindex", "--only", "txnindex")
    before = files_in(root)
    assert any(len(data) > 8 for name, data in before.items() if name.endswith(".index"))
    done = reindex(root, *limits)
    assert done.exit_code == 0, done.output
    assert files_in(root) == before
    (line,) = [line for line in done.stdout.splitlines() if "index.interval.bytes" in line]
    assert line.startswith("orders-0: index.interval.bytes=1")
    assert line.endswith(", as the sound indexes of the log show")
    told = json.loads(reindex(root, *limits, "--json").stdout)
    assert told["index_interval_source"] == "as the sound indexes of the log show"
    for path in (root / "orders-0").glob("*.index"):
        path.unlink()
    assert "orders-0: index.interval.bytes=4096, Kafka's default\n" in reindex(root, *limits, "--dry-run").stdout
    assert "index.interval.bytes=" not in reindex(root, *WITHOUT_SNAPSHOTS, "--dry-run").stdout


def test_what_is_left_alone_is_told(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    first, second, *_ = sorted((root / "orders-0").glob("*.index"))
    first.write_bytes(first.read_bytes()[:8])
    second.unlink()
    trial = reindex(root, *WITHOUT_SNAPSHOTS, "--dry-run").stdout.splitlines()[-1]
    assert trial.startswith("2 files would be rebuilt; left alone: ")
    assert "--missing leaves stale files alone that are sound" in trial
    done = reindex(root, *WITHOUT_SNAPSHOTS, "--missing")
    assert done.stdout.splitlines()[1].split() == ["partition", "log", "equal", "stale", "missing", "extra", "sound"]
    last = done.stdout.splitlines()[-1]
    assert last.startswith("1 file rebuilt; left alone: ")
    assert last.endswith(", 1 with other bytes and nothing wrong")
    assert (len(first.read_bytes()), second.exists()) == (8, True)
