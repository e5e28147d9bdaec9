"""`tidelog ls`: what lies in log directories."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tidelog.cli.completion import complete_topic
from tidelog.cli.output import count, print_json, say, size, table, tell, when
from tidelog.cli.records import tell_of_unfinished
from tidelog.log.names import OLD_JOURNALS, UNFINISHED_WRITE

if TYPE_CHECKING:
    from tidelog.view.listing import PartitionListing, SegmentListing

__all__ = ["ls"]

_UNREADABLE = 3


@click.command()
@click.argument("directories", nargs=-1, required=True, metavar="DIR...")
@click.option(
    "--topic", "topics", multiple=True, metavar="T", shell_complete=complete_topic, help="Only this topic; repeatable."
)
@click.option(
    "-l",
    "--long",
    "with_segments",
    is_flag=True,
    help="Segments too: records, smallest and largest time, codecs, files and all notes. Reads all records.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per partition.")
def ls(directories: tuple[str, ...], topics: tuple[str, ...], with_segments: bool, as_json: bool) -> None:
    """List the partitions in log directories: offsets, times, bytes, segments.

    DIR is a root (one of a broker's log.dirs, or a copy of it), a partition directory, a pattern, or an address such as
    s3://bucket/path. A running broker is not disturbed: nothing is written and nothing is locked.

    Nothing is checked either, besides what a reader would stumble over: `tidelog fsck` does.
    """
    import tidelog
    from tidelog.errors import InvalidRequestError
    from tidelog.view.listing import list_roots

    logs = tidelog.open(list(directories))
    known = {directory.topic_partition.topic for root in logs.roots for directory in root.directories}
    missing = set(topics) - known
    if missing:
        raise InvalidRequestError(f"no partition of topic {', '.join(sorted(missing))} in {', '.join(directories)}")
    rows = []
    for row in list_roots(logs.roots, frozenset(topics) or None, with_segments=with_segments):
        rows.append(row)
        if as_json:
            print_json(row.to_dict())
    if not as_json:
        _show(rows, with_segments=with_segments)
    bad = [row for row in rows if row.problem is not None]
    if not bad:
        tell_of_unfinished(logs)
    for problem in dict.fromkeys(_problem(row) for row in bad):
        tell(problem)
    if bad:
        raise click.exceptions.Exit(_UNREADABLE)


def _problem(row: "PartitionListing") -> str:
    """What keeps a partition from being read; a journal of its root names itself, and is told of once."""
    place = f"{row.root}/{row.directory}"
    named = (place, f"{row.root}/{UNFINISHED_WRITE}", *(f"{row.root}/{name}" for name in OLD_JOURNALS))
    problem = str(row.problem)
    return problem if problem.startswith(named) else f"{place}: {problem}"


_COLUMNS = ("partition", "log start", "log end", "high watermark", "segments", "bytes", "newest record", "notes")
_LEAST = ("segments", "high watermark", "newest record")
_LEAST_EQUAL = ("high watermark", "segments", "newest record")  # where it is the log end everywhere
_SEGMENT_COLUMNS = ("offsets", "records", "bytes", "from", "to", "codecs")


def _show(rows: "list[PartitionListing]", *, with_segments: bool) -> None:
    for root in dict.fromkeys(row.root for row in rows):
        inside = [row for row in rows if row.root == root]
        total = sum(row.bytes for row in inside)
        cells = [_cells(row, "" if with_segments else ", see -l") for row in inside]
        is_told_twice = all(row.high_watermark == row.log_end_offset for row in inside)
        table(
            _COLUMNS, cells, f"{root}: {count(len(inside), 'partition')}, {size(total)}",
            least=_LEAST_EQUAL if is_told_twice else _LEAST, cut=("notes", "partition"),
        )  # fmt: skip
        for row in inside if with_segments else ():
            if row.details or row.notices:
                say()
                _show_segments(row)
    if not rows:
        say("no partitions")


def _show_segments(row: "PartitionListing") -> None:
    cells = [_segment_cells(segment) for segment in row.details]
    table(_SEGMENT_COLUMNS, cells, row.directory, least=("codecs", "bytes"))
    if row.details:
        say(f"files: {len(row.details):,} .log; {', '.join(_files(row.details))}")
    for notice in (*row.notices, *_odd_files(row.details)):
        say(f"note: {notice}")


def _cells(row: "PartitionListing", see: str) -> tuple[str, ...]:
    """A partition in which nothing was noticed has no note. That is all that is known: `fsck` checks, this does not."""
    notes = [] if row.mark is None else [row.mark]
    if row.problem is not None:
        notes.append("cannot be read")
    elif row.notices:
        notes.append(f"{count(len(row.notices), 'note')}{see}")
    return (
        str(row.partition) if row.mark is None else row.directory,
        _or_dash(row.log_start_offset),
        _or_dash(row.log_end_offset),
        _or_dash(row.high_watermark),
        str(row.segments),
        size(row.bytes),
        _time(row.largest_timestamp_ms),
        ", ".join(notes),
    )


def _segment_cells(segment: "SegmentListing") -> tuple[str, ...]:
    return (
        f"{segment.base_offset} to {segment.next_offset - 1}" if segment.batches else f"{segment.base_offset}, none",
        str(segment.records),
        size(segment.bytes),
        _time(segment.smallest_timestamp_ms),
        _time(segment.largest_timestamp_ms),
        ",".join(segment.codecs) or "-",
    )


def _files(segments: "tuple[SegmentListing, ...]") -> Iterator[str]:
    """How many files of each kind of index there are, and how many entries they have together."""
    for suffix in dict.fromkeys(suffix for segment in segments for suffix in segment.entries):
        entries = [segment.entries[suffix] for segment in segments if suffix in segment.entries]
        in_all = sum(entries)
        yield f"{in_all:,} {'entry' if in_all == 1 else 'entries'} in {len(entries):,} {suffix}"


def _odd_files(segments: "tuple[SegmentListing, ...]") -> Iterator[str]:
    for segment in segments:
        for suffix, state in segment.files.items():
            if suffix not in segment.entries and state != "whole":
                yield f"{segment.base_offset:020}{suffix}: {state}"


def _time(timestamp_ms: int | None) -> str:
    """A time to the second, which leaves room for others; --json has the milliseconds."""
    return "-" if timestamp_ms is None else re.sub(r"\.[0-9]{3}Z$", "Z", when(timestamp_ms))


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)
