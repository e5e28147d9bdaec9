"""Recovery reports records that the checkpoints knew of, before it rewrites them."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.golden.corpus import case
from tidelog.cli.main import cli
from tidelog.log.checkpoints import OffsetCheckpoint, read_offsets
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import RECOVERY_POINT_CHECKPOINT, TopicPartition

FS = LocalFileSystem()
MAIN = TopicPartition("txn-main", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A broker's log directory after an unclean stop."""
    copy = tmp_path / "w"
    shutil.copytree(case("kafka-4.3/4-transactions") / "image", copy)
    (copy / ".kafka_cleanshutdown").unlink()
    return copy


def cut_main(root: Path) -> None:
    """Remove the last two segments of txn-main-0, which ends at 116 then and at 137 by the checkpoints."""
    for number in (116, 133):
        for path in (root / "txn-main-0").glob(f"*{number:020}*"):
            path.unlink()


def recover(*arguments: object) -> tuple[int, list[str]]:
    done = CliRunner().invoke(cli, ["recover", *map(str, arguments)])
    assert not done.stderr, done.stderr
    return done.exit_code, done.stdout.splitlines()


def set_point(root: Path, offset: int) -> None:
    file = OffsetCheckpoint(FS, str(root / RECOVERY_POINT_CHECKPOINT))
    file.write(file.read() | {MAIN: offset})


def test_flushed_records_that_are_gone_are_reported_before_the_checkpoints_are_lowered(root: Path) -> None:
    cut_main(root)
    code, lines = recover(root)
    assert code == 1
    assert lines == [
        f"{root}: there was no clean stop and the logs are recovered",
        "txn-main-0: the recovery point was 137 and the log ends at 116: records are missing; restore the partition "
        "from a replica or a backup",
    ]
    assert read_offsets(FS, str(root / RECOVERY_POINT_CHECKPOINT))[MAIN] == 116


def test_a_program_gets_the_offsets_that_are_gone(root: Path) -> None:
    cut_main(root)
    code, [line] = recover(root, "--json")
    loss = {"partition": "txn-main-0", "recovery_point": 137, "high_watermark": 137, "log_end": 116, "flushed": True}
    assert (code, json.loads(line)["losses"]) == (1, [loss])


def test_a_partition_directory_that_is_gone_is_reported(root: Path) -> None:
    shutil.rmtree(root / "txn-main-0")
    code, lines = recover(root)
    assert code == 1
    assert lines[1].startswith("txn-main-0: the recovery point was 137 and its directory is not there: records are")


def test_the_last_partition_directory_that_is_gone_is_reported(root: Path) -> None:
    for path in root.glob("*-[01]"):
        shutil.rmtree(path)
    code, lines = recover(root)
    assert (code, len(lines)) == (1, 6)


def test_records_that_were_not_flushed_are_no_loss(root: Path) -> None:
    cut_main(root)
    set_point(root, 116)
    code, lines = recover(root)
    assert code == 0
    assert lines[1].startswith("txn-main-0: note: the high watermark was 137 and the log ends at 116: after a power")


@pytest.mark.parametrize("name", ["txn-main-0.4f2c1d0e9b8a7f6e5d4c3b2a19080706-delete", "elsewhere"])
def test_a_partition_that_was_deleted_or_moved_is_not_missing(root: Path, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(root / "cleaner-offset-checkpoint", other / RECOVERY_POINT_CHECKPOINT)
    place = other / "txn-main-0" if name == "elsewhere" else root / name
    (root / "txn-main-0").rename(place)
    code, lines = recover(root, other)
    assert code == 0, lines


def test_a_crash_alone_is_no_loss(root: Path) -> None:
    assert recover(root) == (0, [f"{root}: there was no clean stop and the logs are recovered"])
