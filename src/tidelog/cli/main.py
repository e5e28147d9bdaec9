"""The command `tidelog`: the group all verbs hang on, and the rule for errors.

An error of ours is one line on standard error and an exit code; `--traceback` shows where it came from.

    0    fine
    1    findings or differences, of the commands that look for them
    2    wrong usage: what was asked for cannot be done, or is not supported
    3    the input could not be read: corrupt bytes, a disk that refuses, a file that is not there
    130  interrupted

Anything else that escapes is a mistake of ours and keeps its traceback.
"""

import traceback
from typing import IO, Any, NoReturn

import click

from tidelog import __version__
from tidelog.cli.cat import cat
from tidelog.cli.compact import compact
from tidelog.cli.completion import completion
from tidelog.cli.diff import diff
from tidelog.cli.dump_log import dump_log
from tidelog.cli.explain import explain
from tidelog.cli.export import export
from tidelog.cli.fsck import fsck
from tidelog.cli.load import load
from tidelog.cli.ls import ls
from tidelog.cli.reindex import reindex
from tidelog.cli.warmup import warmup
from tidelog.errors import InvalidRequestError, TidelogError, UnsupportedError

__all__ = ["cli", "main"]


class _Failure(click.ClickException):
    """An error on its way out: click prints it through `show` and exits with `exit_code`."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"tidelog: {self.message}", file=file, err=file is None)


class _WrongUsage(_Failure):
    exit_code = 2


class _Unreadable(_Failure):
    exit_code = 3


class _Commands(click.Group):
    """A group that turns the errors of its commands into one line each."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of our output left (`| head`): click ends quietly
        except (TidelogError, OSError) as error:
            if ctx.params.get("traceback"):
                click.echo(traceback.format_exc(), err=True, nl=False)
            wrong_usage = isinstance(error, InvalidRequestError | UnsupportedError)
            raise (_WrongUsage if wrong_usage else _Unreadable)(_one_line(error)) from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidelog", message="%(prog)s %(version)s")
@click.option("--traceback", is_flag=True, help="Show where an error came from, not only what it is.")
def cli(traceback: bool) -> None:
    """Apache Kafka's message store in Python.

    Exit codes: 0 fine, 1 findings, or not done as you wished, 2 wrong usage, 3 the input could not be read, 130
    interrupted.
    """


for command in (cat, compact, completion, diff, dump_log, explain, export, fsck, load, ls, reindex, warmup):
    cli.add_command(command)


def main() -> NoReturn:
    """Run the command line and exit."""
    cli.main(prog_name="tidelog")
    raise AssertionError("click exits by itself")


def _one_line(error: TidelogError | OSError) -> str:
    """The message without line ends. An error of the system names its file first, as ours do."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())
