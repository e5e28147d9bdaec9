"""`tidelog spark` as it is typed: a process of its own, with a JVM of its own where one is needed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tests.golden.corpus import case
from tests.spark.logs import record, write
from tidelog.cli.main import cli

JOBS = ("compact", "diff", "export", "load", "profile", "verify")
HEAVY = {"numpy", "pyarrow", "numba", "pyspark"}

needs_spark = pytest.mark.skipif(
    shutil.which("java") is None and os.environ.get("TIDELOG_REQUIRE_SPARK") != "1", reason="Spark needs Java 17"
)


def tidelog(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process that has no idea of a worker's Python."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**mine, **environment},
    )


def typed(*words: str) -> Result:
    return CliRunner().invoke(cli, ["spark", *words], prog_name="tidelog")


# -- without Spark -------------------------------------------------------------------------------------------------


def test_help_names_the_jobs_and_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tidelog", "spark", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(f"  {job} " in done.stdout for job in JOBS)
    imported = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert not imported & HEAVY


@pytest.mark.parametrize("job", JOBS)
def test_every_job_has_a_help_text(job: str) -> None:
    done = typed(job, "--help")
    assert done.exit_code == 0
    assert "--master" in done.stdout


def test_a_job_that_there_is_not_is_answered_with_the_nearest() -> None:
    done = typed("profil", "x")
    assert done.exit_code == 2
    assert done.stderr == "tidelog: no such job 'profil'. Did you mean 'profile'? Try `tidelog spark --help`.\n"


def test_the_script_is_a_file_that_is_installed() -> None:
    done = typed("--script")
    assert done.exit_code == 0
    assert Path(done.stdout.strip()).read_text().startswith('"""What spark-submit runs')


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "{}/nowhere"),
        ("diff", "{}/nowhere", "{}"),
        ("profile", "{}/nowhere"),
        ("profile", "{}", "--topic", "nothing"),
        ("export", "{}/nowhere", "--to", "{}/out"),
        ("export", "{}", "--to", "{}/out", "--value", "json"),
        ("compact", "{}/nowhere", "--topic", "t"),
        ("verify", "{}", "--conf", "nothing"),
    ],
)
def test_what_cannot_be_is_said_before_spark_is_started(tmp_path: Path, words: tuple[str, ...]) -> None:
    write(tmp_path, "orders", 0, [record(0)])
    done = tidelog("spark", *(word.format(tmp_path) for word in words), JAVA_HOME="/nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("tidelog: ")
    assert done.stderr.count("\n") == 1
    assert "Java" not in done.stderr


def test_without_java_the_first_line_says_how_to_get_it(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, [record(0)])
    done = tidelog("spark", "verify", str(tmp_path), JAVA_HOME="/nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("tidelog: Spark needs Java 17 or newer, and there is none: install one (Debian: apt")
    assert done.stderr.count("\n") == 1


# -- with Spark ----------------------------------------------------------------------------------------------------


@needs_spark
def test_verify_prints_what_fsck_prints_and_nothing_else() -> None:
    directory = str(case("kafka-4.3/6-recovery") / "clean")
    done = tidelog("spark", "verify", directory, "--json", "--master", "local[2]")
    plain = tidelog("fsck", directory, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout) == json.loads(plain.stdout)


@needs_spark
def test_spark_submit_runs_the_script_with_an_error_in_one_line(tmp_path: Path) -> None:
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    script = typed("--script").stdout.strip()
    write(tmp_path, "orders", 0, (record(number) for number in range(50)))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_HOSTNAME": "localhost"}

    def submitted(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(submit), "--master", "local[2]", script, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)

    done = submitted("profile", str(tmp_path), "--json", "--report", "here.html")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["topics"][0]["records"] == 50
    assert Path(told["report"]).read_text().startswith("<!doctype html>")
    done = submitted("verify", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("tidelog: ")]  # where spark-submit puts it
    assert "is no directory" in line


@needs_spark
def test_an_error_inside_a_job_is_one_line(tmp_path: Path) -> None:
    write(tmp_path / "logs", "orders", 0, (record(number) for number in range(50)))
    (log,) = (tmp_path / "logs").glob("orders-0/*0.log")
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(data)
    done = tidelog("spark", "export", str(tmp_path / "logs"), "--to", str(tmp_path / "out"), "--master", "local[2]")
    assert done.returncode == 3
    assert done.stderr.startswith("tidelog: ")
    assert str(log) in done.stderr
    assert "tidelog fsck --deep" in done.stderr
    assert done.stderr.count("\n") == 1


# -- the commands that take --master -----------------------------------------------------------------------------------


@needs_spark
def test_export_and_load_with_a_master_do_what_they_do_without(tmp_path: Path) -> None:
    write(tmp_path / "logs", "orders", 0, (record(number) for number in range(50)))
    write(tmp_path / "logs", "orders", 1, (record(number) for number in range(30)))
    source = str(tmp_path / "logs")
    tables, roots = [], []
    for master in ((), ("--master", "local[2]")):
        table = str(tmp_path / f"table-{len(master)}/")
        words = ("--topic", "orders", "--to", f"{table}/", "--format", "parquet", *master)
        done = tidelog("export", source, *words)
        assert (done.returncode, done.stderr) == (0, "")
        tables.append(pq.read_table(table).sort_by([("partition", "ascending"), ("offset", "ascending")]))
        root = str(tmp_path / f"root-{len(master)}")
        words = ("--to", root, "--topic", "orders", "--partitions", "2", "--format", "parquet", *master)
        done = tidelog("load", table, *words, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        roots.append(sorted(done.stdout.splitlines()))
    assert tables[1].cast(tables[0].schema).equals(tables[0])
    assert roots[0] == roots[1]
    assert tidelog("diff", source, str(tmp_path / "root-2"), "--records", "--ignore-epochs").returncode == 0


@needs_spark
def test_export_with_a_master_reports_a_torn_end_as_it_does_without(tmp_path: Path) -> None:
    write(tmp_path / "logs", "orders", 0, (record(number) for number in range(50)))
    write(tmp_path / "logs", "other", 0, (record(number) for number in range(5)))
    for log in (tmp_path / "logs").glob("*-0/*0.log"):
        os.truncate(log, log.stat().st_size - 3)
    words = ("export", str(tmp_path / "logs"), "--topic", "orders", "--format", "parquet", "--to")
    plain = tidelog(*words, str(tmp_path / "plain/"))
    on_spark = tidelog(*words, str(tmp_path / "spark/"), "--master", "local[1]")
    assert (plain.returncode, on_spark.returncode) == (1, 1)
    assert "bytes are left out" in plain.stderr
    assert on_spark.stderr == plain.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("export", "{}", "--topic", "orders", "--to", "x.csv"), "with --master the format is parquet"),
        (("export", "{}", "--topic", "orders", "--to", "x.parquet", "--key", "a"), "--key does not go with --master"),
        (("export", "{}", "--topic", "orders", "--to", "x/", "--partition", "0"), "--partition does not go with"),
        (("export", "{}", "--topic", "orders", "--to", "x.1/", "--key", "a"), "--key does not go with --master"),
        (("export", "{}", "--topic", "orders", "--to", "x.parquet/", "--key", "a"), "--key does not go with --master"),
        (("load", "x.jsonl", "--to", "{}", "--topic", "orders"), "with --master the format is parquet"),
        (("load", "x.parquet", "--to", "{}", "--topic", "t", "--internal"), "--internal does not go with --master"),
    ],
)
def test_what_spark_does_not_do_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    typed_words = [word.format(tmp_path) for word in words]
    done = CliRunner().invoke(cli, [*typed_words, "--master", "local[2]"], prog_name="tidelog")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"tidelog: {said}")
