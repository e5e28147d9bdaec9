"""`tidelog spark compact`: `tidelog compact`, a partition a task."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.compact import _Output, _partitions, _Run, _settings_by_topic
from tidelog.cli.completion import complete_topic
from tidelog.cli.output import tell
from tidelog.cli.settings import settings_of
from tidelog.cli.spark import on_spark, spark_options

if TYPE_CHECKING:
    from tidelog.log.offline_compaction import Compacted

__all__ = ["compact"]


@click.command()
@click.argument("directory", metavar="DIR")
@click.option(
    "--topic", "topics", multiple=True, metavar="T", shell_complete=complete_topic,
    help="A topic to compact; repeatable. Without it all whose policy is compact, by the root's metadata log.",
)  # fmt: skip
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="A config of the topics (delete.retention.ms=…) or of the cleaner (log.cleaner.dedupe.buffer.size=…).",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Tell what would be saved. Nothing is changed.")
@click.option("--no-preview", is_flag=True, help="Do not count first what will be saved: half the reading.")
@click.option("--drop-without-key", is_flag=True, help="Compact also where records have no key: they go.")
@click.option("--yes", is_flag=True, help="Do not ask before the work. Only on a terminal is anything asked.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per partition and pass.")
@spark_options
def compact(
    directory: str,
    topics: tuple[str, ...],
    settings: tuple[str, ...],
    dry_run: bool,
    no_preview: bool,
    drop_without_key: bool,
    yes: bool,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Keep only the last record of every key, as `tidelog compact` does, on Spark: a partition a task.

    DIR is a log directory that no broker has open, and that driver and workers see under the same name. Its lock is
    held meanwhile. What the options mean, and what is kept, `tidelog compact --help` tells.
    """
    configs = _settings_by_topic(directory, topics, settings_of(settings))
    _ensure_can_be_had(directory, list(configs))
    run = _SparkRun(directory, configs, _Output(as_json), drop_without_key)
    with on_spark("compact", **wishes) as (run.session, run.on_tasks):
        if dry_run or not no_preview:
            rows = run.preview()
            if dry_run or not any(row.rounds for row in rows):
                run.end()
            if not yes and len(run.settled) < len(rows) and sys.stdin.isatty() and sys.stderr.isatty():
                run.ask()
        run.work()
    run.end()


def _ensure_can_be_had(directory: str, topics: list[str]) -> None:
    """Refuse what cannot be compacted before Spark is started."""
    from tidelog.log.offline_root import OfflineRoot

    with OfflineRoot(directory, dry_run=True) as root:
        for topic in topics:
            _partitions(root, topic)


@dataclass
class _SparkRun(_Run):
    """The passes of `tidelog compact`, on Spark."""

    session: Any = field(default=None)
    on_tasks: Any = field(default=None)

    def _pass(self, *, is_dry: bool) -> "list[Compacted]":
        from tidelog.log.names import CLEAN_SHUTDOWN
        from tidelog.log.offline_root import OfflineRoot
        from tidelog.spark.jobs.compact import compact as run

        root = OfflineRoot(self.directory)
        partitions = [partition for topic in self.settings for partition in _partitions(root, topic)]
        wanted = {one: self.settings[one.topic] for one in partitions if one not in self.settled}
        try:
            done = run(self.session, self.directory, wanted, dry_run=is_dry, on_tasks=self.on_tasks)
        except BaseException:
            if not Path(self.directory, CLEAN_SHUTDOWN).exists():
                self._tell_unclean("the job did not come to its end")
            raise
        found = {row.partition: row for row in done.partitions} | self.settled
        rows = [found[partition] for partition in partitions]
        self.output.show(rows, is_dry)
        if done.unclean_because is not None:
            self.is_unclean = True
            self._tell_unclean(done.unclean_because)
        return rows

    def _tell_unclean(self, why: str) -> None:
        tell(
            f"{self.directory} has no mark of a clean stop any more ({why}): "
            "the next broker that starts on it will recover its logs"
        )
