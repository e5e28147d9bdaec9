"""The broker's user plants a link in a log directory, and root runs a command on it: no file elsewhere is touched."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidelog.cli.main import cli
from tidelog.log import LogConfig, LogManager, TopicPartition
from tidelog.records import NewRecord

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it plays the broker's user and root")

BROKER = 1000
SECRET = b"root:x:0:0:root:/root:/bin/bash\n"
LOAD = ("load", "ROWS", "--to", "ROOT", "--topic", "t")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    with LogManager.open(str(tmp_path / "root"), LogConfig(segment_bytes=2_000)) as manager:
        log = manager.get_or_create(TopicPartition("t", 0))
        for number in range(100):
            log.append(NewRecord(b"k%d" % (number % 5), b"v" * 20))
    for path in (tmp_path / "root", *(tmp_path / "root").rglob("*")):
        os.chown(path, BROKER, BROKER)
    (tmp_path / "victim").write_bytes(SECRET)
    (tmp_path / "victim").chmod(0o600)
    (tmp_path / "rows.jsonl").write_text('{"key": "a", "value": "b"}\n')
    return tmp_path


def plant(base: Path, name: str) -> None:
    link = base / "root" / name
    link.unlink(missing_ok=True)
    link.symlink_to(base / "victim")
    os.lchown(link, BROKER, BROKER)


def run(base: Path, *words: str) -> Result:
    places = {"ROOT": str(base / "root"), "ROWS": str(base / "rows.jsonl")}
    return CliRunner().invoke(cli, [places.get(word, word) for word in words])


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("cleaner-offset-checkpoint.tmp", ("compact", "ROOT", "--topic", "t", "--yes")),
        ("recovery-point-offset-checkpoint.tmp", LOAD),
        ("t-0/partition.metadata.tmp", (*LOAD, "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ")),
        ("t-0/00000000000000000000.index", ("fsck", "--repair", "ROOT")),
        ("t-0/00000000000000000025.snapshot", ("fsck", "--repair", "ROOT")),
        ("t-0/00000000000000000000.log", ("fsck", "--repair", "ROOT")),
        ("recovery-point-offset-checkpoint", ("fsck", "--repair", "ROOT")),
        ("recovery-point-offset-checkpoint.tmp", ("fsck", "--repair", "ROOT")),
        ("t-0/00000000000000000000.index", ("reindex", "ROOT")),
        ("t-0/00000000000000000000.timeindex", ("reindex", "ROOT")),
        ("t-0/00000000000000000084.log", LOAD),
        ("t-0/00000000000000000084.index", LOAD),
        (".lock", LOAD),
    ],
)
def test_root_overwrites_and_copies_nothing_that_a_link_points_to(
    base: Path, name: str, command: tuple[str, ...]
) -> None:
    plant(base, name)
    done = run(base, *command)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    found = (base / "victim").stat()
    assert ((base / "victim").read_bytes(), found.st_uid, found.st_mode & 0o777) == (SECRET, 0, 0o600)
    copies = [
        path
        for path in base.rglob("*")
        if path.is_file() and not path.is_symlink() and path != base / "victim" and SECRET in path.read_bytes()
    ]
    assert copies == []


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint", "cleaner-offset-checkpoint", "meta.properties", "t-0/partition.metadata",
        "t-0/leader-epoch-checkpoint", "t-0/00000000000000000025.snapshot",
    ],
)  # fmt: skip
@pytest.mark.parametrize("options", [(), ("--json",), ("--would-start",), ("--deep",), ("--repair", "--dry-run")])
def test_root_prints_nothing_that_a_link_points_to(base: Path, name: str, options: tuple[str, ...]) -> None:
    plant(base, name)
    done = run(base, "fsck", "ROOT", *options)
    assert "x:0:0" not in done.output
    if options != ("--would-start",):
        assert "symbolic link" in done.output, done.output


def test_a_load_onto_a_linked_segment_is_refused_before_anything_changes(base: Path) -> None:
    plant(base, "t-0/00000000000000000084.log")
    before = {path: path.lstat().st_mtime_ns for path in (base / "root").rglob("*")}
    done = run(base, *LOAD)
    assert done.exit_code == 3
    assert "00000000000000000084.log: a symbolic link, and nothing is written through links: replace it" in done.stderr
    assert {path: path.lstat().st_mtime_ns for path in (base / "root").rglob("*")} == before


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (".kafka_cleanshutdown", LOAD),
        (".kafka_cleanshutdown", ("compact", "ROOT", "--topic", "t", "--yes")),
        ("log-start-offset-checkpoint", ("load", "ROWS", "--to", "ROOT", "--topic", "n")),
        ("log-start-offset-checkpoint", ("fsck", "--repair", "ROOT")),
        ("t-0/leader-epoch-checkpoint", ("fsck", "--repair", "ROOT")),
        ("t-0/leader-epoch-checkpoint", ("reindex", "ROOT")),
        ("t-0/leader-epoch-checkpoint", ("recover", "ROOT")),
        ("t-0/partition.metadata", ("fsck", "ROOT")),
        ("t-0/00000000000000000084.log", ("fsck", "--repair", "ROOT")),
        ("t-0/00000000000000000084.snapshot", ("fsck", "--repair", "ROOT")),
        ("t-0/00000000000000000000.log.cleaned", ("fsck", "--repair", "ROOT")),
    ],
)
def test_root_copies_and_prints_nothing_of_a_file_that_has_a_hard_link_in_the_directory(
    base: Path, name: str, command: tuple[str, ...]
) -> None:
    """The broker's user can make one to any file of the disk, unless the kernel forbids it (protected_hardlinks)."""
    link = base / "root" / name
    link.unlink(missing_ok=True)
    os.link(base / "victim", link)
    done = run(base, *command)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "x:0:0" not in done.output
    victim = (base / "victim").stat()
    assert ((base / "victim").read_bytes(), victim.st_uid, victim.st_mode & 0o777) == (SECRET, 0, 0o600)
    for path in base.rglob("*"):
        if path.is_file() and not path.samefile(base / "victim"):
            assert SECRET not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("o.jsonl", ("export", "ROOT", "--topic", "t", "--to", "OWN/o.jsonl")),
        ("o.jsonl", ("export", "ROOT", "--topic", "t", "--to", "OWN/o.jsonl", "--force")),
        ("o.jsonl", ("cat", "ROOT", "--topic", "t", "--out", "OWN/o.jsonl", "--force")),
        ("x", ("export", "ROOT", "--topic", "t", "--to", "OWN/x/", "--format", "csv")),
        ("x", ("export", "ROOT", "--topic", "t", "--to", "OWN/x/new/", "--format", "csv")),
        ("x", ("cat", "ROOT", "--topic", "t", "--out", "OWN/x/o.csv")),
    ],
)
def test_root_exports_through_no_link_of_another_user(base: Path, name: str, command: tuple[str, ...]) -> None:
    (base / "elsewhere").mkdir()
    (base / "own").mkdir()
    link = base / "own" / name
    link.symlink_to(base / "elsewhere" if name == "x" else base / "victim")
    os.lchown(link, BROKER, BROKER)
    done = run(base, *(word.replace("OWN", str(base / "own")) for word in command))
    assert done.exit_code == 3, done.output
    assert "is a symbolic link that uid 1000 made, and root does not follow it" in done.stderr
    assert (base / "victim").read_bytes() == SECRET
    assert list((base / "elsewhere").iterdir()) == []
    assert [path.name for path in (base / "own").iterdir()] == [name]


