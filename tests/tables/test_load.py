"""Rows become logs: where each goes, what is refused, and that a failure leaves nothing behind."""

import os
import random
import shutil
import stat
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidelog
from tests.log.logs import NOW
from tidelog.columns import partition_for_keys
from tidelog.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    LockedError,
    StorageError,
    TidelogError,
)
from tidelog.log import LogManager, ManualClock
from tidelog.log.names import CLEAN_SHUTDOWN, TopicPartition
from tidelog.records import Record
from tidelog.tables import load as loading
from tidelog.tables.load import Loaded, load_table


def load(root: Path, *columns: dict[str, Any], **options: Any) -> list[Loaded]:
    batches = [pa.RecordBatch.from_pydict(each) for each in columns]
    return load_table(batches, str(root), "orders", clock=ManualClock(NOW), rng=random.Random(7), **options)


def records(root: Path, partition: int = 0) -> list[Record]:
    return list(tidelog.open(str(root))["orders", partition].read())


def test_a_new_root_gets_all_that_a_broker_leaves_in_one(tmp_path: Path) -> None:
    root = tmp_path / "new"
    done = load(root, {"key": [b"a", b"b"], "value": ["text", None]})
    assert done == [Loaded(TopicPartition("orders", 0), 2, 0, 2)]
    assert sorted(path.name for path in root.iterdir()) == [
        ".kafka_cleanshutdown",
        "cleaner-offset-checkpoint",
        "log-start-offset-checkpoint",
        "orders-0",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]
    assert (root / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
    assert (root / "orders-0/partition.metadata").read_text().startswith("version: 0\ntopic_id: ")
    assert [(r.key, r.value, r.timestamp_ms) for r in records(root)] == [(b"a", b"text", NOW), (b"b", None, NOW)]


def test_keys_go_where_producers_put_them_and_the_rest_is_dealt_out(tmp_path: Path) -> None:
    keys = [b"key %d" % number if number % 3 else None for number in range(300)]
    load(tmp_path / "r", {"key": keys[:100]}, {"key": keys[100:]}, partitions=5)
    wanted = partition_for_keys(pa.array(keys), 5).to_pylist()
    for partition in range(5):
        keyed = [record.key for record in records(tmp_path / "r", partition) if record.key is not None]
        assert keyed == [key for key, number in zip(keys, wanted, strict=True) if number == partition]
        assert sum(record.key is None for record in records(tmp_path / "r", partition)) == 20


def test_a_partition_that_is_named_is_obeyed(tmp_path: Path) -> None:
    rows = {"partition": [2, 0, None, 2], "key": [b"x", b"y", b"z", None], "value": [b"1", b"2", b"3", b"4"]}
    done = load(tmp_path / "r", rows)
    assert [each.partition.partition for each in done] == [0, 1, 2]
    assert [r.value for r in records(tmp_path / "r", 2)][0::3] == [b"1"]
    assert sum(each.rows for each in done) == 4


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_load_that_makes_too_many_segments_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    monkeypatch.setattr(loading, "_MOST_SEGMENTS", 3)
    options: dict[str, Any] = {"configs": {"segment.bytes": "1000"}, "compression": compression}
    rows = {"value": [random.Random(number).randbytes(900) for number in range(5)]}
    with pytest.raises(InvalidRequestError, match=r"1000 this makes more than 3 segments.*--many-segments"):
        load(tmp_path / "r", rows, **options)
    assert not (tmp_path / "r").exists()
    load(tmp_path / "r", rows, many_segments=True, **options)
    load(tmp_path / "r", {"value": rows["value"][:2]}, **options)  # those that were there do not count
    assert len(records(tmp_path / "r")) == 7


def test_more_is_appended_behind_what_is_there_under_the_same_id(tmp_path: Path) -> None:
    topic_id = uuid.UUID(int=0x123456789ABCDEF0123456789ABCDEF0)
    load(tmp_path, {"value": [b"1"]}, topic_id=topic_id)
    done = load(tmp_path, {"value": [b"2"], "timestamp": [5]}, partitions=2)
    assert [tuple(each[1:]) for each in done] == [(1, 1, 2), (0, 0, 0)]
    logs = tidelog.open(str(tmp_path))
    assert {part.topic_id for part in logs} == {topic_id}
    assert [(r.offset, r.value, r.timestamp_ms) for r in records(tmp_path)] == [(0, b"1", NOW), (1, b"2", 5)]
    with pytest.raises(InvalidRequestError, match="another id"):
        load(tmp_path, {"value": [b"3"]}, topic_id=uuid.UUID(int=77 << 64))
    with pytest.raises(InvalidRequestError, match="not made fewer"):
        load(tmp_path, {"value": [b"3"]}, partitions=1)


def test_configs_and_codecs_are_obeyed(tmp_path: Path) -> None:
    values = [np.random.default_rng(number).bytes(50) * 10 for number in range(200)]
    load(tmp_path, {"value": values}, configs={"segment.bytes": "4096"}, compression="zstd")
    part = tidelog.open(str(tmp_path))["orders", 0]
    assert len(part.segments) > 2
    assert {codec for segment in part.segments for codec in segment.codecs} == {"zstd"}
    assert [record.value for record in part.read()] == values


def test_a_marker_keeps_the_epoch_of_the_broker_that_stopped(tmp_path: Path) -> None:
    load(tmp_path, {"value": [b"1"]})
    (tmp_path / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":14}')
    load(tmp_path, {"value": [b"2"]})
    assert (tmp_path / CLEAN_SHUTDOWN).read_text() == '{"version":0,"brokerEpoch":14}'


@pytest.mark.parametrize(
    ("columns", "options", "error", "reason"),
    [
        ({"value": [1.5]}, {}, InvalidRequestError, "column 'value' of type double"),
        ({"value": [b"x"], "timestamp": ["now"]}, {}, InvalidRequestError, "timestamps of type string"),
        ({"value": [b"x"], "partition": ["0"]}, {}, InvalidRequestError, "holds numbers"),
        ({"value": [b"x"], "partition": [3]}, {"partitions": 2}, InvalidRequestError, "--partitions"),
        ({"value": [b"x"], "partition": [-1]}, {}, InvalidRequestError, "partition -1"),
        ({"value": [b"x"], "partition": pa.array([2**63], pa.uint64())}, {}, InvalidRequestError, "column 'partition'"),
        ({"value": [b"x"], "timestamp": pa.array([2**63], pa.uint64())}, {}, InvalidRequestError, "'timestamp'"),
        ({"value": [b"x", b"y"], "timestamp": ["now", None]}, {}, InvalidRequestError, "timestamps of type string"),
        ({"value": [bytes(2_000_000)]}, {}, InvalidRequestError, "2000"),
        ({"value": [b"x"], "timestamp": [NOW * 2]}, {}, InvalidRequestError, "message.timestamp.after.max.ms"),
        ({"value": [b"x"]}, {"configs": {"segment.bytes": "3"}}, InvalidConfigError, "segment.bytes"),
        ({"value": [b"x"]}, {"compression": "rar"}, TidelogError, "rar"),
    ],
)
def test_what_cannot_be_loaded_leaves_nothing_behind(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], error: type[Exception], reason: str
) -> None:
    load(tmp_path, {"value": [b"there"]})
    with pytest.raises(error, match=reason):
        load(tmp_path, {"value": [b"before"], "key": [b"k"]}, columns, **{"partitions": 2, **options})
    assert [record.value for record in records(tmp_path)] == [b"there"]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["orders-0"]
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith((".deleted", ".tmp", ".journal", ".lock"))]
    load(tmp_path, {"value": [b"again"]})


