"""Log directories in an object store: an S3 on this machine, and pyarrow's file system in memory."""

import pickle
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSystem, LocalFileSystem, S3FileSystem, SubTreeFileSystem

import tidelog
from tests.golden.corpus import RELEASE, case
from tests.log.logs import NOW, a_log, batch, lead
from tidelog.errors import InvalidRequestError, StorageError
from tidelog.records import NewRecord
from tidelog.view import PartitionView
from tidelog.view.remote_files import RemoteFiles

IMAGE = case(f"{RELEASE}/4-transactions") / "image"

# moto prints where it listens, werkzeug every request; botocore is not quite ready for this Python.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    """What `storage_options` must say to reach a store that holds the image as s3://corpus/kafka-logs."""
    import logging

    moto = pytest.importorskip("moto.server")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {
            "endpoint_override": f"{host}:{port}",
            "scheme": "http",
            "access_key": "any",
            "secret_key": "any",
            "region": "us-east-1",
            "allow_bucket_creation": True,
        }
        store = S3FileSystem(**options)
        store.create_dir("corpus")
        for path in IMAGE.rglob("*"):
            if path.is_file():
                with store.open_output_stream(f"corpus/kafka-logs/{path.relative_to(IMAGE)}") as stream:
                    stream.write(path.read_bytes())
        yield options
    finally:
        server.stop()


def test_a_whole_directory_in_s3_reads_as_on_the_disk(s3: dict[str, Any]) -> None:
    remote, local = tidelog.open("s3://corpus/kafka-logs", storage_options=s3), tidelog.open(IMAGE)
    assert remote.partitions == local.partitions
    for one, other in zip(remote, local, strict=True):
        assert one.path == f"s3://corpus/kafka-logs/{other.topic_partition}"
        for name in ("log_start_offset", "log_end_offset", "high_watermark", "last_stable_offset", "topic_id",
                     "leader_epochs", "notices"):  # fmt: skip
            assert getattr(one, name) == getattr(other, name)
        assert list(one.read()) == list(other.read())
        assert list(one.read(committed=True)) == list(other.read(committed=True))
        assert one.offset_for_time(-3) == other.offset_for_time(-3)
        middle = (other.log_start_offset + other.log_end_offset) // 2
        assert one.explain(offset=middle).answer == other.explain(offset=middle).answer


def test_partitions_and_patterns_have_addresses_too(s3: dict[str, Any]) -> None:
    (view,) = tidelog.open("s3://corpus/kafka-logs/txn-main-0", storage_options=s3)
    assert view.high_watermark == tidelog.open(IMAGE)["txn-main", 0].high_watermark
    logs = tidelog.open("s3://corpus/kafka-*/txn-multi-*", storage_options=s3)
    assert [str(partition) for partition in logs.partitions] == ["txn-multi-0", "txn-multi-1"]
    given = tidelog.open("corpus/kafka-logs", filesystem=S3FileSystem(**s3))
    assert given.partitions == tidelog.open(IMAGE).partitions


def test_wrong_addresses_are_answered_by_one_sentence(s3: dict[str, Any]) -> None:
    for address, error, message in (
        ("s3://corpus/nothing-here", InvalidRequestError, "s3://corpus/nothing-here does not exist"),
        ("s3://no-such-bucket/x", InvalidRequestError, "s3://no-such-bucket/x does not exist"),
        ("s3://corpus/kafka-logs/txn-main-0/partition.metadata", InvalidRequestError, "is a file: name the directory"),
        ("ftp://host/x", InvalidRequestError, "ftp:// is not known; known are file, gs, gcs, hdfs, s3, s3a"),
    ):
        with pytest.raises(error, match=message) as raised:
            tidelog.open(address, storage_options=s3)
        assert "\n" not in str(raised.value)
    with pytest.raises(InvalidRequestError, match="storage options are those of pyarrow.fs"):
        tidelog.open("s3://corpus/kafka-logs", storage_options={"colour": "blue"})
    with pytest.raises(InvalidRequestError, match="a file system is one of pyarrow.fs, not str"):
        tidelog.open("corpus", filesystem="s3")


def test_what_the_store_refuses_is_a_storage_error_on_one_line(s3: dict[str, Any]) -> None:
    nowhere = {**s3, "endpoint_override": "127.0.0.1:9", "retry_strategy": _one_attempt(), "connect_timeout": 2}
    with pytest.raises(StorageError, match="s3://corpus/kafka-logs: ") as raised:
        tidelog.open("s3://corpus/kafka-logs", storage_options=nowhere)
    assert "\n" not in str(raised.value)


def _one_attempt() -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy

    return AwsStandardS3RetryStrategy(max_attempts=1)


# -- requests --------------------------------------------------------------------------------------------------------


