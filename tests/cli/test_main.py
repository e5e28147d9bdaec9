"""The frame of the command line: what it costs to start, and what becomes of errors."""

import errno
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import tidelog
import tidelog.cli
from tidelog.cli.main import cli
from tidelog.errors import (
    CorruptRecordError,
    DecompressionError,
    InvalidRequestError,
    StorageError,
    TidelogError,
    UnsupportedCompressionError,
)

HEAVY = {"numpy", "pyarrow", "numba", "llvmlite"}


def imported_by(*arguments: str) -> set[str]:
    """The top-level packages that a fresh interpreter imports when run with these arguments."""
    done = subprocess.run([sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}


def test_help_imports_no_arrays_no_columns_no_compiler_and_no_rich() -> None:
    imported = imported_by("-m", "tidelog", "--help")
    assert {"click", "tidelog"} <= imported
    assert imported & (HEAVY | {"rich"}) == set()


def test_importing_the_package_costs_nothing() -> None:
    imported = imported_by("-c", "import tidelog")
    assert "tidelog" in imported
    assert imported & (HEAVY | {"rich", "click"}) == set()


def test_the_version_is_that_of_the_package() -> None:
    done = subprocess.run([sys.executable, "-m", "tidelog", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tidelog {tidelog.__version__}\n"


def test_every_command_has_a_help_text() -> None:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.help, f"tidelog {name} has no help"


def test_a_command_is_imported_when_it_is_called_and_no_other() -> None:
    code = "import sys; from tidelog.cli.main import cli; cli(['warmup', '--help'], standalone_mode=False)"
    code += "; print([name for name in sys.modules if name.startswith('tidelog.cli.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout.splitlines()[-1]
        == "['tidelog.cli.once', 'tidelog.cli.streams', 'tidelog.cli.main', 'tidelog.cli.warmup']"
    )


def test_the_module_of_every_command_is_listed() -> None:
    beside = {"__init__", "bounds", "compaction_run", "interrupted", "main", "on_master", "output", "records"}
    beside |= {"loaded", "local_paths", "log_dirs", "once", "settings", "streams"}
    modules = {path.stem for path in Path(tidelog.cli.__file__).parent.glob("*.py")} - beside
    assert {name.replace("-", "_") for name in cli.list_commands(click.Context(cli))} == modules


@pytest.fixture
def run_raising() -> Iterator[Callable[..., Result]]:
    """Run `tidelog fail` with a command that raises the given error."""

    def run(error: BaseException, *options: str) -> Result:
        @click.command("fail")
        def fail() -> None:
            raise error

        cli.add_command(fail)
        return CliRunner().invoke(cli, [*options, "fail"])

    yield run
    cli.commands.pop("fail", None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequestError("there is no topic 'a'"), 2),
        (UnsupportedCompressionError("codec 5 does not exist"), 2),
        (CorruptRecordError("00000000000000000000.log, position 4096: stored crc 0x1, computed 0x2"), 3),
        (DecompressionError("broken stream"), 3),
        (StorageError("the disk is full"), 3),
        (TidelogError("something else"), 3),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    run_raising: Callable[..., Result], error: TidelogError, code: int
) -> None:
    result = run_raising(error)
    assert (result.stdout, result.stderr) == ("", f"tidelog: {error}\n")
    assert result.exit_code == code


def test_an_error_of_the_system_names_its_file(run_raising: Callable[..., Result]) -> None:
    result = run_raising(FileNotFoundError(errno.ENOENT, "No such file or directory", "logs/orders-0"))
    assert (result.stderr, result.exit_code) == ("tidelog: logs/orders-0: No such file or directory\n", 3)


def test_a_message_of_several_lines_becomes_one(run_raising: Callable[..., Result]) -> None:
    assert run_raising(StorageError("first\n  second")).stderr == "tidelog: first second\n"


def test_traceback_shows_the_rest(run_raising: Callable[..., Result]) -> None:
    result = run_raising(StorageError("the disk is full"), "--traceback")
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert result.stderr.endswith("\ntidelog: the disk is full\n")
    assert result.exit_code == 3


def test_a_mistake_of_ours_is_not_dressed_up(run_raising: Callable[..., Result]) -> None:
    assert isinstance(run_raising(ZeroDivisionError("ours")).exception, ZeroDivisionError)


def test_an_interrupt_ends_with_the_exit_code_of_the_shell(run_raising: Callable[..., Result]) -> None:
    assert run_raising(KeyboardInterrupt()).exit_code == 130


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["swim"], "tidelog: no such command 'swim'. Try `tidelog --help`."),
        (["fsk"], "tidelog: no such command 'fsk'. Did you mean 'fsck'? Try `tidelog --help`."),
        (["--loud"], "tidelog: no such option '--loud'. Try `tidelog --help`."),
        (["ls"], "tidelog: missing argument 'DIR...'. Try `tidelog ls --help`."),
        (["warmup", "now"], "tidelog: got unexpected extra argument (now). Try `tidelog warmup --help`."),
        (
            ["completion"],
            "tidelog: missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish. Try `tidelog completion "
            "--help`.",
        ),
        (
            ["diff", "a", "b", "--fingerprint"],
            "tidelog: a fingerprint is made of one side, 2 given; commas join directories. Try `tidelog diff --help`.",
        ),
        (
            ["cat", "logs", "--topic", "a", "--salt", "x"],
            "tidelog: --salt is for the marks of --redact: say what is to be redacted. Try `tidelog cat --help`.",
        ),
        (
            ["explain", "logs", "--topic", "a"],
            "tidelog: say what to look for: --offset O or --time T, one of them. Try `tidelog explain --help`.",
        ),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], told: str) -> None:
    result = CliRunner().invoke(cli, words, prog_name="tidelog")
    assert (result.stdout, result.stderr, result.exit_code) == ("", f"{told}\n", 2)


