"""`tidelog spark compact`: `tidelog compact`, a partition a task."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.compact import compact_options
from tidelog.cli.compaction_run import CompactionOutput, CompactionRun, partitions_of_topic, settings_by_topic
from tidelog.cli.log_dirs import log_dirs, metadata_root
from tidelog.cli.settings import settings_of
from tidelog.cli.spark import on_spark, spark_options

if TYPE_CHECKING:
    from tidelog.log.offline_compaction import Compacted

__all__ = ["compact"]


@click.command()
@compact_options
@spark_options
def compact(
    directories: tuple[str, ...],
    config: str | None,
    metadata: str | None,
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
    roots = log_dirs(directories, config)
    if len(roots) > 1:
        raise click.UsageError(
            "a job compacts one log directory: run it for each, or `tidelog compact` for all of them"
        )
    [directory] = roots
    configs = settings_by_topic(directory, topics, settings_of(settings), metadata_root(roots, metadata))
    _ensure_can_be_had(directory, list(configs))
    run = _SparkRun(directory, configs, CompactionOutput(as_json), drop_without_key)
    with on_spark("compact", **wishes) as (run.session, run.on_tasks):
        run.whole(is_dry=dry_run, no_preview=no_preview, is_agreed=yes)


def _ensure_can_be_had(directory: str, topics: list[str]) -> None:
    """Refuse what cannot be compacted before Spark is started."""
    from tidelog.log.offline_root import OfflineRoot

    with OfflineRoot(directory, dry_run=True) as root:
        for topic in topics:
            partitions_of_topic(root, topic)


@dataclass
class _SparkRun(CompactionRun):
    """The passes of `tidelog compact`, on Spark."""

    session: Any = field(default=None)
    on_tasks: Any = field(default=None)

    def one_pass(self, *, is_dry: bool) -> "list[Compacted]":
        from tidelog.log.names import CLEAN_SHUTDOWN
        from tidelog.log.offline_root import OfflineRoot
        from tidelog.spark.jobs.compact import compact as run

        root = OfflineRoot(self.directory)
        partitions = [partition for topic in self.settings for partition in partitions_of_topic(root, topic)]
        wanted = {one: self.settings[one.topic] for one in partitions if one not in self.settled}
        try:
            done = run(self.session, self.directory, wanted, dry_run=is_dry, on_tasks=self.on_tasks)
        except BaseException:
            if not Path(self.directory, CLEAN_SHUTDOWN).exists():
                self.tell_unclean("the job did not come to its end")
            raise
        found = {row.partition: row for row in done.partitions} | self.settled
        rows = [found[partition] for partition in partitions]
        self.output.show(rows, is_dry)
        if done.unclean_because is not None:
            self.tell_unclean(done.unclean_because)
        return rows