def test_a_load_that_fails_makes_no_root(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="max.message.bytes"):
        load(tmp_path / "a" / "b", {"value": [b"x"]}, {"value": [bytes(2_000_000)]})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidRequestError):
        load(tmp_path / "empty", {"value": [b"x"]}, {"value": [1.5]})
    assert list((tmp_path / "empty").iterdir()) == []


def test_the_metadata_log_is_never_loaded_into_and_other_internal_topics_only_on_demand(tmp_path: Path) -> None:
    rows = [pa.RecordBatch.from_pydict({"value": [b"x"]})]
    load(tmp_path, {"value": [b"there"]})
    log = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(b"of a quorum")
    for allowed in (False, True):
        with pytest.raises(InvalidTopicError, match="metadata log"):
            load_table(rows, str(tmp_path), "__cluster_metadata", topic_id=uuid.UUID(int=1), allow_internal=allowed)
    assert log.read_bytes() == b"of a quorum"
    with pytest.raises(InvalidTopicError, match="--internal"):
        load_table(rows, str(tmp_path), "__consumer_offsets")
    load_table(rows, str(tmp_path), "__consumer_offsets", allow_internal=True)
    assert log.parent.is_dir()


def test_partitions_that_are_not_here_are_not_guessed(tmp_path: Path) -> None:
    load(tmp_path, {"value": [b"1"]}, partitions=6)
    for number in range(1, 5):
        shutil.rmtree(tmp_path / f"orders-{number}")
    with pytest.raises(InvalidRequestError, match="only partitions 0, 5 are here: if the broker has other log dir"):
        load(tmp_path, {"value": [b"2"]})
    with pytest.raises(InvalidRequestError, match="partition 3 of a row: orders has partitions 0, 5"):
        load(tmp_path, {"value": [b"2"], "partition": [3]})
    done = load(tmp_path, {"value": [b"2"], "partition": [5]})
    assert done == [Loaded(TopicPartition("orders", 5), 1, 0, 1)]
    assert [str(partition) for partition in tidelog.open(str(tmp_path)).partitions] == ["orders-0", "orders-5"]
    load(tmp_path, {"value": [b"3"]}, partitions=6)
    assert len(tidelog.open(str(tmp_path)).partitions) == 6