def test_no_words_at_all_get_the_help() -> None:
    result = CliRunner().invoke(cli, [], prog_name="tidelog")
    assert "Usage: tidelog" in result.output
    assert "Commands:" in result.output


def options_with_one_value() -> Iterator[tuple[list[str], click.Option]]:
    """The words before an option, and the option, for all of all commands."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        below = (
            {}
            if not isinstance(command, click.Group)
            else {each: command.get_command(context, each) for each in command.list_commands(context)}
        )
        for words, each in [([name], command), *(([name, job], found) for job, found in below.items())]:
            assert each is not None
            for option in each.params:
                if isinstance(option, click.Option) and not option.is_flag and not option.multiple:
                    yield words, option


def test_an_option_that_has_one_value_and_is_given_twice_is_rejected_by_every_command() -> None:
    """Of `export --topic A --topic B` only B was exported once, without a word."""
    checked = 0
    for words, option in options_with_one_value():
        done = CliRunner().invoke(cli, [*words, option.opts[0], "1", f"{option.opts[-1]}=2"])
        name = option.opts[0]
        assert (done.exit_code, done.stdout) == (2, ""), f"{words} {name}"
        assert f"{name} is given 2 times and has one value. Try" in done.stderr, f"{words} {name}"
        checked += 1
    assert checked > 40


def test_a_flag_may_be_repeated_unless_it_says_yes_and_no() -> None:
    done = CliRunner().invoke(
        cli, ["cat", "x", "--topic", "t", "--salvage", "--salvage", "--committed", "--uncommitted"]
    )
    assert "--committed/--uncommitted is given 2 times" in done.stderr
    done = CliRunner().invoke(cli, ["cat", "x", "--topic", "t", "--salvage", "--salvage"])
    assert "given" not in done.stderr


def test_a_config_that_is_given_two_values_is_rejected() -> None:
    words = ["compact", "x", "--set", "segment.bytes=1", "--set", "segment.bytes=2"]
    assert "segment.bytes is given twice, as 1 and 2" in CliRunner().invoke(cli, words).stderr
