"""What commands show: tables for people, JSON for programs, bars for those who wait.

Standard output carries the answer and nothing else. What is said beside it (progress, notices) goes to standard error,
and progress only where a person watches. Every text for people goes through this module, which escapes what a terminal
would obey (`tidelog.visible`); JSON is printed as it is, unless a terminal shows it.
"""

import codecs
import io
import json
import os
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeVar

import click

from tidelog.cli.streams import noted
from tidelog.visible import time_text as when
from tidelog.visible import visible, visible_json

__all__ = [
    "Interruption",
    "TerminalSink",
    "aligned",
    "count",
    "fitted",
    "interruptible",
    "json_line",
    "print_json",
    "progress",
    "room",
    "say",
    "short",
    "size",
    "table",
    "tell",
    "when",
]

T = TypeVar("T")

_WIDE = 200  # columns, where the answer goes to a file or a program
_NARROW = 80  # columns that tables keep to there, if that costs no more than a column
_INDENT = "    "
_LEAST_LEFT = 12  # characters of a text that is cut


def say(line: str = "", *, err: bool = False, bold: bool | None = None, dim: bool | None = None) -> None:
    """Print one line for people."""
    click.secho(visible(line), err=err, bold=bold, dim=dim)


def tell(sentence: str) -> None:
    """Say something beside the answer."""
    say(f"tidelog: {sentence}", err=True)


def json_line(value: object) -> str:
    """One value as one line; what a terminal would obey is escaped there, and the value is the same.

    >>> json_line({"topic": "orders", "partitions": [0, 1]})
    '{"topic":"orders","partitions":[0,1]}'
    """
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return visible_json(line) if sys.stdout.isatty() else line


def print_json(value: object) -> None:
    """One value as one line, flushed: whoever reads along gets each as it comes."""
    click.echo(json_line(value))
    sys.stdout.flush()


class TerminalSink(io.RawIOBase):
    """A terminal that is sent bytes of text in a format for programs. It must not obey what is in them."""

    def __init__(self, terminal: BinaryIO, escape: Callable[[str], str]) -> None:
        self._terminal = terminal
        self._escape = escape
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._terminal.write(self._escape(self._decoder.decode(bytes(data))).encode("utf-8", "backslashreplace"))
        return len(data)

    def flush(self) -> None:
        self._terminal.flush()


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str | None = None,
    *,
    least: Sequence[str] = (),
    cut: Sequence[str] = (),
    below: str | None = None,
) -> None:
    """Print rows of text under headings. Numbers stand to the right, everything else to the left.

    Where a line would be too long, the columns in `least` are left out, the first of them first. In a terminal that is
    too narrow even so, the texts of the columns in `cut`, or of the first one, are shortened. In a file nothing is: if
    80 columns are not enough without those in `least`, it has them all.

    In a terminal that is too narrow the texts of the column `below` stand under their rows instead, and are never cut.
    """
    if title is not None:
        say(title, bold=True)
    if below is not None and sys.stdout.isatty() and max(map(len, aligned([columns, *rows]))) > room():
        at = list(columns).index(below)
        _table_over_texts([*columns[:at], *columns[at + 1 :]], rows, at, cut)
        return
    headings, *lines = fitted(columns, rows, least, cut)
    say(headings.rstrip(), dim=True)
    for line in lines:
        say(line.rstrip())


def _table_over_texts(columns: Sequence[str], rows: Sequence[Sequence[str]], at: int, cut: Sequence[str]) -> None:
    """A table without one of its columns, whose texts are wrapped under the rows."""
    rest = [[*row[:at], *row[at + 1 :]] for row in rows]
    headings, *lines = fitted(columns, rest, cut=[name for name in cut if name in columns])
    say(headings.rstrip(), dim=True)
    for line, row in zip(lines, rows, strict=True):
        say(line.rstrip())
        for part in textwrap.wrap(visible(row[at]), max(room() - len(_INDENT), _LEAST_LEFT), break_on_hyphens=False):
            say(f"{_INDENT}{part}")


def fitted(
    columns: Sequence[str], rows: Sequence[Sequence[str]], least: Sequence[str] = (), cut: Sequence[str] = ()
) -> list[str]:
    """The lines of a table, as wide as there is room; see `table`."""
    is_seen = sys.stdout.isatty()
    width = room() if is_seen else _NARROW
    names = [name for name, *cells in zip(columns, *rows, strict=True) if not rows or any(cells)]
    cells = [dict(zip(columns, map(visible, row), strict=True)) for row in rows]

    def lines_of(names: Sequence[str]) -> tuple[list[str], int]:
        lines = aligned([names, *([row[name] for name in names] for row in cells)])
        return lines, max(len(line.rstrip()) for line in lines) - width

    lines, over = lines_of(names)
    whole = lines
    for name in least:
        if over > 0:
            names = [one for one in names if one != name]
            lines, over = lines_of(names)
    if not is_seen:
        return lines if over <= 0 else whole
    for name in cut or columns[:1]:
        if over > 0 and cells:
            longest = max(len(row[name]) for row in cells)
            for row in cells:
                row[name] = _shortened(row[name], max(longest - over, _LEAST_LEFT))
            lines, over = lines_of(names)
    return lines


