"""The command `tidelog`: the group all verbs hang on, and the rule for errors.

An error of ours is one line on standard error and an exit code; `--traceback` shows where it came from.

    0    fine
    1    findings or differences, of the commands that look for them
    2    wrong usage: what was asked for cannot be done, or is not supported
    3    something could not be read or written: corrupt bytes, missing rights, a disk that fails or is full
    130  interrupted

Anything else that escapes is a mistake of ours and keeps its traceback.
"""

import errno
import io
import logging
import re
import sys
import traceback
from difflib import get_close_matches
from importlib import import_module
from typing import IO, Any, NoReturn

import click

from tidelog import __version__
from tidelog.cli.once import ensure_given_once
from tidelog.cli.streams import (
    INTERRUPTED,
    are_streams_open,
    end_when_stuck,
    flush_output,
    is_reader_gone,
    let_go_of_output,
)
from tidelog.errors import InvalidRequestError, TidelogError, UnsupportedError
from tidelog.visible import visible

__all__ = ["cli", "main"]

# Never ended in the middle of a call: what writes, and Spark, which handles Ctrl-C by itself and has a JVM to end.
_PATIENT = frozenset({"compact", "load", "recover", "reindex", "--repair", "spark", "--master"})


class _Failure(click.ClickException):
    """An error on its way out: click prints it through `show` and exits with `exit_code`."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"tidelog: {visible(self.message)}", file=file, err=file is None)


class _WrongUsage(_Failure):
    exit_code = 2


class _InputOutput(_Failure):
    exit_code = 3


class _Commands(click.Group):
    """The commands, each in its own module that is imported when it is called; their errors become one line each."""

    NAMES = (
        "cat", "compact", "completion", "diff", "doctor", "dump-log", "explain", "export", "fsck", "load", "ls",
        "recover", "reindex", "spark", "warmup",
    )  # fmt: skip

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.NAMES, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.NAMES and cmd_name not in self.commands:
            name = cmd_name.replace("-", "_")
            self.add_command(getattr(import_module(f"tidelog.cli.{name}"), name))
        return super().get_command(ctx, cmd_name)

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(info_name, args, *rest, **extra)
        except click.UsageError as error:
            raise _usage(error) from error
        except BrokenPipeError:  # of the reader of a help text
            let_go_of_output()
            raise click.exceptions.Exit(0) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except OSError as error:
            raise _InputOutput(_one_line(error)) from error

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            nearest = get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            ensure_given_once(command, rest, ctx)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _usage(error) from error
        except (TidelogError, OSError) as error:
            if isinstance(error, BrokenPipeError) and is_reader_gone():  # `| head` has what it wants
                let_go_of_output()
                raise click.exceptions.Exit(0) from None
            if ctx.params.get("traceback"):
                click.echo("\n".join(map(visible, traceback.format_exc().split("\n"))), err=True, nl=False)
            wrong_usage = isinstance(error, InvalidRequestError | UnsupportedError)
            raise (_WrongUsage if wrong_usage else _InputOutput)(_one_line(error)) from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidelog", message="%(prog)s %(version)s")
@click.option("--traceback", is_flag=True, help="Show where an error came from, not only what it is.")
def cli(traceback: bool) -> None:
    """Apache Kafka's message store in Python.

    Exit codes: 0 fine, 1 findings, or not done as you wished, 2 wrong usage, 3 something could not be read or written
    (a full disk, too), 130 interrupted.
    """


class _VisibleLog(logging.Formatter):
    """Warnings of the library, on standard error: they name files, too."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(visible, super().format(record).split("\n")))


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        _run()
    except KeyboardInterrupt:  # before the command begins, or while it ends: it handles its own
        sys.exit(INTERRUPTED)


def _run() -> NoReturn:
    if not are_streams_open():
        click.echo(
            "tidelog: standard output is closed, so nothing was done: send it to a file or to /dev/null", err=True
        )
        sys.exit(_WrongUsage.exit_code)
    if logging.lastResort is not None:  # what prints where nobody has configured logging
        logging.lastResort.setFormatter(_VisibleLog())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale of few characters shows the others as escapes
            stream.reconfigure(errors="backslashreplace")
    if not _PATIENT & set(sys.argv[1:]):
        end_when_stuck()
    try:
        cli.main(prog_name="tidelog")
    finally:
        flush_output()
    raise AssertionError("click exits by itself")


def _usage(error: click.UsageError) -> click.ClickException:
    """What is wrong with the words that were typed, in one line, and where to read on."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # `tidelog` alone prints its help
        return error
    path = "tidelog" if error.ctx is None else error.ctx.command_path
    words = " ".join(error.format_message().split())
    return _WrongUsage(f"{_first_small(words)} Try `{path} --help`.")


def _first_small(sentence: str) -> str:
    """click begins with a capital letter, our own sentences do not; both end with a full stop here."""
    begun = sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence
    return begun if begun.endswith((".", "?")) else f"{begun}."


def _one_line(error: TidelogError | OSError) -> str:
    """The message without line ends. An error of the system names its file first, as ours do."""
    if isinstance(error, OSError) and error.strerror:
        is_full = error.errno == errno.ENOSPC
        is_output = error.filename is None and is_full  # disks of logs refuse with errors of ours
        place = "standard output" if is_output else error.filename
        reason = "the disk is full" if is_full else error.strerror
        text = f"{place}: {reason}" if place is not None else reason
    else:
        text = str(error) or type(error).__name__
    return re.sub(r"\s*\n\s*", " ", text).strip()
