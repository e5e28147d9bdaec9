"""Loads that are killed, or fail, in a partition that was damaged before: the damage stays, and what follows it."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tidelog
from tests.log.logs import NOW
from tests.spark.commits import options_for, order_of
from tests.tables.loads import DeadlyDisk, kill_in
from tidelog.cli.main import cli
from tidelog.errors import InvalidRecordError, TidelogError
from tidelog.log.clock import ManualClock
from tidelog.log.names import UNFINISHED_WRITE
from tidelog.records import read_batches
from tidelog.spark.commit import commit
from tidelog.tables.load import load_table

BATCHES = 5  # of three records each
LOG = f"orders-0/{0:020}.log"


def rows(count: int) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        yield pa.RecordBatch.from_pydict({"value": [b"%d-%d" % (number, each) for each in range(3)]})


def load(root: str, kill_at: int = 0, notices: list[str] | None = None) -> int:
    disk = DeadlyDisk(kill_at)
    told = [].append if notices is None else notices.append
    load_table(rows(BATCHES), root, "orders", fs=disk, clock=ManualClock(NOW), rng=random.Random(7), on_notice=told)
    return kill_at - disk.calls_left


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damage") / "sound"
    load(str(root))
    return root


def positions(log: Path) -> list[int]:
    found = [0]
    for batch in read_batches(log.read_bytes()):
        found.append(found[-1] + batch.size_in_bytes)
    return found


def flip(batch: int) -> Callable[[Path], None]:
    def damage(log: Path) -> None:
        data = bytearray(log.read_bytes())
        data[positions(log)[batch] + 65] ^= 1
        log.write_bytes(data)

    return damage


def tear(log: Path) -> None:
    os.truncate(log, log.stat().st_size - 3)


def killed_loads(sound: Path, place: Path, damage: Callable[[Path], None]) -> Iterator[tuple[Path, bytes]]:
    """Roots in which a load was killed after it had appended, and what their log was before."""
    before = Path(shutil.copytree(sound, place / "before"))
    damage(before / LOG)
    calls = load(str(shutil.copytree(before, place / "whole")))
    for call in range(calls // 2, calls, 3):
        root = Path(shutil.copytree(before, place / f"killed-{call}"))
        kill_in(load, root, call)
        if (root / UNFINISHED_WRITE).exists():
            yield root, (before / LOG).read_bytes()


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, list(words))
    return done.exit_code, done.output


@pytest.mark.parametrize("batch", [1, BATCHES - 1])
def test_a_load_is_taken_back_without_touching_older_damage(sound: Path, tmp_path: Path, batch: int) -> None:
    tried = 0
    for root, before in killed_loads(sound, tmp_path, flip(batch)):
        mended = Path(shutil.copytree(root, f"{root}-mended"))
        code, said = run("recover", str(root))
        assert (code, said) == (0, f"{root}: a load into orders was interrupted and is taken back\n")
        assert (root / LOG).read_bytes() == before
        code, said = run("fsck", str(mended), "--repair")
        assert f"bytes {positions(sound / LOG)[batch]} to " in said
        assert "to the quarantine (LOG-CRC)" in said
        kept = [record.offset for record in tidelog.open(mended)["orders", 0].read()]
        assert kept == [offset for offset in range(3 * BATCHES) if offset // 3 != batch]
        tried += 1
    assert tried > 2


@pytest.mark.parametrize("batch", [1, BATCHES - 1])
def test_a_load_that_fails_leaves_older_damage_as_it_is(sound: Path, tmp_path: Path, batch: int) -> None:
    root = Path(shutil.copytree(sound, tmp_path / "root"))
    flip(batch)(root / LOG)
    before = (root / LOG).read_bytes()

    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows(3)
        raise InvalidRecordError("row 10 cannot be read")

    with pytest.raises(TidelogError, match="row 10"):
        load_table(failing(), str(root), "orders", clock=ManualClock(NOW), rng=random.Random(7))
    assert (root / LOG).read_bytes() == before
    assert not (root / UNFINISHED_WRITE).exists()


def test_bytes_that_a_load_replaces_are_named(sound: Path, tmp_path: Path) -> None:
    """Half a batch at the end of a log that was closed cleanly cannot stay there: what is appended would be lost."""
    root = Path(shutil.copytree(sound, tmp_path / "root"))
    tear(root / LOG)
    notices: list[str] = []
    load(str(root), notices=notices)
    place = positions(sound / LOG)[-2]
    size = positions(sound / LOG)[-1] - place - 3
    assert notices[0].startswith(f"{size} bytes of {root / LOG} from position {place} on are no part of the log")
    assert [record.offset for record in tidelog.open(root)["orders", 0].read()] == list(range(3 * (2 * BATCHES - 1)))


def test_bytes_that_the_way_back_of_a_load_cuts_are_named(sound: Path, tmp_path: Path) -> None:
    """A load that was killed before its first batch has not replaced them."""
    before = Path(shutil.copytree(sound, tmp_path / "before"))
    tear(before / LOG)
    size = (before / LOG).stat().st_size
    calls = load(str(shutil.copytree(before, tmp_path / "whole")))
    said = set()
    for call in range(1, calls):
        root = Path(shutil.copytree(before, tmp_path / f"killed-{call}"))
        kill_in(load, root, call)
        if (root / UNFINISHED_WRITE).exists() and (root / LOG).stat().st_size == size:
            code, told = run("recover", str(root))
            is_cut = (root / LOG).stat().st_size < size
            assert is_cut == (code == 1) == ("are no batch" in told), told
            said.add(is_cut)
    assert said


def commit_into(root: str, kill_at: int = 0) -> int:
    disk = DeadlyDisk(kill_at)
    options = options_for(root, partitions=1)
    order = order_of(disk, options, [{"value": [b"new"] * 5}])
    commit(order, fs=disk, clock=ManualClock(NOW), rng=random.Random(7), threads=1)
    return kill_at - disk.calls_left


def test_a_commit_is_finished_without_touching_older_damage(sound: Path, tmp_path: Path) -> None:
    before = Path(shutil.copytree(sound, tmp_path / "before"))
    flip(1)(before / LOG)
    data = (before / LOG).read_bytes()
    calls = commit_into(str(shutil.copytree(before, tmp_path / "whole")))
    tried = 0
    for call in range(calls // 3, calls, 2):
        root = Path(shutil.copytree(before, tmp_path / f"killed-{call}"))
        kill_in(commit_into, root, call)
        if (root / UNFINISHED_WRITE).exists():
            code, said = run("recover", str(root))
            assert (code, said) == (0, f"{root}: a write of Spark's into orders was interrupted and is finished\n")
            assert (root / LOG).read_bytes()[: len(data)] == data
            found = [record.value for record in tidelog.open(root)["orders", 0].read(from_offset=3 * BATCHES)]
            assert found == [b"new"] * 5
            tried += 1
    assert tried > 2


def test_the_time_0_of_a_first_record_is_no_room_for_entries(tmp_path: Path) -> None:
    """A load that is taken back leaves the time index of what was there."""
    table = tmp_path / "rows.jsonl"
    root = tmp_path / "root"
    for number in range(3):
        table.write_text(f'{{"value": "x", "timestamp": {number * 1000}}}\n')
        assert run("load", str(table), "--to", str(root), "--topic", "t", "--partitions", "1")[0] == 0
    index = root / "t-0" / f"{0:020}.timeindex"
    before = index.read_bytes()
    assert len(before) == 36
    table.write_text('{"value": "x", "timestamp": 9000}\nno row\n')
    assert run("load", str(table), "--to", str(root), "--topic", "t")[0] != 0
    assert index.read_bytes() == before
    assert run("cat", str(root), "--topic", "t")[0] == 0


def test_a_directory_that_was_loaded_is_read_without_a_word(tmp_path: Path) -> None:
    table = tmp_path / "rows.jsonl"
    table.write_text('{"value": "x", "timestamp": 1000}\n')
    assert CliRunner().invoke(cli, ["load", str(table), "--to", str(tmp_path / "root"), "--topic", "t"]).exit_code == 0
    done = CliRunner().invoke(cli, ["cat", str(tmp_path / "root"), "--topic", "t"])
    assert (done.exit_code, done.stderr) == (0, "")
