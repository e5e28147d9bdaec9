"""What `tidelog load` writes, in the hands of real Kafka: its tool finds nothing wrong, its broker serves all of it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

import tidelog
from tests.compat.broker import Broker
from tests.compat.broker_clients import consume, create_topic, produce
from tests.compat.kafka_tools import dump_log, judge_read, parse_dump
from tests.golden import corpus
from tests.interop.judges import Seen
from tests.tables.loads import ADDED, load_here
from tidelog.cli.main import cli
from tidelog.log.names import UNFINISHED_WRITE
from tidelog.records import Header, NewRecord

TIME = 1_700_000_000_000
PARTITIONS = 3


def run(*arguments: str) -> None:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output


def test_the_dump_tool_and_kafkas_classes_find_nothing_wrong(tmp_path: Path) -> None:
    golden = corpus.case("kafka-4.3/2-records") / "image"
    for topic, codec in (("rec-headers", "none"), ("rec-binary", "zstd"), ("rec-sizes", "lz4")):
        run("export", str(golden), "--topic", topic, "--to", f"{tmp_path}/{topic}.parquet")
        run(
            "load", f"{tmp_path}/{topic}.parquet", "--to", f"{tmp_path}/root", "--topic", topic,
            "--compression", codec, "--set", "segment.bytes=10000", "--set", "max.message.bytes=5000000",
        )  # fmt: skip
    logs = sorted((tmp_path / "root").rglob("*.log"))
    assert len(logs) > 3
    given = [
        (record.key, record.value, record.timestamp_ms)
        for part in sorted(tidelog.open(str(tmp_path / "root")), key=lambda part: part.path)
        for record in part.read()
    ]
    assert [(record.key, record.value, record.timestamp) for record in judge_read(logs)] == given
    result = dump_log(logs, "--deep-iteration")
    assert result.exit == 0, result.stderr
    batches = [batch for file in parse_dump(result.stdout) for batch in file.batches]
    assert {batch.fields["isvalid"] for batch in batches} == {"true"}
    assert "Found" not in result.stdout
    indexes = [path for suffix in ("index", "timeindex") for path in (tmp_path / "root").rglob(f"*.{suffix}")]
    checked = dump_log(sorted(indexes), "--index-sanity-check")
    assert checked.exit == 0, checked.stderr
    assert "mismatch" not in checked.stdout.lower()
    assert checked.stdout.count("passed sanity check") >= len(logs)


def test_a_broker_serves_every_record_that_was_loaded(tmp_path: Path) -> None:
    broker = Broker.format(tmp_path / "root")
    with broker.running():
        create_topic(broker, "orders", PARTITIONS)
        produce(broker, "orders", 0, [NewRecord(b"first", b"by a client", TIME)])
    headers = [{"key": "h", "value": {"base64": "/w=="}}]
    rows = [
        {"key": f"key {number}", "value": "v" * (number % 500), "timestamp": TIME + number, "headers": headers}
        for number in range(3000)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run("load", f"{tmp_path}/rows.jsonl", "--to", str(broker.root), "--topic", "orders", "--compression", "snappy")
    logs = tidelog.open(str(broker.root))
    expected = {number: list(logs["orders", number].read()) for number in range(PARTITIONS)}
    assert sum(map(len, expected.values())) == 3001
    with broker.running():
        for number, records in expected.items():
            given = consume(broker, "orders", number)
            assert given.end == logs["orders", number].log_end_offset
            assert given.records == [
                Seen(r.offset, r.timestamp_ms, r.key, r.value, tuple((h.key, h.value) for h in r.headers), 0)
                for r in records
            ]
        produce(broker, "orders", 1, [NewRecord(b"last", b"by a client", TIME, (Header("h", b"x"),))])
        assert consume(broker, "orders", 1).records[-1].key == b"last"


def test_a_broker_serves_once_what_a_killed_load_and_the_next_have_loaded(tmp_path: Path) -> None:
    broker = Broker.format(tmp_path / "root")
    with broker.running():
        create_topic(broker, "orders", PARTITIONS)
        produce(broker, "orders", 0, [NewRecord(b"first", b"by a client", TIME)])
    kill_a_load(broker.root)
    assert (broker.root / UNFINISHED_WRITE).exists()
    load_here(str(broker.root))
    with broker.running():
        found = {number: [r.value for r in consume(broker, "orders", number).records] for number in range(PARTITIONS)}
    assert found == {**ADDED, 0: [b"by a client", *ADDED[0]]}


def kill_a_load(root: Path) -> None:
    """Kill it with its twentieth call to the disk: it has begun to append."""
    command = [sys.executable, "-m", "tests.tables.loads", str(root), "20"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_broker_with_two_log_directories_serves_what_was_loaded_into_both(tmp_path: Path) -> None:
    dirs = [tmp_path / "d1", tmp_path / "d2"]
    broker = Broker.format(dirs[0], more_roots=dirs[1:])
    with broker.running():
        create_topic(broker, "orders", 4)
    assert [len(list(each.glob("orders-*"))) for each in dirs] == [2, 2]
    rows = "".join(f'{{"key": "k{number}", "value": "v{number}"}}\n' for number in range(400))
    (tmp_path / "rows.jsonl").write_text(rows)
    words = ["load", str(tmp_path / "rows.jsonl"), "--topic", "orders", "--partitions", "4", "--to", str(dirs[0])]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert "broker 1 has 2 log directories by its metadata log, and 1 directory is named" in done.output
    run(*words, "--to", str(dirs[1]))
    assert [len(list(each.glob("orders-*"))) for each in dirs] == [2, 2]
    logs = tidelog.open([str(each) for each in dirs])
    expected = {number: [record.value for record in logs["orders", number].read()] for number in range(4)}
    assert sum(map(len, expected.values())) == 400
    with broker.running():
        for number, values in expected.items():
            assert [record.value for record in consume(broker, "orders", number).records] == values
