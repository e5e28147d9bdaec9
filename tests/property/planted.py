"""Something planted at a path of a log directory, then a command on it: what lies outside stays as it is.

A case plants one thing at one path, of a file or directory that is there or of one that a command would make, and runs
one command. Afterwards

    nothing outside the log directory has changed: no byte, no mode, no owner, no name
    the command has ended within the time limit
    it ended as commands do: it did its work, or said in words why not

As root the log directory and what is planted belong to the broker's user, and links lead to directories too; another
user plants only what root's rules have nothing to do with. The case of a number depends on the number alone.

    python -m tests.property.planted 17      says what case 17 is, and what came of it
"""

import atexit
import os
import random
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from tests.spark.commits import commit_order, options_for, order_of
from tidelog.cli.main import cli
from tidelog.errors import TidelogError
from tidelog.log import LogConfig, LogManager, ManualClock, TopicPartition
from tidelog.log.local_files import LocalFileSystem
from tidelog.records import NewRecord

__all__ = ["Case", "case_of", "judge", "run"]

NOW = 1_700_000_000_000
BROKER = 1000
TIME_LIMIT_S = 120.0  # on a machine that does other things too; a command takes a second or two
IS_ROOT = os.geteuid() == 0

# Paths that are not there, and that some command makes.
MADE = (
    ".lock",
    "recovery-point-offset-checkpoint.tmp",
    "replication-offset-checkpoint.tmp",
    "log-start-offset-checkpoint.tmp",
    "cleaner-offset-checkpoint.tmp",
    ".kafka_cleanshutdown.tmp",
    "unfinished-write.run-tidelog-recover",
    f"tidelog-journal-0.{32 * '0'}-delete",
    f"orders-0.{32 * 'a'}-delete",
    "orders-2",
    "tidelog-commit.batches",
    "tidelog-commit.batches.tmp",
    "orders-0/partition.metadata.tmp",
    "orders-0/leader-epoch-checkpoint.tmp",
    "orders-0/00000000000000000000.log.cleaned",
    "orders-0/00000000000000000000.log.swap",
    "orders-0/00000000000000000000.index.cleaned",
    "orders-0/00000000000000000000.txnindex",
    "orders-0/00000000000000000099.snapshot",
    "orders-0/00000000000000000099.log",
)


# -- what is planted -------------------------------------------------------------------------------------------------


def _link_to_a_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "victim")


def _link_to_a_copy(path: Path, outside: Path) -> None:
    """A file of the right form, that is somebody else's."""
    path.symlink_to(outside / "copy" if (outside / "copy").exists() else outside / "victim")


