"""`tidelog diff`: two replicas, backups or clusters compared, and fingerprints of one."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from tidelog.cli.output import aligned, print_json, progress, say, table
from tidelog.cli.records import tell_of_unfinished

if TYPE_CHECKING:
    from tidelog.fsck.diff_result import BatchPlace, Comparison, PartitionComparison
    from tidelog.fsck.fingerprint import Fingerprint

__all__ = ["diff", "end_with", "paths_of_side"]

_DIFFERENCES = 1
_UNREADABLE = 3
_BELIEVED = "the checksums in the headers were believed: without --no-verify each is compared with its batch"


@click.command()
@click.argument("sides", nargs=-1, required=True, metavar="A B")
@click.option("--topic", "topics", multiple=True, metavar="T", help="A topic; repeatable. Without it all of them.")
@click.option("--strict", is_flag=True, help="Both sides must begin and end at the same offsets.")
@click.option(
    "--verify/--no-verify", default=True,
    help="Compare every checksum with its batch, which reads all bytes; or believe them and read headers only.",
)  # fmt: skip
@click.option("--records", is_flag=True, help="Where batches differ, look whether the records in them do.")
@click.option("--ignore-epochs", is_flag=True, help="Leader epochs may differ, as between clusters.")
@click.option("--fingerprint", "is_fingerprint", is_flag=True, help="Print a fingerprint per partition of A alone.")
@click.option("--from-offset", type=click.IntRange(0), help="With --fingerprint: begin there.")
@click.option("--to-offset", type=click.IntRange(0), help="With --fingerprint: end before that.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per partition.")
def diff(
    sides: tuple[str, ...],
    topics: tuple[str, ...],
    strict: bool,
    verify: bool,
    records: bool,
    ignore_epochs: bool,
    is_fingerprint: bool,
    from_offset: int | None,
    to_offset: int | None,
    as_json: bool,
) -> None:
    """Compare the logs of A and B batch by batch, by offsets, checksums and leader epochs, without reading records.

    Every checksum is compared with the bytes of its batch, so that a bit that flipped on the disk is found.

    A and B are log directories, partition directories or URIs; join several directories of one side with commas.
    Partitions are compared where both sides have offsets. If one side begins later or ends earlier, that is reported,
    and is a difference only with --strict.

    Nothing is locked, so brokers may run; what they append during the comparison may be missed.

    Exit codes: 0 nothing contradicts, 1 differences, 2 wrong usage, 3 something could not be read.
    """
    chosen = list(dict.fromkeys(topics)) or None
    if is_fingerprint:
        if len(sides) != 1:
            raise click.UsageError(f"a fingerprint is made of one side, {len(sides)} given; commas join directories")
        _tell_of_unfinished(sides)
        _fingerprints(paths_of_side(sides[0]), chosen, (from_offset, to_offset), not ignore_epochs, verify, as_json)
        return
    if len(sides) != 2:
        raise click.UsageError(f"two sides are compared, {len(sides)} given; commas join the directories of one side")
    if from_offset is not None or to_offset is not None:
        raise click.UsageError("--from-offset and --to-offset go with --fingerprint")
    _tell_of_unfinished(sides)
    from tidelog.fsck.diff import DiffOptions
    from tidelog.fsck.diff import diff as compare

    options = DiffOptions(verify, not ignore_epochs, records)
    with progress("comparing") as show:
        a, b = (paths_of_side(side) for side in sides)
        found = compare(a, b, topics=chosen, strict=strict, options=options, on_partition=show)
    end_with(found, as_json=as_json, is_verified=verify)


def _tell_of_unfinished(sides: Sequence[str]) -> None:
    """Say which writes are unfinished: their records are not compared."""
    import tidelog

    for side in sides:
        tell_of_unfinished(tidelog.open(paths_of_side(side)))


def paths_of_side(side: str) -> list[str]:
    """The directories of a side: several have commas between them, unless there is one of that very name."""
    return [side] if os.path.exists(side) else [path for path in side.split(",") if path]


# -- fingerprints ------------------------------------------------------------------------------------------------


def _fingerprints(
    paths: list[str],
    topics: list[str] | None,
    offsets: tuple[int | None, int | None],
    epochs: bool,
    verify: bool,
    as_json: bool,
) -> None:
    from tidelog.fsck.batch_rows import counting
    from tidelog.fsck.diff import chosen, partitions_of
    from tidelog.fsck.fingerprint import fingerprint

    logs = partitions_of(paths)
    rows: list[tuple[str, Fingerprint]] = []
    with progress("reading") as show:
        for name in chosen(sorted(logs), topics):
            on_bytes = counting(logs[name].size, show(str(name)))
            made = fingerprint(logs[name], *offsets, epochs=epochs, verify=verify, on_bytes=on_bytes)
            rows.append((str(name), made))
    if as_json:
        for partition, made in rows:
            print_json({"partition": partition, **made._asdict()})
        return
    cells = [
        (partition, *map(str, (made.start_offset, made.end_offset, made.batches, made))) for partition, made in rows
    ]
    table(("partition", "from", "to", "batches", "fingerprint"), cells, least=("batches",), cut=("partition",))
    if not verify:
        say(_BELIEVED)


# -- what is shown -----------------------------------------------------------------------------------------------


def end_with(found: "Comparison", *, as_json: bool, is_verified: bool) -> NoReturn:
    """Show what a comparison has found, and end with the exit code that tells it."""
    _show(found, as_json, is_verified)
    raise click.exceptions.Exit(_UNREADABLE if not found.is_readable else 0 if found.is_equal else _DIFFERENCES)


def _show(found: "Comparison", as_json: bool, is_verified: bool) -> None:
    if as_json:
        for row in found.partitions:
            print_json(row.to_dict())
        return
    table(
        ("partition", "A", "B", "equal batches", "result"), [_cells(row) for row in found.partitions],
        least=("equal batches",), cut=("partition", "result"),
    )  # fmt: skip
    unreadable = [row for row in found.partitions if row.error is not None]
    if unreadable:
        say()
    for row in unreadable:  # whole, since file and position would be cut out of a cell
        say(f"{row.name}: {row.error}")
    for row in found.partitions:
        if row.first is not None:
            say()
            for line in _details(row):
                say(line)
    if not is_verified:
        say(_BELIEVED)


def _cells(row: "PartitionComparison") -> list[str]:
    equal = "-" if row.tally is None else str(row.tally.equal)
    result = row.sentence if row.error is None else "unreadable, see below"
    return [row.name, "-" if row.a is None else str(row.a), "-" if row.b is None else str(row.b), equal, result]


def _details(row: "PartitionComparison") -> Sequence[str]:
    """The first difference of a partition, and how many there are."""
    assert row.tally is not None
    assert row.first is not None
    tally, first = row.tally, row.first
    lines = [f"{row.name}: first difference at offset {first.offset} ({first.kind})"]
    lines += [f"  {side}  {_place(place)}" for side, place in (("A", row.a_place), ("B", row.b_place))]
    lines += [f"     {line}" for line in _header_fields(row.a_place, row.b_place)]
    counts = {
        "different": tally.different,
        "of these by the leader epoch only": tally.different_epoch,
        "only in A": tally.left.only_here,
        "only in B": tally.right.only_here,
        "with other bounds in A": tally.left.other_bounds,
        "with other bounds in B": tally.right.other_bounds,
    }
    lines.append("  batches: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count))
    if row.epochs is not None:
        lines.append(f"  {row.epochs}")
    return lines


def _place(place: "BatchPlace | None") -> str:
    if place is None:
        return "ends before it"
    offsets = f"offsets {place.first_offset} to {place.last_offset}, leader epoch {place.leader_epoch}"
    return f"{place.file} at {place.position}: {offsets}"


def _header_fields(a: "BatchPlace | None", b: "BatchPlace | None") -> list[str]:
    """The fields of both headers that differ."""
    ones, twos = ({} if place is None else place.header for place in (a, b))
    names = [name for name in ones or twos if ones.get(name) != twos.get(name)]
    rows = [(name, str(ones.get(name, "-")), str(twos.get(name, "-"))) for name in names]
    return aligned([("header", "A", "B"), *rows])
