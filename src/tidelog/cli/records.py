"""What commands that read records have in common besides bounds: how rows are changed, what is said where none came.

change_options, row_changes     --decode, --redact and --salt
damage_told                     an error about damage names the ways on
tell_of_bounds                  bounds that leave nothing, or that were meant as times
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.output import tell, when

if TYPE_CHECKING:
    from tidelog.tables.changes import RowChanges
    from tidelog.view.partition import PartitionView

__all__ = ["change_options", "damage_told", "row_changes", "tell_of_bounds"]

Command = Callable[..., Any]

_DAMAGED_LOG = re.compile(r"(.+)/[0-9]{20}\.[a-z]+")
_LOOKS_LIKE_SECONDS = 10**9  # since 1970, in 2001: few partitions have so many records, and none that ends before it
_LOOKS_LIKE_MS = 10**11
_MOST_LISTED = 3


def change_options(command: Command) -> Command:
    """The options of a command that writes records: what is done to them before."""
    for option in (
        click.option("--decode", is_flag=True, help="Put the records of Kafka's internal topics into words, as JSON."),
        click.option("--salt", metavar="TEXT", help="Of the marks of --redact: the same salt gives the same marks."),
        click.option(
            "--redact", multiple=True, metavar="WHAT",
            help="Replace key, value or headers (separated by commas) by their length and a mark. The names of headers "
            "stay, unless header-names is in the list.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def row_changes(
    columns: Sequence[str], topic: str, *, decode: bool, redact: tuple[str, ...], salt: str | None
) -> "RowChanges":
    """What is done to rows out of the options of a command."""
    from tidelog.tables.changes import RowChanges

    names = [name.strip() for part in redact for name in part.split(",") if name.strip()]
    if salt is not None and not names:
        raise click.UsageError("--salt is for the marks of --redact: say what is to be redacted")
    return RowChanges(
        columns, decode=topic if decode else None, redact=names, salt=None if salt is None else salt.encode()
    )


@contextmanager
def damage_told(directories: Sequence[str], *, skip_corrupt: bool) -> Iterator[None]:
    """An error about damaged bytes says what to do about them: leave them out, and look what else there is."""
    from tidelog.errors import CorruptionError, CorruptRecordError
    from tidelog.view.segment import ADVICE

    try:
        yield
    except CorruptionError as error:
        what = str(error).removesuffix(ADVICE)
        found = _DAMAGED_LOG.match(what)
        where = shlex.join([found[1]] if found else directories)
        ways = [] if skip_corrupt else ["--skip-corrupt leaves it out"]
        ways.append(f"`tidelog fsck {where}` tells what is damaged and what can be saved")
        raise CorruptRecordError(f"{what}; {', '.join(ways)}") from error


def tell_of_bounds(partitions: "Sequence[PartitionView]", options: dict[str, Any], *, is_empty: bool) -> None:
    """Say what there is where the options of a scan have left nothing of it, and which offset looks like a time."""
    from tidelog.errors import TidelogError
    from tidelog.view.request import Request

    wishes = {name: value for name, value in options.items() if name not in ("on_corruption", "columns")}
    try:
        chosen = Request.of(**wishes).choose(partitions)
        if is_empty:
            kind = " with this key" if "key" in wishes else ""
            tell(f"no records{kind}: {_what_there_is(chosen, has_times='from_time' in wishes or 'to_time' in wishes)}")
        for option, name in (("--from", "from_offset"), ("--until", "to_offset")):
            number = wishes.get(name, 0)
            if number >= _LOOKS_LIKE_SECONDS and all(number > part.log_end_offset for part in chosen):
                tell(f"{option} {number} is taken for an offset, beyond the end; {_as_time(number)}")
    except TidelogError:
        return  # there is damage, of which more is said elsewhere


def _what_there_is(partitions: "Sequence[PartitionView]", *, has_times: bool) -> str:
    filled = [part for part in partitions if part.log_start_offset < part.log_end_offset]
    if not filled:
        return "there are none in the topic" if len(partitions) > 1 else f"{partitions[0].topic_partition} is empty"
    ranges = [f"{part.log_start_offset} to {part.log_end_offset - 1}" for part in filled]
    if len(filled) > 1:
        ranges = [f"{each} in {part.topic_partition}" for each, part in zip(ranges, filled, strict=True)]
    more = len(ranges) - _MOST_LISTED
    told = f"the offsets are {', '.join(ranges[:_MOST_LISTED])}{f' and others in {more} more' if more > 0 else ''}"
    if not has_times:
        return told
    newest = max(part.segments[-1].largest_timestamp_ms for part in filled)
    return f"{told}; the newest time is {when(newest)}"


def _as_time(number: int) -> str:
    milliseconds = number if number >= _LOOKS_LIKE_MS else 1000 * number
    return f"a time is written {milliseconds}ms or {when(milliseconds)}"