def test_a_partition_without_a_row_keeps_its_high_watermark_and_other_topics_are_not_opened(tmp_path: Path) -> None:
    load(tmp_path, {"value": [b"1", b"2", b"3", b"4"]}, partitions=2)
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\norders 0 1\norders 1 1\n")
    (tmp_path / "other-0").mkdir()
    (tmp_path / "other-0" / "00000000000000000000.log").write_bytes(b"no batch at all")
    before = {path: path.stat().st_mtime_ns for part in ("orders-1", "other-0") for path in (tmp_path / part).iterdir()}
    done = load(tmp_path, {"value": [b"5"], "partition": [0]})
    assert done == [Loaded(TopicPartition("orders", 0), 1, 2, 3)]
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n2\norders 0 3\norders 1 1\n"
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_times_of_any_width_may_be_missing(tmp_path: Path) -> None:
    for type_ in (pa.int32(), pa.uint16(), pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.null()):
        values = [None, None] if type_ == pa.null() else [5, None]
        load(tmp_path, {"value": [b"a", b"b"], "timestamp": pa.array(values, type_)})
    times = [record.timestamp_ms for record in records(tmp_path)]
    assert times == [5, NOW, 5, NOW, 5000, NOW, 0, NOW, NOW, NOW]


def test_logs_from_before_there_were_ids_get_one_only_if_told(tmp_path: Path) -> None:
    topic_id = uuid.UUID(int=0x123456789ABCDEF0123456789ABCDEF0)
    metadata = tmp_path / "orders-0" / "partition.metadata"
    load(tmp_path, {"value": [b"1"]})
    metadata.unlink()
    load(tmp_path, {"value": [b"2"]})
    assert not metadata.exists()
    with pytest.raises(InvalidRequestError):
        load(tmp_path, {"value": [b"3"]}, {"value": [1.5]}, topic_id=topic_id)
    assert not metadata.exists()
    load(tmp_path, {"value": [b"3"]}, topic_id=topic_id)
    assert [part.topic_id for part in tidelog.open(str(tmp_path))] == [topic_id]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_writes_belongs_to_the_owner_of_the_root(tmp_path: Path) -> None:
    load(tmp_path, {"value": [b"1"]})
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 65534, 65534)
        path.chmod(0o750 if path.is_dir() else 0o640)
    load(tmp_path, {"value": [b"2"], "partition": [1]}, partitions=2)
    with pytest.raises(InvalidRequestError):
        load(tmp_path, {"value": [b"2"], "partition": [0]}, {"value": [1.5]}, partitions=3)
    found = {path: path.stat() for path in tmp_path.rglob("*")}
    assert len(found) > 12
    assert {(each.st_uid, each.st_gid) for each in found.values()} == {(65534, 65534)}
    assert {stat.S_IMODE(each.st_mode) for path, each in found.items() if path.is_file()} == {0o640}
    assert {stat.S_IMODE(each.st_mode) for path, each in found.items() if path.is_dir()} == {0o750}


def test_a_root_that_is_open_or_was_not_closed_is_refused(tmp_path: Path) -> None:
    load(tmp_path, {"value": [b"1"]})
    with LogManager.open(str(tmp_path)), pytest.raises((LockedError, StorageError), match="broker"):
        load(tmp_path, {"value": [b"2"]})
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    with pytest.raises(StorageError, match="not closed in good order"):
        load(tmp_path, {"value": [b"2"]})


def test_what_waits_to_be_deleted_in_a_new_root_is_left_alone(tmp_path: Path) -> None:
    left = tmp_path / f"orders-0.{'0' * 31}7-delete"
    left.mkdir()
    load(tmp_path, {"value": [b"1"]})
    assert [record.value for record in records(tmp_path)] == [b"1"]
    assert left.is_dir()


def test_a_directory_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InvalidRequestError, match="other things"):
        load(tmp_path, {"value": [b"1"]})
    load(tmp_path / "r", {"value": [b"1"]})
    with pytest.raises(InvalidRequestError, match="directory of a partition"):
        load(tmp_path / "r" / "orders-0", {"value": [b"1"]})
    with pytest.raises(InvalidRequestError, match="is a file"):
        load(tmp_path / "letter.txt", {"value": [b"1"]})


def test_an_empty_name_is_not_the_directory_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequestError, match="the name of a directory is empty"):
        load_table([pa.RecordBatch.from_pydict({"value": [b"v"]})], "", "orders")
    assert not list(tmp_path.iterdir())
