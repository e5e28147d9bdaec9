"""Log directories of a node that are named, and are missing, empty or files: is a disk mounted, the operator asks.

What Kafka does with them is seen in tests/compat/test_would_start.py.
"""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.golden.corpus import case
from tidelog.cli.main import cli
from tidelog.errors import InvalidRequestError
from tidelog.fsck import check, repair, verdicts


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    """The only log directory of a node, and two more that its properties name."""
    first = Path(shutil.copytree(case("kafka-4.3/9-metadata") / "image", tmp_path / "first"))
    return [first, tmp_path / "second", tmp_path / "third"]


def format_as(directory: Path, other: Path, directory_id: str) -> None:
    directory.mkdir()
    text = (other / "meta.properties").read_text()
    (directory / "meta.properties").write_text(re.sub("directory.id=.*", f"directory.id={directory_id}", text))


def fsck(*words: object) -> Result:
    return CliRunner().invoke(cli, ["fsck", *map(str, words)])


@pytest.mark.parametrize(("is_empty", "words"), [(False, "there is no such directory"), (True, "directory is empty")])
def test_kafka_does_not_start_where_a_log_directory_is_missing_or_empty(
    dirs: list[Path], is_empty: bool, words: str
) -> None:
    if is_empty:
        dirs[1].mkdir()
    done = fsck(*dirs[:2])
    assert done.exit_code == 1
    assert done.stdout.startswith(f"Would Kafka 4.3 start? no: {dirs[1]}: ")
    assert words in done.stdout.splitlines()[0]
    assert f"`tidelog fsck {dirs[0]} --repair --dry-run`" in done.stdout.replace("\n", " ")
    report = check([str(each) for each in dirs[:2]])
    assert [one.file for one in report.findings if one.code == "NODE-START"] == [str(dirs[1])]


def test_the_directory_with_the_metadata_log_may_be_the_missing_one(dirs: list[Path]) -> None:
    (dirs[0] / "__cluster_metadata-0").rename(dirs[0].parent / "moved")
    (found,) = verdicts([str(dirs[1]), f"{dirs[0]}/"])
    assert (found.starts, found.reason_path) == (False, str(dirs[1]))


def test_a_disk_without_logs_is_not_formatted(dirs: list[Path]) -> None:
    (dirs[1] / "lost+found").mkdir(parents=True)
    (found,) = verdicts(list(map(str, dirs[:2])))
    assert (found.starts, found.reason_path) == (False, f"{dirs[1]}/meta.properties")


def test_kafka_starts_without_a_log_directory_that_is_a_file(dirs: list[Path]) -> None:
    format_as(dirs[1], dirs[0], "AbCdEfGhIjKlMnOpQrStUw")
    dirs[2].write_text("x")
    (found,) = verdicts(list(map(str, dirs)))
    assert (found.starts, found.is_whole) == (True, False)
    assert found.offline_roots == {str(dirs[2]): "it is not a directory"}
    assert "NODE-OFFLINE" in check(list(map(str, dirs))).codes()


def test_the_properties_of_a_broker_name_directories_that_are_lost(dirs: list[Path], tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    for named in (f"{dirs[0]},{dirs[1]}", str(dirs[1])):
        properties.write_text(f"log.dirs={named}\n")
        done = fsck("--config", properties)
        assert (done.exit_code, done.stdout.splitlines()[0]) == (
            1, f"Would Kafka 4.3 start? no: {dirs[1]}: there is no such directory: mount its disk",
        )  # fmt: skip
        assert fsck("--config", properties, "--would-start").exit_code == 1
        assert fsck("--config", properties, "--repair").exit_code == 2
    properties.write_text(f"log.dirs={dirs[0]}\nmetadata.log.dir={dirs[1]}\n")
    assert f"no: {dirs[1]}: there is no such directory" in fsck("--config", properties).stdout


def test_a_repair_and_a_path_beside_a_tree_are_wrong_usage(dirs: list[Path]) -> None:
    names = list(map(str, dirs[:2]))
    with pytest.raises(InvalidRequestError, match="second is no directory"):
        repair(names)
    with pytest.raises(InvalidRequestError, match="second is no directory"):
        check([str(dirs[0].parent), names[1]])
    with pytest.raises(InvalidRequestError, match="second is no directory"):
        check([names[1], str(dirs[2])])
