"""`tidelog compact`: compact the topics of log directories while no broker runs, or print what that would save."""

from collections.abc import Callable
from typing import Any

import click

from tidelog.cli.compaction_run import NOT_ALL_DONE, CompactionOutput, CompactionRun, settings_by_root
from tidelog.cli.completion import complete_topic
from tidelog.cli.local_paths import LOCAL_PATH
from tidelog.cli.log_dirs import config_option, ensure_sound, log_dirs, metadata_option, metadata_root
from tidelog.cli.settings import settings_of

__all__ = ["compact", "compact_options"]

_OPTIONS = (
    click.option(
        "--topic", "topics", multiple=True, metavar="T", shell_complete=complete_topic,
        help="A topic to compact; repeatable. Without it, all topics that the metadata log says are compacted.",
    ),
    click.option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE",
        help="A config of the topics (delete.retention.ms=…) or of the cleaner (log.cleaner.dedupe.buffer.size=…).",
    ),
    click.option("--dry-run", is_flag=True, help="Print what would be saved, change nothing."),
    click.option(
        "--no-preview", is_flag=True,
        help="Do not count first what will be saved: reads half as much. Records without a key are removed without "
             "a question.",
    ),
    click.option("--drop-without-key", is_flag=True, help="Compact even if records have no key: they are removed."),
    click.option("--yes", is_flag=True, help="Do not ask for confirmation. Only a terminal is asked."),
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

    Of records with the same key, all but the last are removed for good. Records at or after the high watermark, in open
    transactions or in the active segment stay.

    If a DIR, or --metadata, holds the metadata log of the cluster (__cluster_metadata-0), it says which topics are
    compacted, and with which configs. Otherwise name the topics, only those whose cleanup.policy is compact, and give
    the configs that differ from Kafka's defaults: min.compaction.lag.ms, delete.retention.ms, segment.bytes. In either
    case give what the broker's own properties set: producer.id.expiration.ms and the defaults for topics.

    Run it as the broker's user, or as root: new files get the owner of the old ones.
    """
    roots = log_dirs(directories, config)
    ensure_sound(roots)
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
