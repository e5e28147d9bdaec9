"""Directories that hold the metadata log alone: of a controller, or a `metadata.log.dir` outside of `log.dirs`.

What Kafka writes there and does with it is seen in tests/compat/test_would_start.py.
"""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.fsck.roots_on_disk import contents
from tests.golden.corpus import case
from tidelog.cli.main import cli
from tidelog.fsck import Severity, check, repair, verdicts

METADATA = "__cluster_metadata-0"
OF_BROKER = "AbCdEfGhIjKlMnOpQrStUw"


@pytest.fixture
def dirs(tmp_path: Path) -> tuple[Path, Path]:
    """A log directory, and the directory of the metadata log, as a node with both roles has them."""
    logs = Path(shutil.copytree(case("kafka-4.3/9-metadata") / "image", tmp_path / "logs"))
    metadata = tmp_path / "metadata"
    metadata.mkdir()
    (logs / METADATA).rename(metadata / METADATA)
    for name in ("meta.properties", "bootstrap.checkpoint"):
        shutil.copy(logs / name, metadata / name)
    identity = logs / "meta.properties"
    identity.write_text(re.sub("directory.id=.*", f"directory.id={OF_BROKER}", identity.read_text()))
    return logs, metadata


def test_a_metadata_log_alone_lacks_no_checkpoint_and_no_mark_of_a_clean_stop(dirs: tuple[Path, Path]) -> None:
    before = contents(dirs[1])
    report = check(str(dirs[1]))
    assert [(one.code, one.file) for one in report.findings] == []
    assert repair(str(dirs[1])).done == []
    assert contents(dirs[1]) == before


def test_what_else_lies_beside_a_metadata_log_alone_does_not_keep_kafka_from_starting(dirs: tuple[Path, Path]) -> None:
    (dirs[1] / "lost+found").mkdir()
    names = [str(each) for each in dirs]
    (found,) = verdicts(names)
    assert found.starts, found
    told = {one.code: one.severity for one in check(names).findings if one.file.startswith(names[1])}
    assert told == {"ROOT-FOREIGN": Severity.INFO}
    (dirs[0] / "lost+found").mkdir()
    (found,) = verdicts(names)
    assert (found.starts, found.reason_path) == (False, names[0])


def test_the_directory_of_the_metadata_log_is_none_of_the_log_dirs(dirs: tuple[Path, Path]) -> None:
    (found,) = verdicts([str(dirs[1])])
    assert (found.starts, found.reason) == (None, "node 1 has 1 directory, 0 named here: name all of its log.dirs")


def test_a_log_directory_that_was_formatted_and_not_used_lacks_no_checkpoint(dirs: tuple[Path, Path]) -> None:
    for path in dirs[0].iterdir():
        if path.name not in ("meta.properties", "bootstrap.checkpoint"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "CHK-MISSING" not in check(str(dirs[0])).codes()


def test_a_checkpoint_that_a_broker_has_lost_is_missing(dirs: tuple[Path, Path]) -> None:
    (dirs[0] / "replication-offset-checkpoint").unlink()
    assert "CHK-MISSING" in check(str(dirs[0])).codes()


def test_the_properties_of_a_broker_name_the_directory_of_the_metadata_log(
    dirs: tuple[Path, Path], tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    for more in (f"metadata.log.dir={dirs[1]}", f"metadata.log.dir={dirs[1]}/."):
        properties.write_text(f"log.dirs={dirs[0]}\n{more}\n")
        done = CliRunner().invoke(cli, ["fsck", "--config", str(properties)])
        assert done.stdout.splitlines()[0].startswith("Would Kafka 4.3 start? yes, with 6 topics"), done.output
    properties.write_text(f"log.dirs={dirs[0]},{dirs[1]}\nmetadata.log.dir={dirs[1]}/.\n")
    assert CliRunner().invoke(cli, ["fsck", "--config", str(properties)]).exit_code in (0, 1)
