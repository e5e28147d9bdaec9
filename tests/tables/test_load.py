"""Rows become logs: where each goes, what is refused, and that a failure leaves nothing behind."""

import random
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
    InvalidTimestampError,
    LockedError,
    MessageTooLargeError,
    StorageError,
    TidelogError,
)
from tidelog.log import LogManager, ManualClock
from tidelog.log.names import CLEAN_SHUTDOWN, TopicPartition
from tidelog.records import Record
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
        ({"value": [bytes(2_000_000)]}, {}, MessageTooLargeError, "2000"),
        ({"value": [b"x"], "timestamp": [NOW * 2]}, {}, InvalidTimestampError, "timestamp"),
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
    assert [str(partition) for partition in tidelog.open(str(tmp_path)).partitions] == ["orders-0"]
    load(tmp_path, {"value": [b"again"]})


def test_a_root_that_is_open_or_was_not_closed_is_refused(tmp_path: Path) -> None:
    load(tmp_path, {"value": [b"1"]})
    with LogManager.open(str(tmp_path)), pytest.raises((LockedError, StorageError), match="broker"):
        load(tmp_path, {"value": [b"2"]})
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    with pytest.raises(StorageError, match="not closed in good order"):
        load(tmp_path, {"value": [b"2"]})


def test_a_directory_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InvalidRequestError, match="other things"):
        load(tmp_path, {"value": [b"1"]})
    load(tmp_path / "r", {"value": [b"1"]})
    with pytest.raises(InvalidRequestError, match="directory of a partition"):
        load(tmp_path / "r" / "orders-0", {"value": [b"1"]})
    with pytest.raises(InvalidRequestError, match="is a file"):
        load(tmp_path / "letter.txt", {"value": [b"1"]})
