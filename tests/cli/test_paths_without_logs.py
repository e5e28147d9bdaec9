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
    "reindex {root} {path}",
    "reindex {root} {path} --topic orders",
    "diff {path} {root}",
    "diff {root} {path}",
    "compact {path} --topic orders",
    "compact {path} --topic orders --dry-run",
    "compact {root} {path} --topic orders",
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


def say_owner(root: Path, directory_id: str) -> None:
    (root / "meta.properties").write_text(
        f"version=1\nnode.id=1\ncluster.id=tlGoldenCorpus43xxxxxA\ndirectory.id={directory_id}\n"
    )


@pytest.fixture(params=["empty", "formatted"])
def new_disk(request: pytest.FixtureRequest, place: Path) -> Path:
    """A log directory without partitions, beside `root`: unformatted like that one, or both are formatted."""
    if request.param == "formatted":
        say_owner(place / "root", "OimrddjSTw20XAh5VnF0_A")
        say_owner(place / "empty", "1tqYDSwdSPSJC3_YrWReVw")
    return place / "empty"


ON_LOG_DIRS = (
    "fsck",
    "fsck --repair --dry-run",
    "recover",
    "reindex",
    "reindex --dry-run",
    "reindex --verify",
    "compact --topic orders --dry-run",
)
REPORT_EVERY_DIRECTORY = ("fsck", "recover")


@pytest.mark.parametrize("words", ON_LOG_DIRS)
def test_a_new_disk_of_a_broker_is_passed_over(place: Path, new_disk: Path, words: str) -> None:
    config = place / "server.properties"
    config.write_text(f"log.dirs={place}/root,{new_disk}\n")
    ensure_as_without(words, [place / "root"], ["--config", str(config)])


@pytest.mark.parametrize("words", ["ls", *ON_LOG_DIRS])
@pytest.mark.parametrize("names", [("root", "empty"), ("empty", "root")])
def test_a_formatted_disk_without_partitions_is_passed_over_when_it_is_named(
    place: Path, words: str, names: tuple[str, str]
) -> None:
    say_owner(place / "root", "OimrddjSTw20XAh5VnF0_A")
    say_owner(place / "empty", "1tqYDSwdSPSJC3_YrWReVw")
    ensure_as_without(words, [place / "root"], [str(place / name) for name in names])


def ensure_as_without(words: str, filled: list[Path], arguments: list[str]) -> None:
    """A command ends, and prints, as it does on the directories that have partitions."""
    alone = CliRunner().invoke(cli, [*words.split(), *map(str, filled)])
    assert alone.exit_code in (0, 1)
    done = CliRunner().invoke(cli, [*words.split(), *arguments])
    assert done.exit_code == alone.exit_code, done.output
    if words.startswith(REPORT_EVERY_DIRECTORY):
        assert alone.output.splitlines()[0] in done.output
    else:
        assert done.output == alone.output


@pytest.mark.parametrize("words", ON_LOG_DIRS)
def test_new_disks_alone_are_wrong_usage(place: Path, words: str) -> None:
    config = place / "server.properties"
    config.write_text(f"log.dirs={place}/empty\n")
    done = CliRunner().invoke(cli, [*words.split(), "--config", str(config)])
    assert done.exit_code == (1 if words == "fsck" else 2), "fsck says whether a broker would start there"


@pytest.mark.parametrize("words", ["reindex", "reindex --dry-run", "compact --topic orders"])
def test_formatted_disks_without_partitions_leave_nothing_to_work_on(place: Path, words: str) -> None:
    for name, directory_id in (("empty", "OimrddjSTw20XAh5VnF0_A"), ("foreign", "1tqYDSwdSPSJC3_YrWReVw")):
        say_owner(place / name, directory_id)
    done = CliRunner().invoke(cli, [*words.split(), str(place / "empty"), str(place / "foreign")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert ("has a partition of topic orders" if "--topic" in words else "holds nothing to work on") in done.stderr


def test_a_load_takes_a_new_disk_for_a_log_directory(place: Path, new_disk: Path) -> None:
    config = place / "server.properties"
    config.write_text(f"log.dirs={place}/root,{new_disk}\n")
    rows = place / "rows.csv"
    rows.write_text("value,partition\nx,1\n")
    words = ["load", str(rows), "--topic", "orders", "--partitions", "2", "--config", str(config)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.stderr
    assert (new_disk / "orders-1").is_dir(), "a new partition goes where the fewest are"


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
