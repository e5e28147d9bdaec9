"""The jobs as they are typed, on a session that is there: exit codes, and JSON beside that of the plain commands."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from tests.golden.corpus import case
from tests.spark.logs import record, write
from tests.spark.test_jobs_compact import a_root
from tests.view.scans import some, write_log
from tidelog.cli.main import cli
from tidelog.log.names import CLEAN_SHUTDOWN
from tidelog.records import Codec

pytestmark = pytest.mark.usefixtures("spark")


def typed(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], prog_name="tidelog")


def lines(done: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_verify_is_fsck() -> None:
    directory = case("kafka-4.3/6-recovery") / "clean"
    for deep in ((), ("--deep",)):
        plain, done = typed("fsck", directory, "--json", *deep), typed("spark", "verify", directory, "--json", *deep)
        assert (done.exit_code, lines(done)) == (plain.exit_code, lines(plain))
    assert typed("spark", "verify", directory).stdout == typed("fsck", directory).stdout


def test_a_clean_directory_is_exit_code_0(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, [record(0)])
    done = typed("spark", "verify", tmp_path)
    assert done.exit_code == 0
    assert "1 partition, 1 segment, 1 batch" in done.stdout


@pytest.mark.parametrize("options", [(), ("--records",), ("--strict", "--no-verify"), ("--topic", "k-basic")])
def test_diff_is_diff(options: tuple[str, ...]) -> None:
    golden = case("kafka-4.3/5-compaction")
    sides = golden / "1-before", golden / "1-after"
    plain, done = typed("diff", *sides, "--json", *options), typed("spark", "diff", *sides, "--json", *options)
    assert plain.exit_code == 1
    assert (done.exit_code, lines(done)) == (1, lines(plain))
    assert typed("spark", "diff", *sides, *options).stdout == typed("diff", *sides, *options).stdout


def test_compact_is_compact(tmp_path: Path) -> None:
    one, two = a_root(tmp_path / "one", "k-basic", "k-txn"), a_root(tmp_path / "two", "k-basic", "k-txn")
    topics = ("--topic", "k-basic", "--topic", "k-txn", "--json")
    plain, done = typed("compact", one, *topics), typed("spark", "compact", two, *topics)
    assert (done.exit_code, done.stdout) == (0, plain.stdout)
    assert [row["dry_run"] for row in lines(done)] == [True, True, False, False]
    assert (two / CLEAN_SHUTDOWN).exists()


def test_compact_refuses_what_compact_refuses(tmp_path: Path) -> None:
    root = a_root(tmp_path, "k-basic")
    (root / CLEAN_SHUTDOWN).unlink()
    plain, done = typed("compact", root, "--topic", "k-basic"), typed("spark", "compact", root, "--topic", "k-basic")
    assert (done.exit_code, done.stderr) == (plain.exit_code, plain.stderr)
    assert done.exit_code == 3


def test_export_and_load_make_the_round(tmp_path: Path) -> None:
    logs, out, new = tmp_path / "logs", tmp_path / "out", tmp_path / "new"
    write(logs, "orders", 0, (record(number) for number in range(60)))
    write(logs, "orders", 1, (record(number) for number in range(20)))
    done = typed("spark", "export", logs, "--topic", "orders", "--to", out, "--json")
    assert done.exit_code == 0
    assert lines(done) == [{"target": str(out), "records": 80, "corrupt": 0, "damaged": 0, "batches": None}]
    done = typed("spark", "load", out, "--to", new, "--topic", "copy", "--partitions", "2", "--json")
    assert done.exit_code == 0
    assert [(row["partition"], row["records"]) for row in lines(done)] == [(0, 60), (1, 20)]
    (new / "copy-0").rename(new / "orders-0")
    (new / "copy-1").rename(new / "orders-1")
    assert "the same records" in typed("diff", logs, new, "--records").stdout


def test_values_that_are_not_what_was_asked_for_are_exit_code_1(tmp_path: Path) -> None:
    write(tmp_path / "logs", "orders", 0, (record(number) for number in range(3)))
    done = typed(
        "spark", "export", tmp_path / "logs", "--to", tmp_path / "out", "--value", "json", "--schema", "a INT"
    )  # fmt: skip
    assert done.exit_code == 1
    assert "3 values in _corrupt_record" in done.stdout


def test_profile_prints_a_table_and_writes_a_report(tmp_path: Path) -> None:
    write(tmp_path / "logs", "orders", 0, (record(number) for number in range(60)))
    report = tmp_path / "report.html"
    done = typed("spark", "profile", tmp_path / "logs", "--report", report)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[1].split()[:3] == ["orders", "1", "60"]
    assert done.stdout.splitlines()[-1] == f"report: {report}"
    assert report.read_text().startswith("<!doctype html>")
    shutil.rmtree(tmp_path / "logs")
    assert typed("spark", "profile", tmp_path / "logs").exit_code == 2


def test_the_table_of_a_profile_tells_that_codecs_are_mixed(tmp_path: Path) -> None:
    write_log(tmp_path, [("put", Codec.NONE, some(9)), ("put", Codec.LZ4, some(9))], "orders-0")
    done = typed("spark", "profile", tmp_path, "--report", tmp_path / "report.html")
    assert done.stdout.splitlines()[1].split()[-1] == "mixed"
    assert "<td>mixed</td>" in (tmp_path / "report.html").read_text()


def test_a_session_that_was_there_is_left_open(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, [record(0)])
    typed("spark", "verify", tmp_path)
    assert spark.range(3).count() == 3
