"""`tidelog.open`: what a path may be, and one clear sentence for what it may not be."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tidelog
from tests.golden.corpus import case
from tests.log.logs import a_log, lead
from tidelog.errors import InvalidRequestError, StorageError
from tidelog.log import TopicPartition
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.root import RootView

MARKED = "." + "ab" * 16


class NotListed(LocalFileSystem):
    """A disk with a directory that may not be listed."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = directory

    def list(self, directory: str) -> list[str]:
        if directory == self._directory:
            raise StorageError(f"{directory}: Permission denied")
        return super().list(directory)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with three partitions, one of which is deleted and one stray, and what else may lie there."""
    for name in ("orders-0", "orders-1", "eu-orders-0", f"gone-0{MARKED}-delete", f"lost-0{MARKED}-stray"):
        with a_log(tmp_path / "kafka-logs", name=name.partition(".")[0]) as log:
            lead(log, 3)
        os.rename(tmp_path / "kafka-logs" / name.partition(".")[0], tmp_path / "kafka-logs" / name)
    (tmp_path / "kafka-logs" / "lost+found").mkdir()
    (tmp_path / "kafka-logs" / "meta.properties").write_text("version=1\n")
    (tmp_path / "kafka-logs" / "a-file-9").write_text("no directory")
    return tmp_path / "kafka-logs"


def test_a_root_shows_its_partitions_in_order_and_the_marked_ones_apart(root: Path) -> None:
    logs = tidelog.open(root)
    assert logs.partitions == (("eu-orders", 0), ("orders", 0), ("orders", 1))
    assert logs.topics == ("eu-orders", "orders")
    assert len(logs) == 3
    assert [view.topic_partition for view in logs] == list(logs.partitions)
    (of_root,) = logs.roots
    assert [(marked.topic_partition, marked.mark) for marked in of_root.marked] == [
        (TopicPartition("gone", 0), "delete"),
        (TopicPartition("lost", 0), "stray"),
    ]


def test_a_staged_piece_is_not_among_the_directories_and_what_cannot_be_listed_is(root: Path) -> None:
    for name in ("orders-0", "orders-2"):
        (root / f"{name}{MARKED}-delete").mkdir()
        (root / f"{name}{MARKED}-delete" / "staged.batches").write_bytes(b"batches")
    disk = NotListed(f"{root}/orders-2{MARKED}-delete")
    marked = [directory.name for directory in RootView(ReadOnlyFiles(disk), str(root)).marked]
    assert marked == [f"gone-0{MARKED}-delete", f"lost-0{MARKED}-stray", f"orders-2{MARKED}-delete"]


@pytest.mark.parametrize("name", ["orders-1", f"gone-0{MARKED}-delete", f"lost-0{MARKED}-stray"])
def test_a_partition_directory_is_opened_by_its_path_whatever_its_mark(root: Path, name: str) -> None:
    (view,) = tidelog.open(root / name)
    assert str(view.topic_partition) == name.partition(".")[0]
    assert [record.offset for record in view.read()] == [0, 1, 2]


def test_patterns_lists_and_home_directories_are_taken(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tidelog.open(f"{root}/orders-*").partitions == (("orders", 0), ("orders", 1))
    assert tidelog.open(f"{root.parent}/kafka-*").topics == ("eu-orders", "orders")
    assert tidelog.open([root / "orders-0", str(root / "eu-orders-0")]).topics == ("eu-orders", "orders")
    assert len(tidelog.open([root, root, root / "orders-0"]).copies("orders", 0)) == 1
    monkeypatch.setenv("HOME", str(root.parent))
    assert tidelog.open("~/kafka-logs").topics == ("eu-orders", "orders")
    assert tidelog.open(f"file://{root}").topics == ("eu-orders", "orders")
    monkeypatch.chdir(root)
    assert tidelog.open("orders-0").topics == ("orders",)


def test_a_file_address_is_unquoted(root: Path) -> None:
    os.rename(root, root.parent / "a b%")
    address = f"file://{root.parent}/a%20b%25"
    assert tidelog.open(address).topics == ("eu-orders", "orders")
    assert tidelog.open(address.replace("file://", "file://localhost")).topics == ("eu-orders", "orders")
    for wrong in ("file://data/kafka", "file://kafka"):
        with pytest.raises(InvalidRequestError, match="three slashes"):
            tidelog.open(wrong)


def test_a_root_that_is_named_like_a_partition_is_a_root(root: Path) -> None:
    os.rename(root, root.parent / "kafka-logs-0")
    assert tidelog.open(root.parent / "kafka-logs-0").topics == ("eu-orders", "orders")


def test_what_a_partition_cannot_be_found_for_is_said_with_what_is_there(root: Path) -> None:
    logs = tidelog.open(root)
    with pytest.raises(InvalidRequestError, match=r"no topic 'order' in .*kafka-logs; do you mean 'orders'\?"):
        logs["order"]
    with pytest.raises(InvalidRequestError, match="orders has no partition 7 in .*; it has 0, 1"):
        logs["orders", 7]
    assert ("orders", 1) in logs
    assert ("orders", 7) not in logs


def test_each_wrong_path_is_answered_by_one_sentence(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "readme.txt").write_text("hello")
    shutil.copytree(root / "orders-0", tmp_path / "copy")
    for path, message in {
        "missing": "missing does not exist",
        "missing/*": "no directory matches",
        "empty": "empty is empty: name a log directory of a broker, or a partition in it",
        "other": "other holds neither partitions nor segments: name a log directory of a broker",
        "kafka-logs/orders-0/00000000000000000000.log": "is a file: name the directory .*orders-0 that it lies in",
        "copy": "copy holds segments, but is not named after a topic and a partition, as in orders-0: rename the copy",
    }.items():
        with pytest.raises(InvalidRequestError, match=message) as raised:
            tidelog.open(tmp_path / path)
        assert "\n" not in str(raised.value)
    with pytest.raises(InvalidRequestError, match="no directory is named"):
        tidelog.open([])
    with pytest.raises(InvalidRequestError, match="storage options are for addresses"):
        tidelog.open(root, storage_options={"region": "eu"})


def test_a_root_without_partitions_is_an_empty_view(root: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    shutil.copy(root / "meta.properties", tmp_path / "new")
    assert list(tidelog.open(tmp_path / "new")) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(root: Path) -> None:
    log = root / "orders-0" / "00000000000000000000.log"
    log.chmod(0)
    with pytest.raises(StorageError, match="00000000000000000000.log: Permission denied"):
        list(tidelog.open(root)["orders", 0].read())


def test_a_file_that_cannot_be_read_is_named(root: Path) -> None:
    """A directory in the place of a log, which even the superuser cannot read."""
    log = root / "orders-0" / "00000000000000000000.log"
    log.unlink()
    log.mkdir()
    with pytest.raises(StorageError, match="00000000000000000000.log: Is a directory"):
        list(tidelog.open(root)["orders", 0].read())


def test_the_bounds_of_a_partition_directory_come_from_the_root_around_it(root: Path) -> None:
    disk = LocalFileSystem()
    OffsetCheckpoint(disk, str(root / "replication-offset-checkpoint")).write({TopicPartition("orders", 0): 2})
    (view,) = tidelog.open(root / "orders-0")
    assert (view.high_watermark, view.log_end_offset) == (2, 3)


def test_importing_tidelog_loads_nothing_heavy_and_opening_neither() -> None:
    code = (
        "import sys, tidelog\n"
        f"list(next(iter(tidelog.open({str(case('kafka-4.3/4-transactions') / 'image')!r}))).read(committed=True))\n"
        "print([name for name in ('numpy', 'pyarrow', 'numba') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "[]\n"


def test_nothing_is_written_created_or_locked(tmp_path: Path) -> None:
    """Every file that a process opens below the directory is opened for reading and nothing else."""
    shutil.copytree(case("kafka-4.3/4-transactions") / "image", tmp_path / "image")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "image").rglob("*")}
    code = f"""