def _shortened(text: str, length: int) -> str:
    """A text with its middle left out: names differ at their ends.

    >>> _shortened("orders-of-europe-17", 12)
    'orders…pe-17'
    """
    return text if len(text) <= length else f"{text[: length // 2]}…{text[len(text) - (length - 1) // 2 :]}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of text, one line per row. The first row holds the headings.

    >>> aligned([("partition", "bytes"), ("orders-0", "17 MB"), ("orders-10", "9 kB")])
    ['partition  bytes', 'orders-0   17 MB', 'orders-10   9 kB']
    """
    rows = [[visible(cell) for cell in row] for row in rows]
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    to_the_left = [not all(_is_number(cell) for cell in column[1:]) for column in columns]
    return [
        "  ".join(
            f"{cell:<{width}}" if left else f"{cell:>{width}}"
            for cell, width, left in zip(row, widths, to_the_left, strict=True)
        )
        for row in rows
    ]


def _is_number(cell: str) -> bool:
    return cell[:1].isdecimal() or cell[:2].lstrip("-").isdecimal() or cell in ("", "-")


def room() -> int:
    """How many characters a line may have."""
    return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else _WIDE


def short(number: int, units: Sequence[str] = ("", "k", "M", "G", "T")) -> str:
    """A number in three or four characters and a unit.

    >>> short(999), short(1_250), short(57_012_345)
    ('999', '1.2k', '57M')
    """
    value, unit = float(number), 0
    while round(value) >= 1000 and unit + 1 < len(units):
        value, unit = value / 1000, unit + 1
    return f"{value:.1f}{units[unit]}" if unit and value < 9.95 else f"{value:.0f}{units[unit]}"


def count(number: int, noun: str) -> str:
    """How many of something.

    >>> count(1, "error"), count(1200, "batch")
    ('1 error', '1,200 batches')
    """
    ending = "es" if noun.endswith(("s", "ch", "x")) else "s"
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}{ending}"


def size(number: int) -> str:
    """A number of bytes.

    >>> size(17), size(1_234_567)
    ('17 B', '1.2 MB')
    """
    return short(number, (" B", " kB", " MB", " GB", " TB"))


@contextmanager
def progress(
    deed: str, ensure_wanted: Callable[[], None] = lambda: None
) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """A bar on standard error for the thing at hand; nothing at all where nobody watches.

        with progress("checking") as show:
            update = show("orders-0")
            update(done_bytes, all_bytes)

    `ensure_wanted` is called at every update: it raises where the work may be interrupted.
    """
    if not sys.stderr.isatty():
        yield lambda name: lambda done, total: ensure_wanted()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def show(name: str) -> Callable[[int, int], None]:
            for old in bar.task_ids:
                bar.remove_task(old)

            def update(done: int, total: int) -> None:
                for task in bar.task_ids or [bar.add_task(visible(f"{deed} {name}"), total=total)]:
                    bar.update(task, completed=done, total=total)
                ensure_wanted()

            return update

        yield show


class Interruption:
    """Ctrl-C, as a command has noted it. Call it where the work can be left in good order: there it is raised."""

    def __init__(self) -> None:
        self._is_heard = False
        self._is_waiting = False

    def note(self) -> None:
        """Ctrl-C was pressed."""
        self._is_heard = True
        if self._is_waiting:
            raise KeyboardInterrupt

    def __call__(self) -> None:
        if self._is_heard:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, it is raised at once: the command waits for somebody, perhaps for ever, and can be left anywhere."""
        self._is_waiting = True
        try:
            self()
            yield
        finally:
            self._is_waiting = False

    def awaited(self, items: Iterable[T]) -> Iterator[T]:
        """The same items; each is waited for."""
        source = iter(items)
        while True:
            with self.waiting():
                try:
                    item = next(source)
                except StopIteration:
                    return
            yield item


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Inside, Ctrl-C is noted, and raised by what is given, where the work can be left in good order.

    The second time it is raised at once.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        interruption.note()

    signal.signal(signal.SIGINT, noted(note))
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)