def remote(path: Path) -> RemoteFiles:
    """A directory behind pyarrow, without a server."""
    return RemoteFiles(SubTreeFileSystem(str(path), LocalFileSystem()))


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a log of 100 batches and 3 MB."""
    root = tmp_path_factory.mktemp("long")
    with a_log(root, segment_bytes=1 << 30) as log:
        for _ in range(100):
            lead(log, batch([NewRecord(b"k", bytes(30_000), NOW)]))
    return root


def test_a_long_log_is_read_in_few_requests_that_grow(long_log: Path) -> None:
    files = remote(long_log)
    view = PartitionView.at(files, "topic-0")
    assert view.log_end_offset == 100
    files.requests.clear()
    assert [record.offset for record in view.read()] == list(range(100))
    assert files.requests["bytes"] < 1.3 * view.size
    assert files.requests["read"] <= 10
    assert files.requests["list"] == 0


def test_a_lookup_in_a_long_log_fetches_little_of_it(long_log: Path) -> None:
    files = remote(long_log)
    (record,) = PartitionView.at(files, "topic-0").read(54, 55)
    assert record.offset == 54
    assert files.requests["bytes"] < 1 << 19


def test_one_listing_answers_for_all_files_of_a_directory(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 3)
    log.close()
    files = remote(tmp_path)
    view = PartitionView.at(files, "topic-0")
    assert len(list(view.read())) == len(list(view.read(committed=True))) == 3
    assert files.requests["list"] == 1
    before = files.requests.total()
    assert files.stat("topic-0/00000000000000000000.log") is not None
    assert files.stat("topic-0/00000000000000000001.log") is None
    assert files.requests.total() == before
    assert files.fresh().stat("topic-0") is not None
    assert files.requests.total() == before + 1  # counted together


def test_reads_anywhere_give_the_bytes_of_the_file(tmp_path: Path) -> None:
    data = bytes(range(256)) * 2000
    (tmp_path / "file").write_bytes(data)
    file = remote(tmp_path).open("file")
    for position, size in ((0, 10), (10, 100), (400_000, 5), (399_990, 30), (511_990, 100), (600_000, 3), (0, 512_000)):
        assert file.read(position, size) == data[position : position + size]
    target = bytearray(50)
    assert file.read_into(511_980, memoryview(target)) == 20
    assert target[:20] == data[-20:]
    with pytest.raises(StorageError):
        file.read(-1, 5)


def test_what_is_not_there_or_no_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    files = remote(tmp_path)
    for path, message in (("missing", "missing: No such file"), ("directory", "directory: Is a directory")):
        with pytest.raises(StorageError, match=message):
            files.open(path)
    with pytest.raises(StorageError, match="nowhere: No such file or directory"):
        files.list("nowhere")
    (tmp_path / "file").write_bytes(b"12345")
    gone = files.open("file")
    (tmp_path / "file").unlink()
    with pytest.raises(StorageError, match="file: No such file or directory"):
        gone.read(0, 5)


def test_remote_files_travel_to_other_processes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    files = pickle.loads(pickle.dumps(remote(tmp_path)))
    assert isinstance(files._filesystem, FileSystem)
    assert files.open("file").read(1, 3) == b"234"


# -- times -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many_segments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a log of 40 segments of 5 batches; a batch is a second behind the last, and some are late."""
    root = tmp_path_factory.mktemp("many")
    with a_log(root, index_interval_bytes=100) as log:
        for number in range(200):
            if number % 5 == 0 and number:
                log.roll()
            lead(log, batch(2, timestamp_ms=NOW + 1000 * (number - 7 * (number % 5 == 3))))
    return root


def test_a_time_is_found_in_a_store_as_on_the_disk_with_a_request_per_segment(
    many_segments: Path, s3: dict[str, Any]
) -> None:
    store = S3FileSystem(**s3)
    for path in many_segments.rglob("*"):
        if path.is_file():
            with store.open_output_stream(f"corpus/many/{path.relative_to(many_segments)}") as stream:
                stream.write(path.read_bytes())
    near, far = (
        tidelog.open(many_segments)["topic", 0],
        tidelog.open("s3://corpus/many", storage_options=s3)["topic", 0],
    )
    assert len(far.segments) == 40
    assert far.log_end_offset == 400
    requests = far.files.requests  # type: ignore[attr-defined]
    requests.clear()
    late = NOW + 1000 * 190
    assert far.offset_for_time(late) == near.offset_for_time(late) is not None
    # 38 segments are passed over, each with one read of the end of its time index, and one is opened and searched.
    assert requests["open"] <= 38 + 6
    assert requests["read"] <= 38 + 8
    assert requests["list"] == requests["stat"] == 0
    requests.clear()
    for second in range(0, 210, 3):
        time_ms = NOW + 1000 * second
        assert far.offset_for_time(time_ms) == near.offset_for_time(time_ms)
    assert requests["read"] < 5 * 70  # 70 lookups: what the time indexes said is remembered


def test_a_time_index_that_is_missing_or_damaged_is_no_matter_in_a_store(many_segments: Path, tmp_path: Path) -> None:
    shutil.copytree(many_segments, tmp_path / "copy")
    times = sorted((tmp_path / "copy" / "topic-0").glob("*.timeindex"))
    times[3].unlink()
    times[5].write_bytes(times[5].read_bytes()[:-5])
    times[7].write_bytes((NOW + 10**9).to_bytes(8, "big") + bytes(4))  # more than there is
    near = tidelog.open(many_segments)["topic", 0]
    far = PartitionView.at(remote(tmp_path / "copy"), "topic-0")
    for second in range(0, 210, 7):
        assert far.offset_for_time(NOW + 1000 * second) == near.offset_for_time(NOW + 1000 * second)


def test_a_store_that_does_not_answer_is_an_error_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether there is a network or none: the emulator's address is one at which nobody listens."""
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", "http://127.0.0.1:9")
    began = time.monotonic()
    with pytest.raises(StorageError, match="^gs://anonymous@bucket/logs: ") as caught:
        tidelog.open("gs://anonymous@bucket/logs")
    assert time.monotonic() - began < 10
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
