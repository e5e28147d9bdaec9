"""`tidelog export`: write the records of a topic into files that other programs read."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.bounds import range_options, scan_options, topic_option
from tidelog.cli.on_master import export_on, master_option
from tidelog.cli.output import interruptible, print_json, progress, size, table, tell
from tidelog.cli.records import (
    change_options,
    csv_safe_option,
    damage_told,
    ensure_csv,
    row_changes,
    tell_of_bounds,
    tell_of_ends,
    tell_of_starts,
    tell_of_transactions,
    tell_of_uncommitted,
    tell_of_unfinished,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.tables.export import Exported
    from tidelog.tables.formats import Format
    from tidelog.tables.uncommitted import UncommittedRows
    from tidelog.view import LogDirView
    from tidelog.view.scan import Scan

__all__ = ["export"]

_LEFT_OUT = 1


@click.command()
@click.argument("directories", nargs=-1, required=True, metavar="DIR...")
@topic_option
@click.option(
    "--to", "target", required=True, metavar="PATH",
    help="The file to write, or with a slash at its end the directory for one file per partition. Also an address: "
         "s3://bucket/orders.parquet.",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice(["parquet", "csv", "jsonl", "arrow"]),
    help="Without it the name of the file tells.",
)  # fmt: skip
@click.option("--columns", metavar="C,…", help="The columns, in this order; docs/scan.md names them.")
@range_options(
    "--until", isolation_help="export leaves them out and says so; with --salvage it includes them and says how many."
)
@change_options
@click.option("--compression", metavar="CODEC", help="Of parquet (zstd) and arrow (none).")
@csv_safe_option
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per file.")
@master_option
def export(
    directories: tuple[str, ...],
    topic: str,
    target: str,
    form: str | None,
    columns: str | None,
    decode: bool,
    redact: tuple[str, ...],
    salt: str | None,
    compression: str | None,
    csv_safe: bool,
    force: bool,
    as_json: bool,
    master: str | None,
    **bounds: Any,
) -> None:
    """Write the records of a topic into parquet, CSV, JSON Lines or Arrow files. DIR as in `tidelog ls`.

    A file is written beside its place and gets its name once it is complete. What was exported, `tidelog load` makes a
    log of again, as long as it was neither decoded nor redacted.

    What could not be read at the end of a log, or was left out by --salvage or --no-verify, is reported on standard
    error with its offsets and bytes, and the exit code is 1.

    With --master it is done on Spark, into a directory of parquet files; `tidelog spark export` does more of that.
    """
    is_chosen = bounds["committed"] is not None
    if not is_chosen:  # damage may hide the end of a transaction: then nobody can tell what is committed
        bounds["committed"] = not bounds["skip_corrupt"]
    if master is not None:
        export_on(
            master, directories, topic, target, form=form, columns=columns, decode=decode, redact=redact, salt=salt,
            compression=compression, csv_safe=csv_safe, force=force, as_json=as_json, **bounds,
        )  # fmt: skip
        return
    import tidelog
    from tidelog.log.clock import SystemClock
    from tidelog.tables.export import export_table
    from tidelog.tables.uncommitted import UncommittedRows
    from tidelog.view.pieces import SCAN_COLUMNS, scan_schema

    options = scan_options(now_ms=SystemClock().now_ms(), **bounds)
    names = SCAN_COLUMNS if columns is None else [name.strip() for name in columns.split(",")]
    schema = scan_schema(names)
    changes = row_changes(names, topic, decode=decode, redact=redact, salt=salt)
    logs = tidelog.open(list(directories))
    tell_of_unfinished(logs)
    is_tolerant = bounds["skip_corrupt"] or bounds["no_verify"]
    uncommitted = None if bounds["committed"] else UncommittedRows(logs[topic], tolerant=is_tolerant)
    options["columns"] = changes.needed if uncommitted is None else _watched(changes.needed)
    kind, targets = _targets(logs, topic, target, form, bounds["partitions"])
    ensure_csv(kind, csv_safe)
    _ensure_writable(targets, directories, force)
    done, notices = [], []
    with (
        damage_told(directories, is_tolerant=is_tolerant),
        interruptible() as ensure_wanted,
        progress("exporting", ensure_wanted) as show,
    ):
        for path, partitions in targets.items():
            scan = logs.scan(topic, **{**options, "partitions": partitions})
            rows = scan if uncommitted is None else _counted(scan, changes.needed, uncommitted)
            on_rows = _observer(scan, show(os.path.basename(path)))
            with ensure_wanted.waiting() if _is_pipe(path) else nullcontext():
                done.append(
                    export_table(
                        rows, schema, path, kind, compression=compression, changes=changes, csv_safe=csv_safe,
                        force=force, on_rows=on_rows,
                    )
                )  # fmt: skip
            notices += [notice for notice in scan.notices if notice not in logs.unfinished_writes]
    has_finding = tell_of_ends(logs[topic], options)
    tell_of_starts(logs[topic], options)
    if uncommitted is not None:
        tell_of_uncommitted(uncommitted)
    elif not is_chosen:
        tell_of_transactions(logs[topic], options)
    tell_of_bounds(logs[topic], options, is_empty=not any(file.rows for file in done))
    _show(done, as_json=as_json)
    for notice in notices:
        tell(notice)
    if notices or has_finding:
        raise click.exceptions.Exit(_LEFT_OUT)


def _show(files: "list[Exported]", *, as_json: bool) -> None:
    if as_json:
        for file in files:
            print_json({"path": file.path, "records": file.rows, "bytes": file.size})
    else:
        table(("file", "records", "bytes"), [(file.path, f"{file.rows:,}", size(file.size)) for file in files])


def _watched(columns: Sequence[str]) -> tuple[str, ...]:
    from tidelog.tables.uncommitted import UncommittedRows

    return tuple(dict.fromkeys((*columns, *UncommittedRows.COLUMNS)))


def _counted(
    batches: "Iterable[pa.RecordBatch]", columns: Sequence[str], uncommitted: "UncommittedRows"
) -> "Iterator[pa.RecordBatch]":
    """The columns that are wanted, once the rows of transactions are counted."""
    for batch in batches:
        uncommitted.take(batch)
        yield batch.select(columns)


def _targets(
    logs: "LogDirView", topic: str, target: str, form: str | None, partitions: tuple[int, ...]
) -> "tuple[Format, dict[str, tuple[int, ...] | None]]":
    """The format, and the files to be written, each with the partitions that go into it; None for all."""
    from tidelog.log.local_files import LocalFileSystem
    from tidelog.tables.file_names import ensure_uncompressed, format_of
    from tidelog.view.addresses import ensure_bucket, is_address, local_path

    target = target if is_address(target) else local_path(target)
    if not target.endswith("/") and (is_address(target) or not os.path.isdir(target)):
        ensure_uncompressed(target)
        return form or format_of(target), {target: partitions or None}  # type: ignore[return-value]
    if form is None:
        raise click.UsageError("say which format the files in a directory are to have: --format parquet")
    numbers = partitions or tuple(part.partition for part in logs[topic])
    if is_address(target):
        ensure_bucket(target)  # before the name of a file is taken for one
    else:
        LocalFileSystem().make_directory(target)
    return form, {  # type: ignore[return-value]
        os.path.join(target, f"{topic}-{number}.{form}"): (number,) for number in dict.fromkeys(numbers)
    }


def _ensure_writable(paths: Iterable[str], directories: Sequence[str], force: bool) -> None:
    """Raise if a file is inside a log directory, or there already and not to be replaced."""
    from tidelog.tables.new_file import ensure_free, ensure_outside

    for path in paths:
        ensure_outside(path, directories)
        ensure_free(path, force=force)


def _is_pipe(path: str) -> bool:
    """Whether a target is there and no file, so that whoever reads it may be waited for."""
    return os.path.exists(path) and not os.path.isfile(path)


def _observer(scan: "Scan", update: Callable[[int, int], None]) -> Callable[[int], None]:
    """What is told how many rows are written."""
    return _as_bytes(scan, update) if sys.stderr.isatty() else lambda rows: update(rows, rows)


def _as_bytes(scan: "Scan", update: Callable[[int, int], None]) -> Callable[[int], None]:
    """Tells an observer how many bytes of the log so many rows are, about."""
    rows_in_all, size_in_all = max(scan.count(), 1), sum(piece.size for piece in scan.pieces())
    return lambda rows: update(size_in_all * rows // rows_in_all, size_in_all)
