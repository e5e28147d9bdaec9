"""Commands that write into a broker with several log directories take all of them."""

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import tidelog
from tests.golden.corpus import case
from tests.view.scans import some, write_log
from tidelog.cli.log_dirs import log_dirs
from tidelog.cli.main import cli
from tidelog.errors import InvalidRequestError
from tidelog.log import LogManager
from tidelog.records import Codec
from tidelog.tables.load import load_table
from tidelog.view.topic_configs import broker_log_dirs

METADATA = case("kafka-4.3/9-metadata") / "image"


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


def load(rows: Path, *words: object, topic: str = "orders") -> Result:
    return run("load", rows, "--topic", topic, *words)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"key": f"k{row}", "value": "v"}) + "\n" for row in range(200)))
    return path


@pytest.fixture
def dirs(tmp_path: Path, rows: Path) -> list[Path]:
    """Two log directories with the partitions 0 to 3 of a topic, placed by a load."""
    found = [tmp_path / "d1", tmp_path / "d2"]
    done = load(rows, "--to", found[0], "--to", found[1], "--partitions", "4")
    assert done.exit_code == 0, done.stderr
    return found


def partitions_in(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.is_dir()}


def records_in(dirs: list[Path], topic: str = "orders") -> int:
    return sum(len(list(part.read())) for part in tidelog.open([str(each) for each in dirs])[topic])


def test_new_partitions_go_to_the_directory_with_the_fewest_logs(dirs: list[Path], rows: Path) -> None:
    assert [len(partitions_in(each)) for each in dirs] == [2, 2]
    write_log(dirs[0], [("put", Codec.NONE, some(1))], "other-0")
    write_log(dirs[0], [("put", Codec.NONE, some(1))], "other-1")
    assert load(rows, "--to", f"{dirs[0]},{dirs[1]}", "--partitions", "2", topic="new").exit_code == 0
    assert [len(partitions_in(each)) for each in dirs] == [4, 4]


def test_rows_go_where_their_partitions_lie(dirs: list[Path], rows: Path, tmp_path: Path) -> None:
    before = [partitions_in(each) for each in dirs]
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nlog.dirs={dirs[1]}, \\\n  {dirs[0]}\n")
    done = load(rows, "--config", config)
    assert done.exit_code == 0, done.stderr
    assert [partitions_in(each) for each in dirs] == before
    assert records_in(dirs) == 400
    with LogManager.open([str(each) for each in dirs]) as manager:
        assert len(manager.logs_of_topic("orders")) == 4


def test_a_load_that_fails_leaves_all_directories_as_they_were(dirs: list[Path], tmp_path: Path) -> None:
    before = {path: path.read_bytes() for each in dirs for path in each.rglob("*") if path.is_file()}
    bad = tmp_path / "bad.jsonl"
    bad.write_text("".join(json.dumps({"value": "v", "partition": row % 4}) + "\n" for row in range(99)) + "{")
    assert load(bad, "--to", dirs[0], "--to", dirs[1]).exit_code == 2
    assert {path: path.read_bytes() for each in dirs for path in each.rglob("*") if path.is_file()} == before