import os, sys, tidelog
image, opened, other = {str(tmp_path / "image")!r}, 0, []
CHANGES = "os.rename os.remove os.mkdir os.rmdir os.truncate os.utime os.chmod os.chown os.link os.symlink".split()
CHANGES += ["fcntl.lockf", "fcntl.flock", "fcntl.fcntl"]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def hook(event, args):
    global opened
    if event == "open" and str(args[0]).startswith(image):
        opened += 1
        if args[2] & WRITES:
            other.append(args)
    elif event in CHANGES:
        other.append((event, args))

sys.addaudithook(hook)
for view in tidelog.open(image):
    list(view.read()), list(view.read(committed=True)), view.last_stable_offset, view.notices, view.offset_for_time(5)
    [segment.summary for segment in view.segments], view.explain(offset=view.log_start_offset)
print(opened > 50, other)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "True []\n"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "image").rglob("*")} == before


def test_the_file_system_of_a_view_cannot_write() -> None:
    from tidelog.log.files import FileSystem, ReadFileSystem, WriteFile
    from tidelog.view.files import ReadOnlyFiles

    def methods(of: type) -> set[str]:
        return {name for name in dir(of) if not name.startswith("_")}

    assert not methods(ReadOnlyFiles) & (methods(FileSystem) - methods(ReadFileSystem))
    file = ReadOnlyFiles().open(__file__)
    assert not {"write_at", "resize", "sync"} & methods(type(file)) & methods(WriteFile)


def test_a_pattern_does_not_take_a_deleted_directory_for_a_copy_of_the_live_one(root: Path) -> None:
    shutil.copytree(root / "orders-0", root / f"orders-0{MARKED}-delete")
    assert tidelog.open(f"{root}/orders*").partitions == (("orders", 0), ("orders", 1))
    assert all(view.directory.mark is None for view in tidelog.open(f"{root}/orders*"))
    (gone,) = tidelog.open(f"{root}/orders*-delete")
    assert gone.directory.mark == "delete"


def test_a_deleted_directory_is_not_opened_beside_the_live_one(root: Path) -> None:
    shutil.copytree(root / "orders-0", root / f"orders-0{MARKED}-delete")
    with pytest.raises(InvalidRequestError, match="is no copy of orders-0"):
        len(tidelog.open([root / "orders-0", root / f"orders-0{MARKED}-delete"]))


def test_a_topic_that_is_named_twice_is_scanned_once(root: Path) -> None:
    logs = tidelog.open(root)
    assert logs.scan(["orders", "orders"]).count() == logs.scan("orders").count() == 6


@pytest.mark.parametrize("topics", [b"orders", 5, ["orders", 5]])
def test_what_names_no_topic_is_refused(root: Path, topics: object) -> None:
    with pytest.raises(InvalidRequestError, match="names no topics"):
        tidelog.open(root).scan(topics)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [5, ("orders", 0, 1), (b"orders", 0), None])
def test_what_names_no_partition_is_refused(root: Path, key: object) -> None:
    with pytest.raises(InvalidRequestError, match="names no partition"):
        tidelog.open(root)[key]  # type: ignore[call-overload]


@pytest.mark.parametrize("offsets", [{"orders": 1}, {"orders-0": 1}, {1.5: 1}, {("orders",): 1}])
def test_offsets_of_what_names_no_partition_are_refused(root: Path, offsets: dict[object, int]) -> None:
    with pytest.raises(InvalidRequestError, match="a partition is a number"):
        tidelog.open(root).scan("orders", from_offset=offsets)
