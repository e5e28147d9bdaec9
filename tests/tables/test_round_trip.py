"""What `tidelog export` writes of a topic, `tidelog load` makes the same records of: each format, each golden topic."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tidelog
from tests.golden import corpus
from tidelog.cli.main import cli
from tidelog.errors import InvalidRequestError
from tidelog.log import ManualClock
from tidelog.log.names import CLUSTER_METADATA_TOPIC
from tidelog.records import Header
from tidelog.tables.load import load_table

FORMATS = ("parquet", "csv", "jsonl", "arrow")

Rows = dict[int, list[tuple[bytes | None, bytes | None, tuple[Header, ...], int]]]


def golden_topics() -> list[tuple[Path, str]]:
    """A directory of partitions and a topic in it; of those whose logs are equal byte for byte, the first."""
    found: dict[tuple[Path, str], list[corpus.Partition]] = {}
    for partition in corpus.undamaged_partitions():
        topic, _, number = partition.path.name.rpartition("-")
        if number.isdecimal() and topic != CLUSTER_METADATA_TOPIC:
            found.setdefault((partition.path.parent, topic), []).append(partition)
    unlike = {
        tuple((partition.path.name, partition.read()) for partition in parts): place for place, parts in found.items()
    }
    return sorted(unlike.values())


def rows_of(root: Path, topic: str) -> Rows:
    """The committed records of each partition that has some, without their offsets."""
    read = {
        one.partition: [(r.key, r.value, r.headers, r.timestamp_ms) for r in one.read(committed=True)]
        for one in tidelog.open(str(root))[topic]
    }
    return {number: rows for number, rows in read.items() if rows}


def unequal(form: str, home: Path) -> Iterator[str]:
    """The topics that are not loaded as they were exported."""
    for number, (place, topic) in enumerate(golden_topics()):
        file, logs = home / f"{number}.{form}", home / f"logs-{number}"
        done = CliRunner().invoke(cli, ["export", str(place), "--topic", topic, "--to", str(file), "--format", form])
        assert done.exit_code in (0, 1), done.output  # 1: something was left out, and said so
        done = CliRunner().invoke(cli, ["load", str(file), "--to", str(logs), "--topic", topic, "--internal"])
        if done.exit_code:
            yield f"{place}, {topic}: {done.stderr}"
        elif rows_of(place, topic) != (rows_of(logs, topic) if logs.exists() else {}):
            yield f"{place}, {topic}: other records"


@pytest.mark.parametrize("form", FORMATS)
def test_every_golden_topic_comes_back_from_a_file(form: str) -> None:
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # hundreds of loads wait for a disk thousands of times
    with tempfile.TemporaryDirectory(dir=memory) as home:
        assert list(unequal(form, Path(home))) == []


@pytest.mark.parametrize("time", [-2, -1, 0, -86_400_000, -(2**62)])
def test_a_time_that_a_broker_stores_is_loaded_as_a_broker_stores_it(tmp_path: Path, time: int) -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"v"], "timestamp": [time]})
    load_table([rows], str(tmp_path), "orders", clock=ManualClock(1_700_000_000_000))
    [batch] = tidelog.open(str(tmp_path))["orders", 0].batches()
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (time, max(time, -1))


def test_a_time_that_a_broker_rejects_is_named_with_its_row_and_the_config_that_allows_it(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"v", b"w"], "timestamp": [0, -(2**63)]})
    with pytest.raises(InvalidRequestError, match=r"row 2: .*timestamp -9223372036854775808 .*before\.max\.ms"):
        load_table([rows], str(tmp_path), "orders", clock=ManualClock(1_700_000_000_000))
