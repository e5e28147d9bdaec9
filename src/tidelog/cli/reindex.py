"""`tidelog reindex`: rebuild indexes and producer snapshots while no broker runs."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.local_paths import LOCAL_PATH
from tidelog.cli.log_dirs import (
    config_option,
    directories_of_topics,
    ensure_sound,
    log_dirs,
    metadata_option,
    metadata_root,
)
from tidelog.cli.output import count, interruptible, print_json, progress, say, size, table, tell
from tidelog.cli.settings import settings_of
from tidelog.cli.streams import INTERRUPTED

if TYPE_CHECKING:
    from tidelog.fsck.reindex import Reindexed

__all__ = ["reindex"]

_DIFFERENCES = 1
_NOT_ALL_DONE = 3
_KINDS = ("index", "timeindex", "txnindex", "snapshot")


@click.command()
@click.argument("directories", nargs=-1, type=LOCAL_PATH, metavar="DIR...")
@config_option
@metadata_option
@click.option("--topic", "topics", multiple=True, metavar="T", help="A topic; repeatable. Without it all of them.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="A config of the topics (index.interval.bytes=…, segment.index.bytes=…), or producer.id.expiration.ms=….",
)  # fmt: skip
@click.option(
    "--only", "kinds", multiple=True, type=click.Choice(_KINDS), help="A kind of file; repeatable. Without it all four."
)
@click.option("--missing", is_flag=True, help="Only files that are missing or broken. Sound ones are left alone.")
@click.option("--dry-run", is_flag=True, help="Print which files would change, change nothing.")
@click.option("--verify", is_flag=True, help="Only compare: like --dry-run, and exit with 1 if a file would change.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per partition.")
def reindex(
    directories: tuple[str, ...],
    config: str | None,
    metadata: str | None,
    topics: tuple[str, ...],
    settings: tuple[str, ...],
    kinds: tuple[str, ...],
    missing: bool,
    dry_run: bool,
    verify: bool,
    as_json: bool,
) -> None:
    """Rebuild .index, .timeindex, .txnindex and .snapshot files below DIR while no broker runs.

    DIR is a log directory of a broker, a copy of some of its partitions, or a partition directory.

    The files become, byte for byte, what Kafka writes when it finds none of them; with --missing, sound files stay as
    they are. The log itself is only read. A log that would have to be cut first is left alone: repair it with tidelog
    fsck --repair.

    The configs of the topics come from the metadata log, if a directory or --metadata has it; otherwise
    index.interval.bytes is what the sound indexes of each log show. Give other configs that differ from Kafka's
    defaults: segment.index.bytes, and the broker's producer.id.expiration.ms.

    Run it as the user of the broker, or as root: new files then get the owner of the old ones.
    """
    from tidelog.fsck.reindex import ReindexSettings

    parsed = ReindexSettings.parse(settings_of(settings))
    suffixes = tuple(f".{kind}" for kind in kinds or _KINDS)
    is_trial = dry_run or verify
    roots = log_dirs(directories, config)
    ensure_sound(roots)
    known = metadata_root(roots, metadata)
    rows, left = [], []
    for root, some in _topics_by_root(roots, list(dict.fromkeys(topics))).items():
        done, not_done = _run(root, known, some, parsed, suffixes, missing, is_trial)
        rows += done
        left += not_done
        if not_done:
            break
    _show(rows, missing, is_trial, as_json)
    bad = [str(row.partition) for row in rows if row.error is not None]
    if left:
        tell(f"interrupted: not looked at: {', '.join(left)}")
        raise click.exceptions.Exit(INTERRUPTED)
    if bad:
        tell(f"left as they are: {', '.join(bad)}")
        raise click.exceptions.Exit(_NOT_ALL_DONE)
    if verify and any(row.changes for row in rows):
        raise click.exceptions.Exit(_DIFFERENCES)


def _topics_by_root(directories: list[str], named: list[str]) -> dict[str, list[str] | None]:
    """Which topics to rebuild in each log directory; None for all. Directories without any of them are left out."""
    if len(directories) == 1:
        return dict.fromkeys(directories, named or None)
    if named:
        return {**directories_of_topics(directories, named)}
    from tidelog.fsck.held_root import HeldRoot

    filled = [directory for directory in directories if HeldRoot(directory).has_partitions]
    return dict.fromkeys(filled or directories)  # where none has any, the first one says so


def _run(
    directory: str,
    metadata: str | None,
    topics: list[str] | None,
    settings: Any,
    suffixes: tuple[str, ...],
    missing: bool,
    is_trial: bool,
) -> "tuple[list[Reindexed], list[str]]":
    """What was done, and the partitions that an interruption left."""
    from tidelog.fsck.held_root import HeldRoot
    from tidelog.fsck.reindex import partitions_in, reindex_partition

    rows: list[Reindexed] = []
    with HeldRoot(directory, metadata=metadata) as root, interruptible() as ensure_wanted:
        partitions = partitions_in(root, topics)
        try:
            with progress("comparing" if is_trial else "rebuilding", ensure_wanted) as show:
                for partition in partitions:
                    ensure_wanted()
                    update = show(str(partition))
                    rows.append(
                        reindex_partition(
                            root,
                            partition,
                            settings,
                            kinds=suffixes,
                            missing=missing,
                            write=not is_trial,
                            on_progress=update,
                        )  # fmt: skip
                    )
        except KeyboardInterrupt:
            pass  # told when the root is let go
    return rows, [str(partition) for partition in partitions[len(rows) :]]


# -- what is shown -----------------------------------------------------------------------------------------------

_STATES = ("equal", "stale", "missing", "extra")
_SOUND = "sound"
_SPACED = (".index", ".timeindex")
_NAMED = 5


def _show(rows: "list[Reindexed]", missing: bool, is_trial: bool, as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_json(_as_json(row, is_trial))
        return
    states = (*_STATES, _SOUND) if missing else _STATES
    table(("partition", "log", *states), [_cells(row, states) for row in rows], "Compared" if is_trial else "Rebuilt")
    if is_trial and any(row.changes for row in rows):
        say()
        _show_files(rows)
    for row in rows:
        if row.error is not None:
            say(f"{row.partition}: {row.error}")
        if row.forgotten_producers:
            say(f"{row.partition}: {_forgotten(row, is_trial)}")
    for words, partitions in _intervals(rows).items():
        more = f" and {len(partitions) - _NAMED} more" if len(partitions) > _NAMED else ""
        say(f"{', '.join(partitions[:_NAMED])}{more}: {words}")
    say(_in_short(rows, missing, is_trial))


def _intervals(rows: "list[Reindexed]") -> dict[str, list[str]]:
    """The partitions by the interval of their indexes, where nobody said it."""
    found: dict[str, list[str]] = {}
    for row in rows:
        is_spaced = any(file.name.endswith(_SPACED) for file in row.files)
        if row.config is not None and not row.config.is_given and is_spaced:
            found.setdefault(str(row.config), []).append(str(row.partition))
    return found


def _cells(row: "Reindexed", wanted: Sequence[str]) -> list[str]:
    if row.error is not None:
        return [str(row.partition), *["-"] * (len(wanted) + 1)]
    states = _states_of([row])
    return [str(row.partition), size(row.log_bytes), *(str(states[state]) for state in wanted)]


def _states_of(rows: "Sequence[Reindexed]") -> Counter[str]:
    return Counter(str(file.state) for row in rows for file in row.files)


def _in_short(rows: "list[Reindexed]", missing: bool, is_trial: bool) -> str:
    """How many files were touched, and how many were left alone, and why."""
    states = _states_of(rows)
    would = "would be " if is_trial else ""
    deeds = [f"{count(states['stale'] + states['missing'], 'file')} {would}rebuilt"]
    if states["extra"]:
        deeds.append(f"{states['extra']:,} {would}removed")
    left = [f"{states['equal']:,} as Kafka would write {'it' if states['equal'] == 1 else 'them'}"]
    if states[_SOUND]:
        left.append(f"{states[_SOUND]:,} with other bytes and nothing wrong")
    hint = "; --missing leaves stale files alone that are sound" if is_trial and states["stale"] and not missing else ""
    return f"{', '.join(deeds)}; left alone: {', '.join(left)}{hint}"


def _show_files(rows: "list[Reindexed]") -> None:
    table(
        ("file", "state", "bytes", "rebuilt"),
        [
            (f"{row.partition}/{file.name}", str(file.state), str(file.size_before), str(file.size_after))
            for row in rows
            for file in row.changes
        ],
        "What would change",
    )


def _forgotten(row: "Reindexed", is_trial: bool) -> str:
    ids = ", ".join(map(str, row.forgotten_producers))
    verb = "would be" if is_trial else "are"
    return f"producers {verb} forgotten whose batches are deleted already, and that only a snapshot knew: {ids}"


def _as_json(row: "Reindexed", is_trial: bool) -> dict[str, object]:
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "dry_run": is_trial,
        "log_bytes": row.log_bytes,
        "files": [{**file._asdict(), "state": str(file.state)} for file in row.files],
        "forgotten_producers": list(row.forgotten_producers),
        "index_interval_bytes": None if row.config is None else row.config.config.index_interval_bytes,
        "index_interval_source": None if row.config is None else row.config.source,
        "error": row.error,
    }
