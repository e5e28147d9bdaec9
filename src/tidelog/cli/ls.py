"""`tidelog ls`: what lies in log directories."""

from typing import TYPE_CHECKING

import click

from tidelog.cli.completion import complete_topic
from tidelog.cli.output import count, print_json, size, table, tell, when

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
    help="Segments too: records, codecs and the state of each file. Reads all batch headers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per partition.")
def ls(directories: tuple[str, ...], topics: tuple[str, ...], with_segments: bool, as_json: bool) -> None:
    """List the partitions in log directories: offsets, times, bytes, segments.

    DIR is a root (one of a broker's log.dirs, or a copy of it), a partition directory, a pattern, or an address such as
    s3://bucket/path. A running broker is not disturbed: nothing is written and nothing is locked.
    """
    import tidelog
    from tidelog.errors import InvalidRequestError
    from tidelog.view.listing import list_roots

    logs = tidelog.open(list(directories))
    rows = []
    for row in list_roots(logs.roots, frozenset(topics) or None, with_segments=with_segments):
        rows.append(row)
        if as_json:
            print_json(row.to_dict())
    missing = set(topics) - {row.partition.topic for row in rows}
    if missing:
        raise InvalidRequestError(f"no partition of topic {', '.join(sorted(missing))} in {', '.join(directories)}")
    if not as_json:
        _show(rows)
    bad = [row for row in rows if row.problem is not None]
    for row in bad:
        tell(f"{row.root}/{row.directory}: {row.problem}")
    if bad:
        raise click.exceptions.Exit(_UNREADABLE)


_COLUMNS = ("partition", "log start", "log end", "high watermark", "segments", "bytes", "newest record", "state")
_SEGMENT_COLUMNS = ("segment", "offsets", "batches", "records", "bytes", "from", "to", "codecs", "files")


def _show(rows: "list[PartitionListing]") -> None:
    for root in dict.fromkeys(row.root for row in rows):
        inside = [row for row in rows if row.root == root]
        total = sum(row.bytes for row in inside)
        table(_COLUMNS, [_cells(row) for row in inside], f"{root}: {count(len(inside), 'partition')}, {size(total)}")
        for row in inside:
            if row.details:
                click.echo()
                table(_SEGMENT_COLUMNS, [_segment_cells(segment) for segment in row.details], row.directory)
                for notice in row.notices:
                    click.echo(f"note: {notice}")
    if not rows:
        click.echo("no partitions")


def _cells(row: "PartitionListing") -> tuple[str, ...]:
    state = "cannot be read" if row.problem is not None else row.mark or "ok"
    return (
        str(row.partition) if row.mark is None else row.directory,
        _or_dash(row.log_start_offset),
        _or_dash(row.log_end_offset),
        _or_dash(row.high_watermark),
        str(row.segments),
        size(row.bytes),
        "-" if row.largest_timestamp_ms is None else when(row.largest_timestamp_ms),
        state,
    )


def _segment_cells(segment: "SegmentListing") -> tuple[str, ...]:
    return (
        f"{segment.base_offset:020}",
        f"{segment.base_offset} to {segment.next_offset - 1}" if segment.batches else "none",
        str(segment.batches),
        str(segment.records),
        size(segment.bytes),
        "-" if segment.first_timestamp_ms is None else when(segment.first_timestamp_ms),
        "-" if segment.largest_timestamp_ms is None else when(segment.largest_timestamp_ms),
        ",".join(segment.codecs) or "-",
        ", ".join(f"{suffix} {state}" for suffix, state in segment.files.items()),
    )


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)