def test_a_partition_that_lies_in_two_directories_is_rejected(dirs: list[Path], rows: Path) -> None:
    shutil.copytree(dirs[0] / "orders-0", dirs[1] / "orders-0", dirs_exist_ok=True)
    for words in (
        ("load", rows, "--topic", "other", "--to", dirs[0], "--to", dirs[1]),
        ("compact", *dirs, "--topic", "orders"),
        ("reindex", *dirs),
    ):
        done = run(*words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"orders-0 is in {dirs[0]} and in {dirs[1]}: Kafka does not start on them" in done.stderr


@pytest.fixture
def one_of_two(tmp_path: Path) -> Path:
    """A log directory of a broker that has registered another one, too, by the ids in its metadata log."""
    root = Path(shutil.copytree(METADATA, tmp_path / "kraft"))
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    [registered] = broker_log_dirs(tidelog.open(str(root))["__cluster_metadata", 0]).values()
    assert len(registered) == 1
    meta = root / "meta.properties"
    assert registered[0] in meta.read_text()
    meta.write_text(meta.read_text().replace(registered[0], "tlGoldenCorpus43xxxxxA"))
    return root


def test_a_directory_of_a_broker_that_has_more_gets_no_new_partition(one_of_two: Path, rows: Path) -> None:
    done = load(rows, "--to", one_of_two, topic="brand-new")
    assert done.exit_code == 2
    assert "broker 1 has 2 log directories by its metadata log, and 1 directory is named" in done.stderr
    assert "brand-new-0 may be in another one; name all of them" in done.stderr
    assert not (one_of_two / "brand-new-0").exists()


def test_a_directory_that_is_the_only_one_of_its_broker_gets_new_partitions(rows: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(METADATA, tmp_path / "kraft"))
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    done = load(rows, "--to", root, topic="brand-new")
    assert done.exit_code == 0, done.stderr


def say_owner(root: Path, directory_id: str, node: int = 1) -> None:
    (root / "meta.properties").write_text(
        f"version=1\nnode.id={node}\ncluster.id=tlGoldenCorpus43xxxxxA\ndirectory.id={directory_id}\n"
    )


LIST_ALL = "pass --config server.properties, whose log.dirs are all of them (load_table: are_all_dirs=True)"
IDS = ("OimrddjSTw20XAh5VnF0_A", "1tqYDSwdSPSJC3_YrWReVw")


def test_a_formatted_directory_without_the_metadata_log_gets_no_new_partition(
    dirs: list[Path], rows: Path, tmp_path: Path
) -> None:
    """The partitions that are missing in one of the directories are in the other one.

    Naming both does not show that there is no third one, so the advice is not to name all of them.
    """
    for root, directory_id in zip(dirs, IDS, strict=True):
        say_owner(root, directory_id)
    before = [partitions_in(each) for each in dirs]
    missing = sorted(before[0])[0]
    done = load(rows, "--to", dirs[1])
    assert done.exit_code == 2
    assert f"if the broker has other log directories, {LIST_ALL}; otherwise --partitions" in done.stderr
    assert "makes" not in done.stderr
    for words in (("--to", dirs[1]), ("--to", dirs[0], "--to", dirs[1], "--partitions", "5")):
        done = load(rows, *words, *(() if "--partitions" in words else ("--partitions", "4")))
        assert done.exit_code == 2
        number = missing if len(words) == 2 else "orders-4"
        assert f"{number} may be in another one; {LIST_ALL}\n" in done.stderr
    assert [partitions_in(each) for each in dirs] == before
    row = pa.RecordBatch.from_pydict({"value": [b"x"]})
    with pytest.raises(InvalidRequestError, match=r"may be in another one; .*load_table: are_all_dirs=True"):
        load_table([row], list(map(str, dirs)), "new")
    load_table([row], list(map(str, dirs)), "new", are_all_dirs=True)
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={dirs[0]},{dirs[1]}\n")
    done = load(rows, "--config", config, "--partitions", "5")
    assert done.exit_code == 0, done.stderr
    assert sum(len(partitions_in(each)) for each in dirs) == 6


def test_keys_are_not_hashed_over_the_partitions_that_one_of_several_directories_holds(
    dirs: list[Path], rows: Path
) -> None:
    for root in dirs:
        for path in root.glob("orders-*"):
            shutil.rmtree(path)
    assert load(rows, "--to", dirs[1], "--partitions", "2", topic="part").exit_code == 0
    say_owner(dirs[1], IDS[1])
    done = load(rows, "--to", dirs[1], topic="part")
    assert done.exit_code == 2
    assert "of part only partitions 0, 1 are here" in done.stderr
    done = load(rows, "--to", dirs[1], "--partitions", "2", topic="part")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("ids", "node", "words"),
    [
        ((IDS[0], IDS[0]), 1, "have the same directory.id: Kafka does not start on them"),
        (IDS, 2, "belongs to node 1 of cluster tlGoldenCorpus43xxxxxA, "),
    ],
)
def test_directories_that_are_not_those_of_one_broker_are_rejected(
    dirs: list[Path], rows: Path, ids: tuple[str, str], node: int, words: str
) -> None:
    say_owner(dirs[0], ids[0])
    say_owner(dirs[1], ids[1], node)
    done = load(rows, "--to", dirs[0], "--to", dirs[1])
    assert done.exit_code == 2
    assert words in done.stderr
    assert records_in(dirs) == 200


def test_compact_and_reindex_take_all_directories(dirs: list[Path]) -> None:
    done = run("reindex", *dirs, "--verify", "--json")
    assert done.exit_code == 0, done.stderr
    assert {json.loads(line)["partition"] for line in done.stdout.splitlines()} == {0, 1, 2, 3}
    done = run("compact", f"{dirs[0]},{dirs[1]}", "--topic", "orders", "--dry-run", "--json")
    assert done.exit_code == 0, done.stderr
    assert {json.loads(line)["partition"] for line in done.stdout.splitlines()} == {0, 1, 2, 3}
    write_log(dirs[1], [("put", Codec.NONE, some(1))], "other-0")
    done = run("reindex", *dirs, "--topic", "other", "--verify", "--json")
    assert [json.loads(line)["topic"] for line in done.stdout.splitlines()] == ["other"]
    assert "none of" in run("compact", *dirs, "--topic", "nothing").stderr


def test_the_metadata_log_may_lie_elsewhere(dirs: list[Path], tmp_path: Path) -> None:
    done = run("compact", *dirs)
    assert "or its directory with --metadata" in done.stderr
    for place in (METADATA, METADATA / "__cluster_metadata-0"):
        done = run("compact", *dirs, "--metadata", place)
        assert done.exit_code == 0, done.stderr  # it knows no topic of these
        assert run("reindex", *dirs, "--metadata", place, "--verify").exit_code == 0
    assert "there is no __cluster_metadata-0 in it" in run("compact", *dirs, "--metadata", tmp_path).stderr


def test_directories_are_named_once_and_somehow(tmp_path: Path, rows: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("node.id=1\n")
    assert "neither log.dirs nor log.dir" in load(rows, "--config", config).stderr
    assert "give --to DIR, or --config server.properties" in load(rows).stderr
    assert "both name log directories" in load(rows, "--to", tmp_path / "d", "--config", config).stderr
    os.symlink(tmp_path, tmp_path / "link")
    assert "are one directory" in load(rows, "--to", tmp_path, "--to", tmp_path / "link").stderr
    (tmp_path / "a,b").mkdir()
    assert log_dirs([str(tmp_path / "a,b")], None) == [str(tmp_path / "a,b")]
    assert log_dirs(["/a, /b"], None) == ["/a", "/b"]


@pytest.mark.parametrize("command", ["load", "compact"])
def test_a_directory_of_the_config_that_does_not_exist_is_rejected(
    dirs: list[Path], rows: Path, tmp_path: Path, command: str
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nlog.dirs={dirs[0]},{tmp_path / 'unmounted'}\n")
    words = [rows] if command == "load" else []
    done = run(command, *words, "--config", config, "--topic", "orders")
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert f"{tmp_path / 'unmounted'} is not a directory here; mount its disk" in done.stderr
    assert not (tmp_path / "unmounted").exists()
    assert records_in(dirs) == 200
