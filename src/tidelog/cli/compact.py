"""`tidelog compact`: what compaction would save in a log directory, and compaction while no broker runs."""

from collections.abc import Callable
from typing import Any

import click

from tidelog.cli.compaction_run import NOT_ALL_DONE, CompactionOutput, CompactionRun, settings_by_root
from tidelog.cli.completion import complete_topic
from tidelog.cli.local_paths import LOCAL_PATH
from tidelog.cli.log_dirs import config_option, ensure_no_duplicates, log_dirs, metadata_option, metadata_root
from tidelog.cli.settings import settings_of

__all__ = ["compact", "compact_options"]

_OPTIONS = (
    click.option(
        "--topic", "topics", multiple=True, metavar="T", shell_complete=complete_topic,
        help="A topic to compact; repeatable. Without it all whose policy is compact, by the root's metadata log.",
    ),
    click.option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE",
        help="A config of the topics (delete.retention.ms=…) or of the cleaner (log.cleaner.dedupe.buffer.size=…).",
    ),
    click.option("--dry-run", is_flag=True, help="Tell what would be saved. Nothing is changed."),
    click.option(
        "--no-preview", is_flag=True,
        help="Do not count first what will be saved: half the reading. Nothing is asked, records without a key just "
             "go.",
    ),
    click.option("--drop-without-key", is_flag=True, help="Compact also where records have no key: they go."),
    click.option("--yes", is_flag=True, help="Do not ask before the work. Only on a terminal is anything asked."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per partition and pass."),
)  # fmt: skip


def compact_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The directories and the options of a compaction, wherever it runs."""
    for option in reversed(_OPTIONS):
        command = option(command)
    command = config_option(metadata_option(command))
    return click.argument("directories", nargs=-1, type=LOCAL_PATH, metavar="DIR...")(command)


@click.command()
@compact_options
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
) -> None:
    """Keep only the last record of every key, in topics of the log directories DIR while no broker runs.

    Of records with the same key all but the last one go for good. What lies at or above the high watermark, in an open
    transaction or in the active segment stays as it is.

    Where a DIR, or --metadata, holds the metadata log of the cluster (__cluster_metadata-0), it tells which topics are
    compacted, and their configs. Where none does, only the topics you name are touched, so name none whose
    cleanup.policy is not compact, and give the configs that differ from Kafka's defaults and matter here:
    min.compaction.lag.ms, delete.retention.ms, segment.bytes. What the broker's own properties say
    (producer.id.expiration.ms, defaults of topics) is to be given in either case.

    Run it as the user of the broker, or as root: new files then get the owner of the old ones.
    """
    roots = log_dirs(directories, config)
    ensure_no_duplicates(roots)
    configs = settings_by_root(roots, topics, settings_of(settings), metadata_root(roots, metadata))
    code = 0
    for root, by_topic in configs.items():
        run = CompactionRun(root, by_topic, CompactionOutput(as_json), drop_without_key)
        try:
            run.whole(is_dry=dry_run, no_preview=no_preview, is_agreed=yes)
        except click.exceptions.Exit as ended:
            code = max(code, ended.exit_code)
            if ended.exit_code not in (0, NOT_ALL_DONE):
                break  # interrupted, not agreed to, or nobody reads any more
    raise click.exceptions.Exit(code)
