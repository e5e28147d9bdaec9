"""Tables in an object store: written by export, read by load; and commands that need a disk say so."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow.fs import S3FileSystem

import tidelog
from tests.spark.object_store import BUCKET, object_store
from tests.view.scans import some, write_log
from tidelog.cli.main import cli
from tidelog.errors import InvalidRequestError
from tidelog.records import Codec
from tidelog.tables.load import load_table

# moto prints where it listens; botocore is not quite ready for this Python.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, Any]]:
    with object_store() as options:
        yield options


@pytest.fixture
def _credentials(store: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command finds in its environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{store['endpoint_override']}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store["secret_key"])
    monkeypatch.setenv("AWS_DEFAULT_REGION", store["region"])


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.fixture
def root(tmp_path: Path) -> str:
    for number in range(2):
        write_log(tmp_path / "data", [("put", Codec.NONE, some(4))], f"orders-{number}")
    return str(tmp_path / "data")


@pytest.mark.usefixtures("_credentials")
def test_a_table_goes_to_a_bucket_and_comes_back(root: str, tmp_path: Path, store: dict[str, Any]) -> None:
    address = f"s3://{BUCKET}/tables/orders.parquet"
    done = run("export", root, "--topic", "orders", "--to", address)
    assert done.exit_code == 0, done.stderr
    assert address in done.stdout
    assert "--force replaces it" in run("export", root, "--topic", "orders", "--to", address).stderr
    assert run("export", root, "--topic", "orders", "--to", address, "--force").exit_code == 0
    done = run("load", address, "--to", str(tmp_path / "new"), "--topic", "orders")
    assert done.exit_code == 0, done.stderr
    assert len(list(tidelog.open(str(tmp_path / "new"))["orders", 1].read())) == 4


@pytest.mark.usefixtures("_credentials")
def test_a_folder_of_a_bucket_holds_a_file_for_each_partition(root: str, tmp_path: Path) -> None:
    done = run("export", root, "--topic", "orders", "--to", f"s3://{BUCKET}/folder/", "--format", "jsonl")
    assert done.exit_code == 0, done.stderr
    done = run("load", f"s3://{BUCKET}/folder", "--to", str(tmp_path / "new"), "--topic", "orders")
    assert done.exit_code == 0, done.stderr
    assert len(tidelog.open(str(tmp_path / "new"))["orders"]) == 2
    assert not list(tmp_path.glob("s3:*"))


@pytest.mark.usefixtures("_credentials")
def test_an_export_that_fails_leaves_nothing_in_the_bucket(root: str, store: dict[str, Any]) -> None:
    write_log(Path(root), [("put", Codec.NONE, some(2))] * 3, "bad-0")
    log = Path(root, "bad-0", f"{0:020}.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 3 + 70] ^= 1
    log.write_bytes(data)
    assert run("export", root, "--topic", "bad", "--to", f"s3://{BUCKET}/bad/x.csv").exit_code == 3
    [found] = S3FileSystem(**store).get_file_info([f"{BUCKET}/bad/x.csv"])
    assert not found.is_file


@pytest.mark.usefixtures("_credentials")
def test_what_is_wrong_with_a_table_in_a_bucket_is_said_with_its_address(tmp_path: Path, store: dict[str, Any]) -> None:
    with S3FileSystem(**store).open_output_stream(f"{BUCKET}/wrong.jsonl") as stream:
        stream.write(b'{"key": "a"}\n{')
    done = run("load", f"s3://{BUCKET}/wrong.jsonl", "--to", str(tmp_path / "new"), "--topic", "orders")
    assert done.exit_code == 2
    assert f"s3://{BUCKET}/wrong.jsonl, line 2: not JSON" in done.stderr
    assert "tidelog-load-" not in done.stderr
    done = run("load", f"s3://{BUCKET}/nothing.csv", "--to", str(tmp_path / "new"), "--topic", "orders")
    assert "does not exist" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("load", "x.csv", "--topic", "t", "--to", "s3://lake/logs"),
        ("compact", "s3://lake/logs", "--topic", "t"),
        ("reindex", "gs://lake/logs"),
        ("recover", "s3://lake/logs"),
        ("fsck", ".", "--repair", "--quarantine", "s3://lake/aside"),
    ],
)
def test_a_command_that_writes_rejects_an_address_in_one_sentence(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory called `s3:` was made once, and the load was reported as done."""
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("key\na\n")
    done = run(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "://lake/" in done.stderr
    assert "is not on a disk of this machine" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


@pytest.mark.parametrize(
    "words",
    [
        ("load", "x.csv", "--topic", "t", "--to", "s3:/lake/logs"),
        ("load", "x.csv", "--topic", "t", "--to", "s3:lake"),
        ("load", "x.csv", "--topic", "t", "--to", "d1,s3:/lake/logs"),
        ("spark", "load", "x.csv", "--topic", "t", "--to", "s3://lake/logs"),
        ("spark", "load", "x.csv", "--topic", "t", "--to", "GS:/lake/logs"),
        ("export", "ROOT", "--topic", "orders", "--to", "s3:/lake/x.csv"),
        ("export", "ROOT", "--topic", "orders", "--to", "s3:/lake/", "--format", "csv"),
        ("fsck", "ROOT", "--repair", "--quarantine", "s3:/lake/aside"),
    ],
)
def test_an_address_with_too_few_slashes_is_no_folder_called_s3(
    words: tuple[str, ...], root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("key\na\n")
    before = sorted(tmp_path.rglob("*"))
    done = run(*(root if word == "ROOT" else word for word in words))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "lake" in done.stderr
    assert "an address is written" in done.stderr or "not on a disk" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_load_from_python_rejects_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address in ("s3://lake/logs", "s3:/lake/logs"):
        with pytest.raises(InvalidRequestError, match="lake/logs"):
            load_table([pa.RecordBatch.from_pydict({"value": [b"x"]})], address, "orders")
    assert list(tmp_path.iterdir()) == []
    load_table([pa.RecordBatch.from_pydict({"value": [b"x"]})], f"file:{tmp_path}/here", "orders")
    assert (tmp_path / "here" / "orders-0").is_dir()


def test_a_file_address_of_a_folder_is_that_folder(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("export", root, "--topic", "orders", "--to", f"file://{tmp_path}/out/", "--format", "csv")
    assert done.exit_code == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["orders-0.csv", "orders-1.csv"]
    assert not (tmp_path / "file:").exists()
