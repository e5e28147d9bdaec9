"""`tidelog dump-log`: its own option, names without an option, and exit codes."""

from pathlib import Path

from click.testing import CliRunner, Result

from tests.golden.corpus import case
from tidelog.cli.main import cli

MIXED = case("dump-formats") / "written-by-1.0.0" / "mixed-0"
INDEX = str(MIXED / "00000000000000000000.index")


def dump_log(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["dump-log", *arguments])


def test_a_name_in_front_needs_no_files_option() -> None:
    assert dump_log(INDEX).output == dump_log("--files", INDEX).output
    assert dump_log(INDEX).stdout.startswith(f"Dumping {INDEX}\noffset: 8 position: 245\n")


def test_the_release_is_chosen_wherever_its_option_stands() -> None:
    log = str(MIXED / "00000000000000000000.log")
    old = dump_log("--kafka-version", "1.0.0", "--files", log)
    assert "\nStarting offset: 0\n" in old.stdout
    assert dump_log("--files", log, "--kafka-version=1.0.0").output == old.output
    assert "\nLog starting offset: 0\n" in dump_log("--files", log).stdout


def test_exit_codes_are_those_of_the_tool() -> None:
    assert dump_log("--files", INDEX).exit_code == 0
    assert dump_log("--no-such-option").exit_code == 1
    assert dump_log("--help").exit_code == 1
    assert "REQUIRED: The comma separated list" in dump_log("--help").stderr


def test_an_unknown_release_is_wrong_usage_in_one_line() -> None:
    done = dump_log("--kafka-version", "7", INDEX)
    assert done.exit_code == 2
    assert done.stderr == "tidelog: Kafka release '7' is not known: give one from 0.8.2 to 4.3\n"
    assert dump_log("--kafka-version").exit_code == 2


def test_our_own_help_tells_what_the_tool_does_not_have() -> None:
    done = dump_log("-h")
    assert done.exit_code == 0
    assert "--kafka-version X" in done.stdout


def test_an_empty_directory_is_told_in_one_line(tmp_path: Path) -> None:
    done = dump_log(str(tmp_path))
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert str(tmp_path) in done.stderr
