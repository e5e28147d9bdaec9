"""`tidelog compact`: what compaction would win in a log directory, and compaction while no broker runs."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tidelog.log.offline_compaction import Compacted, CompactionSettings

__all__ = ["compact"]

_WIDE = 200  # columns, where the table goes to a file or a program


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--topic", "topics", multiple=True, required=True, metavar="T", help="A topic to compact; repeatable.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="A config of the topics (delete.retention.ms=…) or of the cleaner (log.cleaner.dedupe.buffer.size=…).",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Tell what would be won. Nothing is changed.")
@click.option("--no-preview", is_flag=True, help="Do not count first what will be won: half the reading.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per partition and pass.")
def compact(
    directory: str, topics: tuple[str, ...], settings: tuple[str, ...], dry_run: bool, no_preview: bool, as_json: bool
) -> None:
    """Keep of every key its last record, in topics of the log directory DIR that no broker has open.

    Only the topics you name are touched, so name none whose cleanup.policy is not compact: of records with the same key
    all but the last one go for good. What lies at or above the high watermark, in an open transaction or in the active
    segment stays as it is.

    The directory does not tell the configs of its topics. Give those that differ from Kafka's defaults and matter here:
    min.compaction.lag.ms, delete.retention.ms, segment.bytes, and the broker's producer.id.expiration.ms.
    """
    from tidelog.log.offline_compaction import CompactionSettings

    configs = CompactionSettings.parse(dict(_pair(setting) for setting in settings))
    for is_dry in [dry_run] if dry_run or no_preview else [True, False]:
        _report(_compacted(directory, topics, configs, is_dry), is_dry, as_json)


def _compacted(
    directory: str, topics: tuple[str, ...], settings: "CompactionSettings", is_dry: bool
) -> "list[Compacted]":
    """All partitions of the topics, compacted or only looked at."""
    from tidelog.log.offline_compaction import compact_partition
    from tidelog.log.offline_root import OfflineRoot

    with OfflineRoot(directory, dry_run=is_dry) as root:
        partitions = [partition for topic in topics for partition in _partitions(root, topic)]
        with _progress() as show:
            return [compact_partition(root, partition, settings, show(str(partition))) for partition in partitions]


def _report(done: "list[Compacted]", is_dry: bool, as_json: bool) -> None:
    if as_json:
        for compacted in done:
            click.echo(json.dumps(_as_json(compacted, is_dry)))
    else:
        _print_table(done, is_dry)


def _pair(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint="--set")
    return name, value


def _partitions(root: Any, topic: str) -> list[Any]:
    from tidelog.errors import InvalidRequestError

    found: list[Any] = root.partitions(topic)
    if not found:
        raise InvalidRequestError(f"{root.path} has no partition of topic {topic}")
    return found


def _as_json(done: "Compacted", dry_run: bool) -> dict[str, object]:
    counts = done.records
    return {
        "topic": done.partition.topic,
        "partition": done.partition.partition,
        "dry_run": dry_run,
        "first_dirty_offset": done.first_dirty,
        "end_offset": done.end_offset,
        "rounds": done.rounds,
        "keys": done.keys,
        "records_read": counts.records_read,
        "records_kept": counts.records_kept,
        "superseded": counts.superseded,
        "tombstones_dropped": counts.tombstones_dropped,
        "tombstones_kept": counts.tombstones_kept,
        "without_key": counts.invalid,
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
        "is_partial": done.is_partial,
        "nothing_because": done.why_nothing,
    }


def _print_table(done: "list[Compacted]", dry_run: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="What compaction would win" if dry_run else "Compacted", title_justify="left", box=None)
    table.add_column("partition")
    for heading in ("keys", "records", "kept", "superseded", "tombstones gone", "bytes before", "after", "won"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for compacted in done:
        counts = compacted.records
        won = compacted.bytes_before - compacted.bytes_after
        table.add_row(
            str(compacted.partition),
            *(f"{number:,}" for number in (
                compacted.keys, counts.records_read, counts.records_kept, counts.superseded, counts.tombstones_dropped,
                compacted.bytes_before, compacted.bytes_after,
            )),
            f"{won / compacted.bytes_before:.0%}" if compacted.bytes_before else "",
            compacted.why_nothing or ("and more in further rounds" if compacted.is_partial else ""),
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)


@contextmanager
def _progress() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """A bar on standard error for each partition; nothing at all where nobody watches."""
    if not sys.stderr.isatty():
        yield lambda name: lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def show(name: str) -> Callable[[int, int], None]:
            task = bar.add_task(name, total=None)
            return lambda done, total: bar.update(task, completed=done, total=total)

        yield show