def _link_to_a_directory(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def _link_to_a_new_name(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "new")


def _link_to_itself(path: Path, outside: Path) -> None:
    path.symlink_to(path.name)


def _link_to_a_device(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def _second_name(path: Path, outside: Path) -> None:
    os.link(outside / "victim", path)


def _pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path, outside: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, _inside(path.parent):  # a path of a socket has 108 bytes
        listening.bind(path.name)


def _directory(path: Path, outside: Path) -> None:
    path.mkdir()
    (path / "kept").write_text("kept")


def _device(path: Path, outside: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # zeros without end


class _inside:
    def __init__(self, directory: Path) -> None:
        self._directory, self._before = directory, os.getcwd()

    def __enter__(self) -> None:
        os.chdir(self._directory)

    def __exit__(self, *error: object) -> None:
        os.chdir(self._before)


Plant = Callable[[Path, Path], None]
OF_ANYONE: tuple[Plant, ...] = (
    _link_to_a_file,
    _link_to_a_copy,
    _link_to_a_new_name,
    _link_to_itself,
    _link_to_a_device,
    _pipe,
    _socket,
    _directory,
)
PLANTS = (*OF_ANYONE, _link_to_a_directory, _second_name, _device) if IS_ROOT else OF_ANYONE


# -- what is done ----------------------------------------------------------------------------------------------------


def _manager(root: Path, rows: Path) -> None:
    """Open, append, roll, delete, and close in good order."""
    clock = ManualClock(NOW)
    with LogManager.open(str(root), LogConfig(segment_bytes=1_000), clock=clock) as manager:
        for number in range(20):
            manager.get_or_create(TopicPartition("orders", 0)).append(NewRecord(b"k", b"%d" % number))
        manager.delete(TopicPartition("orders", 1))
        for _ in range(5):
            clock.advance(120_000)
            manager.tick()


def _commit(root: Path, rows: Path) -> None:
    fs = LocalFileSystem()
    commit_order(fs, order_of(fs, options_for(str(root), partitions=2)))


def _command(*words: str) -> Callable[[Path, Path], None]:
    def run(root: Path, rows: Path) -> None:
        places = {"ROOT": str(root), "ROWS": str(rows), "OUT": str(rows.parent / "out"), "PART": str(root / "orders-0")}
        done = CliRunner().invoke(cli, [places.get(word, word) for word in words])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        said = done.stdout + done.stderr
        assert not done.exit_code or said.strip(), f"exit code {done.exit_code}, and not a word"
        assert "Traceback" not in said, said

    run.__name__ = " ".join(words)
    return run


COMMANDS = (
    _command("ls", "ROOT"),
    _command("cat", "ROOT", "--topic", "orders"),
    _command("export", "ROOT", "--topic", "orders", "--to", "OUT", "--force"),
    _command("explain", "ROOT", "--topic", "orders", "--partition", "0", "--offset", "5"),
    _command("dump-log", "PART"),
    _command("fsck", "ROOT"),
    _command("fsck", "--repair", "ROOT"),
    _command("reindex", "ROOT"),
    _command("compact", "ROOT", "--topic", "orders", "--yes"),
    _command("load", "ROWS", "--to", "ROOT", "--topic", "orders", "--partitions", "2"),
    _command("recover", "ROOT"),
    _manager,
    _commit,
)


# -- cases -----------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """What is planted where, and what is done."""

    number: int
    path: str
    plant: Plant
    command: Callable[[Path, Path], None]

    def __str__(self) -> str:
        plant = self.plant.__name__.strip("_").replace("_", " ")
        return f"case {self.number}: {plant} at {self.path}, then {self.command.__name__.strip('_')}"


@cache
def template() -> Path:
    """A root that was closed in good order, with segments, indexes, snapshots and checkpoints."""
    base = Path(tempfile.mkdtemp(prefix="planted-"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    config = LogConfig(segment_bytes=600)
    with LogManager.open(str(base / "root"), config, clock=ManualClock(NOW)) as manager:
        for partition in range(2):
            log = manager.get_or_create(TopicPartition("orders", partition))
            for number in range(30):
                log.append(NewRecord(b"k%d" % (number % 5), b"v" * 20))
    (base / "root" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=planted\n")
    return base / "root"


@cache
def paths() -> tuple[str, ...]:
    """Every path of the root, and those that are made."""
    there = sorted(str(path.relative_to(template())) for path in template().rglob("*"))
    return (*there, *MADE)


def case_of(number: int) -> Case:
    """The case of a number. Neighbours differ in everything; many of them meet every path and every command."""
    chance = random.Random(number)
    return Case(
        number, paths()[number % len(paths())], chance.choice(PLANTS), COMMANDS[number // len(paths()) % len(COMMANDS)]
    )


class _Room:
    """A root with something planted in it, and what lies outside."""

    def __init__(self, case: Case) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="planted-"))
        self.root, self.outside, self.rows = self.base / "root", self.base / "outside", self.base / "rows.jsonl"
        shutil.copytree(template(), self.root)
        self.outside.mkdir()
        (self.outside / "victim").write_bytes(b"precious" * 100)
        (self.outside / "00000000000000000000.log").write_bytes(b"somebody else's")
        os.chmod(self.outside / "victim", 0o600)
        self.rows.write_text('{"key": "a", "value": "b"}\n')
        place = self.root / case.path
        if place.is_file():
            shutil.move(place, self.outside / "copy")
        elif place.is_dir():
            shutil.rmtree(place)
        place.parent.mkdir(exist_ok=True)
        case.plant(place, self.outside)
        if IS_ROOT:
            for path in (self.root, *self.root.rglob("*")):
                if path.is_symlink() or not path.is_file() or path.stat().st_nlink == 1:
                    os.lchown(path, BROKER, BROKER)

    def world(self) -> dict[str, object]:
        """All that is outside, as it is."""
        return {str(path.relative_to(self.base)): _facts(path) for path in (self.outside, *self.outside.iterdir())}


def _facts(path: Path) -> object:
    found = path.lstat()
    content = path.read_bytes() if path.is_file() else sorted(os.listdir(path))
    return stat.filemode(found.st_mode), found.st_uid, found.st_gid, found.st_mtime_ns, content


def judge(number: int) -> str:
    """Run a case; how it ended. Raises AssertionError for one that should not have ended so."""
    case = case_of(number)
    room = _Room(case)
    try:
        before = room.world()
        ended = _run_apart(case, room)
        assert room.world() == before, f"{case}: what lies outside has changed (it {ended})"
        assert ended in ("done", "refused"), f"{case}: {ended}"
        return ended
    finally:
        shutil.rmtree(room.base, ignore_errors=True)


def _run_apart(case: Case, room: _Room) -> str:
    """Run a command in a process of its own, which may hang."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, _run_here(case, room).encode()[:60_000])
        os._exit(0)
    os.close(writing)
    deadline = time.monotonic() + TIME_LIMIT_S
    while time.monotonic() < deadline:
        done, _ = os.waitpid(child, os.WNOHANG)
        if done:
            with os.fdopen(reading) as answer:
                return answer.read() or "died"
        time.sleep(0.005)  # the child has no other way to say that it hangs
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    return "still ran at the time limit"


def _run_here(case: Case, room: _Room) -> str:
    sys.stdin = open(os.devnull)  # noqa: SIM115 - this process ends with the case
    try:
        case.command(room.root, room.rows)
    except TidelogError as error:
        return "refused" if str(error).strip() else "raised an error without a word"
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
        return f"raised {type(error).__name__}: {''.join(traceback.format_exception(error))[-1500:]}"
    return "done"


def numbers(seed: int, cases: int) -> Iterator[int]:
    """The numbers of a block of cases."""
    return iter(range(seed, seed + cases))


def run(seed: int, cases: int) -> Counter[str]:
    """Judge cases of a campaign; how many ended in each way."""
    ended: Counter[str] = Counter()
    for number in numbers(seed, cases):
        try:
            ended[f"planted-{judge(number)}"] += 1
        except AssertionError as error:
            raise AssertionError(f"{error}\nagain: python -m tests.property.planted {number}") from error
    return ended


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        sys.stdout.write(f"{case_of(int(argument))} -> {judge(int(argument))}\n")
