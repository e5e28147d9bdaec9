"""`tidelog spark`: jobs over whole log directories, on Spark. The group, and what all jobs have in common."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.once import ensure_given_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.jobs.tasks import OnTasks

__all__ = ["on_spark", "pairs_of", "spark", "spark_options"]

Command = Callable[..., Any]

_READING = frozenset({"diff", "profile", "verify"})  # jobs that can be ended at any moment

_PLACES = {
    "verify": "checks",
    "diff": "checks",
    "compact": "compact",
    "profile": "profile",
    "export": "tables",
    "load": "tables",
}


class _Jobs(click.Group):
    """The jobs, imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _PLACES:
            return None
        found: click.Command = getattr(import_module(f"tidelog.cli.jobs.{_PLACES[cmd_name]}"), cmd_name)
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if not args[0].startswith("-") and args[0] not in _PLACES:
            nearest = get_close_matches(args[0], _PLACES, n=1)
            hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
            raise click.UsageError(f"No such job {args[0]!r}.{hint}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            ensure_given_once(command, rest, ctx)
        return name, command, rest


def _print_script(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(Path(__file__).parent.parent / "spark" / "script.py")
        ctx.exit()


@click.group(cls=_Jobs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--script", is_flag=True, is_eager=True, expose_value=False, callback=_print_script,
    help="Print the path of a file for spark-submit, which takes a job and its options, and exit.",
)  # fmt: skip
def spark() -> None:
    """Run a job over whole log directories on Spark, here or on a cluster.

    Work is split inside partitions, by bytes, and reduced in Python. Directories must have the same names on the driver
    and on every worker. Java 17 or newer is needed; `tidelog doctor` tells what is there.

    On a cluster: spark-submit "$(tidelog spark --script)" JOB …
    """


def spark_options(command: Command) -> Command:
    """The options of every job."""
    for option in (
        click.option("--verbose", is_flag=True, help="Let Spark's own log through."),
        click.option("--packages", metavar="P,…", help="Maven packages for Spark to load, as of spark-submit."),
        click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; repeatable."),
        click.option("--master", metavar="URL", help="Where Spark runs; local[*], here on all cores, if not given."),
    ):
        command = option(command)
    return command


@contextmanager
def on_spark(
    job: str, master: str | None, conf: tuple[str, ...], packages: str | None, verbose: bool
) -> "Iterator[tuple[SparkSession, OnTasks | None]]":
    """A session for a job, and what is told how far it is; nobody where nobody watches."""
    from tidelog.spark.jobs.session import SparkWishes, session_for

    wishes = SparkWishes(
        master,
        pairs_of(conf, "--conf"),
        [one for one in (packages or "").split(",") if one],
        verbose=verbose,
        may_be_killed=job in _READING,
    )
    if not verbose:
        logging.getLogger().addFilter(_is_not_of_py4j)
    with _bar(job) as show, session_for(f"tidelog {job}", wishes) as session:
        yield session, show


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Py4J shows by the root logger where Ctrl-C has met it: a page that says nothing."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def pairs_of(words: tuple[str, ...], option: str) -> dict[str, str]:
    """NAME=VALUE, as several options take it."""
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{word!r} is not NAME=VALUE", param_hint=option)
        pairs[name.strip()] = value.strip()
    return pairs


@contextmanager
def _bar(job: str) -> "Iterator[OnTasks | None]":
    """A bar on standard error that counts tasks; nothing at all where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting Spark", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None, description=f"{job}: tasks")

        yield show
