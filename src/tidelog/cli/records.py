"""What commands that read records have in common besides bounds: how rows are changed, what is said where none came.

change_options, row_changes     --decode, --redact and --salt
damage_told                     an error about damage names the ways on
tell_of_ends                    bytes at the end of a log that could not be read
tell_of_starts                  deleted records that may be among those that were read
tell_of_transactions            what --committed has left out
tell_of_uncommitted             what --uncommitted has let through
tell_of_unfinished              records that a write has not finished
tell_of_bounds                  bounds that leave nothing, or that were meant as times
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.output import count, tell, when

if TYPE_CHECKING:
    from tidelog.tables.changes import RowChanges
    from tidelog.tables.uncommitted import UncommittedRows
    from tidelog.view import LogDirView
    from tidelog.view.left_out import LeftOut
    from tidelog.view.partition import PartitionView
    from tidelog.view.request import Request

__all__ = [
    "change_options",
    "csv_safe_option",
    "damage_told",
    "ensure_csv",
    "request_of",
    "row_changes",
    "tell_of_bounds",
    "tell_of_ends",
    "tell_of_starts",
    "tell_of_transactions",
    "tell_of_uncommitted",
    "tell_of_unfinished",
]

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


def csv_safe_option(command: Command) -> Command:
    """`--csv-safe`, of a command that writes CSV."""
    return click.option(
        "--csv-safe", is_flag=True,
        help="Write CSV that a spreadsheet can open: a cell that begins with = + - @ or a tab, which it would run as a "
        "formula, gets an apostrophe in front, and so does one that begins with an apostrophe. `tidelog load "
        "--csv-safe` reads it. Without this option cells are what records hold.",
    )(command)  # fmt: skip


def ensure_csv(form: str | None, csv_safe: bool) -> None:
    """Reject --csv-safe where no CSV is written."""
    if csv_safe and form != "csv":
        raise click.UsageError(f"--csv-safe is for CSV, and the format is {form}")


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
def damage_told(directories: Sequence[str], *, is_tolerant: bool) -> Iterator[None]:
    """An error about damaged bytes says what to do about them: leave them out, and look what else there is."""
    from tidelog.errors import CorruptionError, CorruptRecordError
    from tidelog.view.segment import ADVICE

    try:
        yield
    except CorruptionError as error:
        what = str(error).removesuffix(ADVICE)
        found = _DAMAGED_LOG.match(what)
        where = shlex.join([found[1]] if found else directories)
        ways = [] if is_tolerant else ["--salvage leaves it out"]
        ways.append(f"`tidelog fsck {where}` tells what is damaged and what can be saved")
        raise CorruptRecordError(f"{what}; {', '.join(ways)}") from error


def request_of(options: dict[str, Any]) -> "Request":
    """Which records the options of a scan ask for."""
    from tidelog.view.request import Request

    return Request.of(**_wishes(options))


def _wishes(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("on_corruption", "columns", "verify")}


def tell_of_ends(partitions: "Sequence[PartitionView]", options: dict[str, Any]) -> bool:
    """Report bytes at the end of logs that were asked for and not read; whether they count as a finding.

    A broker that is writing leaves an incomplete batch at the end of a log for a moment: while one has the directory
    open, that is a note and no finding. Zeros are its own then, and no word is said about them. Otherwise they are a
    note: a finding only if a checkpoint knows that there were records.
    """
    from tidelog.errors import TidelogError

    request, is_finding = request_of(options), False
    for partition in request.choose(partitions):
        try:
            if not request.reaches(partition, partition.log_end_offset):
                continue
            left_out, missing, zeros = partition.left_out, partition.missing, partition.zeros_at_end
            if left_out is not None and not options.get("verify", True):
                left_out = _left_out_unverified(partition, request, left_out)
                missing = partition.missing_after(left_out.offset)
        except TidelogError:
            continue  # there is damage elsewhere, which was reported
        if left_out is not None and left_out.size:
            is_live = left_out.is_incomplete and _is_in_use(partition.root)
            tell(f"{left_out}{'; a broker has the directory open and may be writing them' if is_live else ''}")
            is_finding = is_finding or not is_live
        if (zeros is None and missing is None) or _is_in_use(partition.root):
            continue
        if zeros is not None:
            tell(str(zeros))
        if missing is not None:  # in use, a broker may have noted more since we looked
            tell(f"{partition.topic_partition}: {missing}")
            is_finding = True
    return is_finding


def tell_of_starts(partitions: "Sequence[PartitionView]", options: dict[str, Any]) -> None:
    """Report damaged checkpoints of log starts, each once: deleted records may be among those that were read."""
    chosen = request_of(options).choose(partitions)
    for notice in dict.fromkeys(filter(None, (partition.start_notice for partition in chosen))):
        tell(f"{notice}: records that were deleted may be among these")


def _left_out_unverified(partition: "PartitionView", request: "Request", left_out: "LeftOut") -> "LeftOut":
    """What is left out where checksums are not compared."""
    from tidelog.view.pruning import unverified_tail  # which takes Arrow

    read = unverified_tail(partition, request)
    if read is None:
        return left_out
    return left_out._replace(position=read.end, size=left_out.size - read.size, offset=read.limit_offset, problem=None)


def _is_in_use(root: str) -> bool:
    from tidelog.fsck.root_files import is_in_use

    return is_in_use(root)


def tell_of_transactions(partitions: "Sequence[PartitionView]", options: dict[str, Any]) -> None:
    """Report what was left out because it is not committed."""
    from tidelog.errors import CorruptionError

    request = request_of(options)
    for partition in request.choose(partitions):
        try:
            first, limit = request.offsets(partition)
            aborted = len(partition.aborted_transactions(first, limit))
        except CorruptionError:
            continue  # what was left out of it was reported while it was read
        what = [count(aborted, "aborted transaction")] if aborted else []
        end = partition.log_end_offset
        if limit < end and request.reaches(partition, limit) and limit == partition.limit_of(committed=True):
            what.append(f"offsets {limit} to {end - 1}, where a transaction is open")
        if what:
            tell(f"{partition.topic_partition}: left out: {' and '.join(what)}; --uncommitted includes them")


def tell_of_uncommitted(rows: "UncommittedRows") -> None:
    """Report how many of the records that were written are not committed."""
    kinds = ((rows.aborted, "aborted"), (rows.open, "still open"))
    what = [f"{count(number, 'record')} of transactions that {'were' if kind == 'aborted' else 'are'} {kind}"
            for number, kind in kinds if number]  # fmt: skip
    if what:
        tell(f"included: {' and '.join(what)}; --committed leaves them out")
    for partition, why in rows.unknown.items():
        tell(
            f"partition {partition}: {why}; which of its transactions were aborted cannot be known, and their records "
            "are included"
        )


def tell_of_unfinished(logs: "LogDirView") -> None:
    """Say which writes into log directories are unfinished: their records are not shown."""
    for notice in logs.unfinished_writes:
        tell(notice)


def tell_of_bounds(partitions: "Sequence[PartitionView]", options: dict[str, Any], *, is_empty: bool) -> None:
    """Say what there is where the options of a scan have left nothing of it, and which offset looks like a time."""
    from tidelog.errors import TidelogError

    wishes = _wishes(options)
    try:
        chosen = request_of(options).choose(partitions)
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
    if not filled and any(part.left_out is not None for part in partitions):
        return "none can be read"
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
