"""A small file of an absurd size is reported and not read. The files are sparse: they take no room on the disk."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelog.cli.main import cli
from tidelog.errors import StorageError
from tidelog.log import LogManager, TopicPartition
from tidelog.log.file_sizes import KINDS, check_size, kind_of
from tidelog.log.files import read_whole, write_atomically
from tidelog.log.local_files import LocalFileSystem
from tidelog.records import NewRecord
from tidelog.records.java import MAX_INT32

ABSURD = 1 << 43  # more than any machine has memory for, so that whoever reads it whole fails at once
NAMES = [
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "unfinished-write.run-tidelog-recover/journal",
    "orders-0/partition.metadata",
    "orders-0/leader-epoch-checkpoint",
    "orders-0/00000000000000000000.index",
    "orders-0/00000000000000000000.timeindex",
    "orders-0/00000000000000000000.txnindex",
    "orders-0/00000000000000000001.snapshot",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with LogManager.open(str(tmp_path / "root")) as manager:
        manager.get_or_create(TopicPartition("orders", 0)).append(NewRecord(b"k", b"v"))
    return tmp_path / "root"


def made_absurd(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.truncate(ABSURD)


@pytest.mark.parametrize("name", NAMES)
def test_no_command_reads_a_small_file_of_any_size(root: Path, tmp_path: Path, name: str) -> None:
    made_absurd(root / name)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"key": "a", "value": "b"}\n')
    commands = [
        ["ls", root],
        ["cat", root, "--topic", "orders"],
        ["fsck", root],
        ["fsck", "--repair", root],
        ["reindex", root],
        ["compact", root, "--topic", "orders", "--yes"],
        ["load", rows, "--to", root, "--topic", "orders"],
        ["dump-log", "--files", root / name],
    ]
    before = (root / "orders-0" / "00000000000000000000.log").read_bytes()
    for command in commands:
        done = CliRunner().invoke(cli, [str(part) for part in command])
        assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.exception)
    assert (root / "orders-0" / "00000000000000000000.log").read_bytes().startswith(before)


def test_no_command_reads_a_segment_that_is_larger_than_kafka_allows(root: Path) -> None:
    log = root / "orders-0" / "00000000000000000000.log"
    os.truncate(log, MAX_INT32 + 1)
    commands = [
        ["ls", root],
        ["cat", root, "--topic", "orders"],
        ["cat", root, "--topic", "orders", "--salvage"],
        ["export", root, "--topic", "orders", "--to", root.parent / "out.jsonl"],
        ["fsck", root],
        ["diff", root, root],
        ["reindex", root],
    ]
    for command in commands:
        done = CliRunner().invoke(cli, [str(part) for part in command])
        said = " ".join((done.stdout + done.stderr).split())
        assert f"{MAX_INT32 + 1} bytes" in said, command
        assert f"a segment has at most {MAX_INT32}" in said, command
        assert done.exit_code, command
    assert log.stat().st_size == MAX_INT32 + 1


@pytest.mark.parametrize("name", ["meta.properties", "log-start-offset-checkpoint", "orders-0/leader-epoch-checkpoint"])
def test_a_store_with_an_absurd_file_does_not_open_and_says_why(root: Path, name: str) -> None:
    made_absurd(root / name)
    with pytest.raises(StorageError, match=f"{ABSURD} bytes, and .* has at most [0-9]+: the file is damaged"):
        LogManager.open(str(root))


def test_fsck_reports_an_absurd_index(root: Path) -> None:
    made_absurd(root / "orders-0" / "00000000000000000000.index")
    done = CliRunner().invoke(cli, ["fsck", str(root)])
    assert (done.exit_code, "FILE-READ" in done.stdout) == (1, True)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.what)
def test_each_kind_is_read_up_to_its_largest_size_and_recognised_under_temporary_names(kind, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = str(tmp_path / f"x{kind.ends[0]}" if kind.ends[0].startswith((".", "-")) else tmp_path / kind.ends[0])
    assert kind_of(f"{path}.tmp") == kind_of(f"{path}.swap") == kind_of(path) == kind
    check_size(path, kind.largest)
    Path(path).touch()
    made_absurd(Path(path))
    with pytest.raises(StorageError, match=kind.what):
        read_whole(LocalFileSystem(), path)


def test_nothing_is_written_that_could_not_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    with pytest.raises(StorageError, match=r"partition\.metadata has at most 65536"):
        write_atomically(LocalFileSystem(), str(path), bytes(65537))
    assert not path.exists()
