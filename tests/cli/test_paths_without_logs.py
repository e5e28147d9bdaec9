"""One rule for every command: a path that does not exist, is a file, is empty or holds no log is wrong usage."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.spark.logs import record, write
from tidelog.cli.main import cli

COMMANDS = (
    "ls {path}",
    "ls {path} {root}",
    "cat {path} --topic orders",
    "export {path} --topic orders --to {out}",
    "explain {path} --topic orders --partition 0 --offset 0",
    "fsck {path}",
    "fsck {root} {path}",
    "fsck {path} --would-start",
    "fsck {path} --repair",
    "fsck {path} --repair --dry-run",
    "recover {path}",
    "recover {root} {path}",
    "reindex {path}",
    "reindex {path} --verify",
    "diff {path} {root}",
    "diff {root} {path}",
    "compact {path} --topic orders",
    "compact {path} --topic orders --dry-run",
    "load {path} --to {new} --topic orders",
    "spark verify {path}",
    "spark profile {path}",
    "spark diff {root} {path}",
    "spark compact {path} --topic orders",
    "spark export {path} --topic orders --to {new}",
)
TAKE_NO_LOG_DIRECTORY = {"completion", "doctor", "warmup"}
OF_KAFKAS_TOOL = {"dump-log"}
LIKE_THE_PLAIN_COMMAND = {"spark load"}  # its input is a table, which Spark looks for


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write(tmp_path / "root", "orders", 0, (record(number) for number in range(3)))
    (tmp_path / "root" / ".kafka_cleanshutdown").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "readme").write_text("hello")
    (tmp_path / "file").write_text("hello")
    return tmp_path


def contents(place: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() else None for path in sorted(place.rglob("*"))
    }


@pytest.mark.parametrize("name", ["missing", "empty", "foreign", "file"])
@pytest.mark.parametrize("words", COMMANDS)
def test_a_path_without_logs_is_wrong_usage_and_nothing_is_touched(place: Path, words: str, name: str) -> None:
    before = contents(place)
    paths = {"path": place / name, "root": place / "root", "out": place / "out.csv", "new": place / "new"}
    done = CliRunner().invoke(cli, words.format(**paths).split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("tidelog: ")
    assert str(place / name) in done.stderr
    assert done.stderr.count("\n") == 1
    assert contents(place) == before


def test_every_command_is_held_to_the_rule() -> None:
    spark = cli.get_command(click.Context(cli), "spark")
    assert isinstance(spark, click.Group)
    jobs = {f"spark {name}" for name in spark.list_commands(click.Context(spark))}
    known = set(cli.list_commands(click.Context(cli))) - {"spark"} | jobs
    tested = {" ".join(words.split()[: 2 if words.startswith("spark ") else 1]) for words in COMMANDS}
    assert known - TAKE_NO_LOG_DIRECTORY - OF_KAFKAS_TOOL - LIKE_THE_PLAIN_COMMAND == tested


@pytest.mark.parametrize("words", ["fsck", "recover", "reindex --verify", "compact --topic orders --dry-run"])
def test_a_new_disk_of_a_broker_is_passed_over(place: Path, words: str) -> None:
    config = place / "server.properties"
    config.write_text(f"log.dirs={place}/root,{place}/empty\n")
    alone = CliRunner().invoke(cli, [*words.split(), str(place / "root")])
    assert alone.exit_code in (0, 1)
    both = CliRunner().invoke(cli, [*words.split(), "--config", str(config)])
    assert (both.exit_code, both.output) == (alone.exit_code, alone.output)
    config.write_text(f"log.dirs={place}/empty\n")
    done = CliRunner().invoke(cli, [*words.split(), "--config", str(config)])
    assert done.exit_code == (1 if words == "fsck" else 2), "fsck says whether a broker would start there"


@pytest.mark.parametrize(
    "command",
    [
        ("ls", "ADDRESS"),
        ("cat", "ADDRESS", "--topic", "t"),
        ("fsck", "ADDRESS"),
        ("diff", "ADDRESS", "ADDRESS"),
        ("load", "ADDRESS", "--topic", "t", "--to", "ROOT/new", "--format", "csv"),
        ("export", "ROOT", "--topic", "orders", "--to", "ADDRESS", "--format", "csv"),
        ("cat", "ROOT", "--topic", "orders", "--out", "ADDRESS"),
        ("spark", "verify", "ADDRESS"),
    ],
)
@pytest.mark.parametrize("address", ["s3://", "gs://", "s3a:///logs/"])
def test_an_address_without_a_bucket_is_rejected_as_it_was_typed(
    tmp_path: Path, command: tuple[str, ...], address: str
) -> None:
    write(tmp_path, "orders", 0, [record(0)])
    words = [word.replace("ADDRESS", address).replace("ROOT", str(tmp_path)) for word in command]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2, done.output
    scheme = address.partition(":")[0]
    assert done.stderr == f"tidelog: {address} names no bucket: an address is written {scheme}://bucket/path\n"