@pytest.mark.parametrize("name", ["x", "x/new", "x/new/newer", "x/"])
@pytest.mark.parametrize("is_there", [True, False])
def test_root_keeps_no_quarantine_behind_a_link_of_another_user(base: Path, name: str, is_there: bool) -> None:
    if is_there:
        (base / "elsewhere").mkdir()
    (base / "own").mkdir()
    (base / "own" / "x").symlink_to(base / "elsewhere")
    os.lchown(base / "own" / "x", BROKER, BROKER)
    log = max((base / "root" / "t-0").glob("*.log"))
    log.write_bytes(log.read_bytes() + b"torn")
    before = log.read_bytes()
    done = run(base, "fsck", "--repair", "ROOT", "--quarantine", f"{base}/own/{name}")
    assert done.exit_code == 3, done.output
    assert "is a symbolic link that uid 1000 made, and root does not follow it" in done.stderr
    assert list((base / "elsewhere").rglob("*")) == []
    assert log.read_bytes() == before


def test_root_keeps_a_quarantine_behind_its_own_link(base: Path) -> None:
    (base / "elsewhere").mkdir()
    (base / "x").symlink_to(base / "elsewhere")
    log = max((base / "root" / "t-0").glob("*.log"))
    log.write_bytes(log.read_bytes() + b"torn")
    done = run(base, "fsck", "--repair", "ROOT", "--quarantine", f"{base}/x")
    assert done.exit_code == 0, done.output
    assert len(list((base / "elsewhere").glob("*/manifest.jsonl"))) == 1
