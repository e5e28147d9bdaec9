"""`tidelog warmup`: compile the kernels ahead, for images and executors where the first query should not wait."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

__all__ = ["warmup"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def warmup(as_json: bool) -> None:
    """Compile the kernels now instead of at first use.

    Reading a log as columns uses kernels that are compiled once per machine and kept in a cache. This does it ahead.
    """
    from tidelog.kernels.runtime import warm_up

    with _progress() as report:
        done = warm_up(report)
    if as_json:
        from tidelog.cli.output import print_json

        cache = None if done.cache_dir is None else str(done.cache_dir)
        print_json({"kernels": done.kernels, "seconds": round(done.seconds, 3), "cache_dir": cache})
    else:
        place = (
            "not cached: no private cache directory"
            if done.cache_dir is None
            else f"cached in {_short(done.cache_dir)}"
        )
        from tidelog.cli.output import say

        say(f"{done.kernels} kernels ready in {done.seconds:.1f} s, {place}")


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None] | None]:
    """A bar on standard error that names the kernel just compiled; nothing at all where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("compiling kernels"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)  # how many there are is only known at the end
        yield lambda name, seconds: bar.update(task, advance=1, description=f"{name} {seconds:.1f} s")


def _short(path: Path) -> str:
    """The path as a person would type it: `~` for the home directory."""
    try:
        home = Path.home()
    except RuntimeError:  # a user without an entry in the password file
        return str(path)
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
