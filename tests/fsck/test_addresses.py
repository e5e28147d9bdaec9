"""Backups in an object store are checked where they are: an S3 on this machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.golden.corpus import RELEASE, case
from tests.spark.object_store import BUCKET, object_store, upload
from tidelog.cli.main import cli
from tidelog.errors import InvalidRequestError
from tidelog.fsck import check, repair

IMAGE = case(f"{RELEASE}/4-transactions") / "image"

# moto prints where it listens; botocore is not quite ready for this Python.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, Any]]:
    """A bucket that holds a sound copy of a log directory."""
    with object_store() as options:
        upload(options, IMAGE, "sound")
        yield options


@pytest.fixture(autouse=True)
def credentials(store: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command finds in its environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{store['endpoint_override']}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store["secret_key"])
    monkeypatch.setenv("AWS_DEFAULT_REGION", store["region"])


@pytest.mark.parametrize("deep", [False, True])
def test_a_backup_in_a_bucket_is_checked_as_on_a_disk(deep: bool) -> None:
    here, there = check(str(IMAGE), deep=deep), check(f"s3://{BUCKET}/sound", deep=deep)
    assert there.is_clean
    assert (there.counts, there.bytes) == (here.counts, here.bytes)
    assert [one.code for one in there.findings] == [one.code for one in here.findings]


def test_damage_in_a_bucket_is_found_with_its_address(store: dict[str, Any], tmp_path: Path) -> None:
    log = next(IMAGE.glob("txn-main-0/*.log"))
    bytes_of_log = bytearray(log.read_bytes())
    bytes_of_log[100] ^= 1
    damaged = tmp_path / log.parent.name / log.name
    damaged.parent.mkdir()
    damaged.write_bytes(bytes_of_log)
    upload(store, tmp_path, "damaged")
    ended = CliRunner().invoke(cli, ["fsck", f"s3://{BUCKET}/damaged", "--json"])
    assert ended.exit_code == 1
    assert f"s3://{BUCKET}/damaged/txn-main-0/{log.name}" in ended.output


def test_a_file_address_is_a_local_path() -> None:
    assert check(f"file://{IMAGE}").counts == check(str(IMAGE)).counts


def test_a_repair_in_a_bucket_is_rejected() -> None:
    with pytest.raises(InvalidRequestError, match="s3://lake/sound: a repair needs a directory on a disk"):
        repair(f"s3://{BUCKET}/sound")


def test_directories_of_several_file_systems_are_rejected() -> None:
    with pytest.raises(InvalidRequestError, match="check them one by one"):
        check([f"s3://{BUCKET}/sound", str(IMAGE)])


def test_an_address_where_nothing_is_is_rejected_as_it_was_typed() -> None:
    with pytest.raises(InvalidRequestError, match="^s3://lake/nothing is no directory"):
        check(f"s3://{BUCKET}/nothing")
