"""A compaction at the command line: choose the topics, count what it would save, compact, and print both."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tidelog.cli.interrupted import settle_writes
from tidelog.cli.log_dirs import directories_of_topics
from tidelog.cli.output import aligned, interruptible, json_line, progress, room, say, short, size, tell
from tidelog.cli.streams import INTERRUPTED, let_go_of_output
from tidelog.log.names import CLUSTER_METADATA_DIRECTORY, CLUSTER_METADATA_TOPIC
from tidelog.visible import visible

if TYPE_CHECKING:
    from tidelog.log.offline_compaction import Compacted, CompactionSettings

__all__ = [
    "NOT_ALL_DONE",
    "CompactionOutput",
    "CompactionRun",
    "partitions_of_topic",
    "settings_by_root",
    "settings_by_topic",
]

_ASKED_NO = 1
NOT_ALL_DONE = 3


# -- which topics ------------------------------------------------------------------------------------------------


def settings_by_root(
    directories: list[str], named: tuple[str, ...], given: dict[str, str], metadata: str | None
) -> "dict[str, dict[str, CompactionSettings]]":
    """The topics to compact in each log directory of a broker. A topic that is named must be in one of them."""
    if len(directories) == 1:
        return {directories[0]: settings_by_topic(directories[0], named, given, metadata)}
    from tidelog.errors import InvalidRequestError
    from tidelog.log.offline_root import OfflineRoot

    if named:
        wanted = directories_of_topics(directories, named)
    else:
        wanted = {directory: [] for directory in directories if OfflineRoot(directory).topics}
    if not wanted:
        raise InvalidRequestError(f"none of {', '.join(directories)} holds a partition of a topic")
    return {each: settings_by_topic(each, tuple(some), given, metadata) for each, some in wanted.items()}


def settings_by_topic(
    directory: str, named: tuple[str, ...], given: dict[str, str], metadata: str | None = None
) -> "dict[str, CompactionSettings]":
    """The topics to compact, each with its configs: those that were given override those of the metadata log.

    `metadata` is the directory that holds the metadata log, if that is another one.
    """
    from tidelog.errors import InvalidRequestError
    from tidelog.log.offline_compaction import CompactionSettings
    from tidelog.log.offline_root import OfflineRoot

    everywhere = CompactionSettings.parse(given)
    known = _configs_of_topics(directory, metadata or directory)
    if not named and known is None:
        if not OfflineRoot(directory).topics:
            raise InvalidRequestError(f"{directory} holds no partition of a topic")
        raise InvalidRequestError(
            f"{directory} has no {CLUSTER_METADATA_DIRECTORY}, which lists the compacted topics: name them with "
            "--topic, or its directory with --metadata"
        )
    known = known or {}
    found = {}
    for topic in named or [topic for topic, configs in known.items() if _is_compacted(configs)]:
        if topic not in known:
            found[topic] = everywhere
        elif _is_compacted({**known[topic], **given}):
            found[topic] = CompactionSettings.parse({**known[topic], **given})
        else:
            raise InvalidRequestError(
                f"{topic} is not compacted, by the metadata log; --set cleanup.policy=compact does it all the same"
            )
    return found


def _is_compacted(configs: dict[str, str]) -> bool:
    return "compact" in configs.get("cleanup.policy", "delete").replace(" ", "").split(",")


def _configs_of_topics(directory: str, metadata_root: str) -> dict[str, dict[str, str]] | None:
    """What the metadata log says; None if there is none. Only topics that lie in the directory are of interest."""
    metadata = Path(metadata_root, CLUSTER_METADATA_DIRECTORY)
    if not metadata.is_dir():
        return None
    import tidelog
    from tidelog.log.offline_root import OfflineRoot
    from tidelog.view.topic_configs import topic_configs

    configs = topic_configs(tidelog.open(str(metadata))[CLUSTER_METADATA_TOPIC, 0])
    return {topic: configs[topic] for topic in OfflineRoot(directory).topics if topic in configs}


# -- the two passes ----------------------------------------------------------------------------------------------


@dataclass
class CompactionRun:
    """One call: a look at all partitions, and the work on those where it is worth it."""

    directory: str
    settings: "dict[str, CompactionSettings]"  # by topic
    output: "CompactionOutput"
    drop_without_key: bool
    settled: "dict[Any, Compacted]" = field(default_factory=dict)  # by partition: the work leaves them alone
    bad: list[str] = field(default_factory=list)
    is_unclean: bool = False

    def whole(self, *, is_dry: bool, no_preview: bool, is_agreed: bool) -> NoReturn:
        """Count, ask unless that is agreed on, work, and end with the exit code that tells how it went."""
        if not is_dry:
            settle_writes([self.directory])
        if is_dry or not no_preview:
            rows = self.preview()
            if is_dry or not any(row.rounds for row in rows):
                self.end()
            if not is_agreed and len(self.settled) < len(rows) and sys.stdin.isatty() and sys.stderr.isatty():
                self.ask()
        self.work()
        self.end()

    def preview(self) -> "list[Compacted]":
        """Count and tell, and find out what the work will leave alone."""
        rows = self.one_pass(is_dry=True)
        for row in rows:
            if row.error is not None or not row.rounds:
                self.settled[row.partition] = row
            elif row.records.invalid and not self.drop_without_key:
                self.settled[row.partition] = _refused(row)
        self.bad = [str(row.partition) for row in rows if row.error is not None]
        return rows

    def work(self) -> None:
        """Compact what is left to compact."""
        self.bad = [str(row.partition) for row in self.one_pass(is_dry=False) if row.error is not None]

    def one_pass(self, *, is_dry: bool) -> "list[Compacted]":
        """Count what all partitions would save, or compact those that are not settled."""
        from tidelog.log.offline_compaction import compact_partition
        from tidelog.log.offline_root import OfflineRoot

        rows: list[Compacted] = []
        with OfflineRoot(self.directory, dry_run=is_dry) as root, interruptible() as ensure_wanted:
            partitions = [partition for topic in self.settings for partition in partitions_of_topic(root, topic)]
            try:
                with progress("counting" if is_dry else "compacting", ensure_wanted) as show:
                    for partition in partitions:
                        ensure_wanted()
                        row = self.settled.get(partition)
                        if row is None:
                            settings = self.settings[partition.topic]
                            row = compact_partition(root, partition, settings, show(str(partition)))
                        rows.append(row)
            except KeyboardInterrupt:
                pass  # told below, when the root is as it should be
        self.output.show(rows, is_dry)
        if root.unclean_because is not None:
            self.tell_unclean(root.unclean_because)
        if len(rows) < len(partitions):
            _tell_interrupted([str(row.partition) for row in rows], [str(p) for p in partitions[len(rows) :]], is_dry)
            raise click.exceptions.Exit(INTERRUPTED)
        return rows

    def tell_unclean(self, why: str) -> None:
        """Say that the root has lost the mark of a clean stop."""
        self.is_unclean = True
        tell(
            f"{self.directory} has no mark of a clean stop any more ({why}): "
            "the next broker that starts on it will recover its logs"
        )

    def ask(self) -> None:
        """Ask whether to go on; not someone who cannot have seen what would be done."""
        try:
            if not self.output.is_lost and click.confirm("Go on?", err=True):
                return
        except click.Abort:
            say(err=True)
        tell("nothing was changed")
        raise click.exceptions.Exit(_ASKED_NO)

    def end(self) -> NoReturn:
        """Say what was not done, and end."""
        if self.bad:
            tell(f"not compacted, or not to the end: {', '.join(self.bad)}")
        if self.bad or self.is_unclean:
            raise click.exceptions.Exit(NOT_ALL_DONE)
        raise click.exceptions.Exit(0)


def _refused(row: "Compacted") -> "Compacted":
    """A partition that is left as it is, because records without a key would go."""
    from tidelog.log.compaction.record_filter import FilterCounts

    return replace(
        row,
        bytes_after=row.bytes_before,
        end_offset=row.first_dirty,
        rounds=0,
        keys=0,
        records=FilterCounts(invalid=row.records.invalid),
        is_partial=False,
        error=f"{_without_key(row)} Left as it is; with --drop-without-key they go.",
    )


def partitions_of_topic(root: Any, topic: str) -> list[Any]:
    """The partitions of a topic, of which there must be one."""
    from difflib import get_close_matches

    from tidelog.errors import InvalidRequestError

    found: list[Any] = root.partitions(topic)
    if found:
        return found
    hint = "; to name several topics, repeat --topic" if "," in topic else ""
    nearest = get_close_matches(topic, root.topics, n=1)
    if nearest and not hint:
        hint = f"; the nearest is {nearest[0]}"
    raise InvalidRequestError(f"{root.path} has no partition of topic {topic}{hint}")


def _tell_interrupted(done: list[str], left: list[str], is_dry: bool) -> None:
    deed = "counted" if is_dry else "compacted"
    tell(f"interrupted: {deed} {', '.join(done) or 'nothing'}; not, or not to the end: {', '.join(left)}")


# -- what is shown -----------------------------------------------------------------------------------------------


@dataclass
class CompactionOutput:
    """Standard output. If its reader leaves, the rest is not shown and the work goes on."""

    as_json: bool
    is_lost: bool = False

    def show(self, rows: "list[Compacted]", is_dry: bool) -> None:
        """Print the partitions of a pass."""
        if self.is_lost or not rows:
            return
        lines = [json_line(_as_json(row, is_dry)) for row in rows] if self.as_json else _table(rows, is_dry)
        try:
            click.echo("\n".join(lines if self.as_json else map(visible, lines)))
            sys.stdout.flush()
        except BrokenPipeError:
            self.is_lost = True
            let_go_of_output()


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
        "records_read": counts.data_read,
        "records_kept": counts.data_kept,
        "aborted": counts.aborted,
        "superseded": counts.superseded,
        "tombstones_dropped": counts.tombstones_dropped,
        "tombstones_kept": counts.tombstones_kept,
        "without_key": counts.invalid,
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
        "is_partial": done.is_partial,
        "nothing_because": done.why_nothing,
        "error": done.error,
    }


_COLUMNS = ("partition", "keys", "records", "kept", "dropped", "before", "after", "saved")
_FEWER = ("partition", "records", "dropped", "before", "after", "saved")


def _table(done: "list[Compacted]", dry_run: bool) -> list[str]:
    """The partitions, one a line, in as much detail as the terminal has room for, and what is to be said about them."""
    width = room()
    for columns, count in ((_COLUMNS, "{:,}".format), (_COLUMNS, short), (_FEWER, short)):
        lines = aligned([columns, *([_cells(row, count)[name] for name in columns] for row in done)])
        if max(map(len, lines)) <= width:
            break
    else:  # the names do not fit beside the numbers
        numbers = aligned([_FEWER[1:], *([_cells(row, short)[name] for name in _FEWER[1:]] for row in done)])
        pairs = zip(done, numbers[1:], strict=True)
        lines = [numbers[0], *(line for row, cells in pairs for line in (str(row.partition), cells))]
    notes = [f"{row.partition}: {note}" for row in done for note in _notes(row, dry_run)]
    deed = "Not compacted" if all(row.error is not None for row in done) else "Compacted"
    return ["What compaction would save" if dry_run else deed, *lines, *notes]


def _cells(done: "Compacted", count: Callable[[int], str]) -> dict[str, str]:
    counts, saved = done.records, done.bytes_before - done.bytes_after
    is_unknown = done.error is not None and not done.bytes_before  # it could not even be opened
    if not done.rounds:
        numbers = dict.fromkeys(_COLUMNS, "-")
    else:
        numbers = {
            "keys": count(done.keys),
            "records": count(counts.data_read),
            "kept": count(counts.data_kept),
            "dropped": count(counts.data_read - counts.data_kept),
        }
    return {
        **numbers,
        "partition": str(done.partition),
        "before": "-" if is_unknown else size(done.bytes_before),
        "after": "-" if is_unknown else size(done.bytes_after),
        "saved": f"{saved / done.bytes_before:.0%}" if done.bytes_before else "-",
    }


def _notes(done: "Compacted", dry_run: bool) -> Iterator[str]:
    counts = done.records
    if done.error is not None:
        yield f"error: {done.error}"
    if done.why_nothing is not None:
        yield f"nothing to do: {done.why_nothing}"
    if done.is_partial:
        yield "more in further rounds, because log.cleaner.dedupe.buffer.size is too small for all keys"
    if counts.invalid and done.error is None:
        yield _without_key(done) if dry_run else f"{_records(counts.invalid)} had no key and went"
    if counts.aborted and done.error is None:
        yield f"{_records(counts.aborted)} of aborted transactions {'would go' if dry_run else 'went'}"
    if counts.tombstones_kept and done.error is None:
        yield f"tombstones kept: {counts.tombstones_kept:,}; they go in a round after delete.retention.ms"


def _without_key(done: "Compacted") -> str:
    number = done.records.invalid
    return f"{_records(number)} {'has' if number == 1 else 'have'} no key and would go: is this topic really compacted?"


def _records(number: int) -> str:
    return "1 record" if number == 1 else f"{number:,} records"
