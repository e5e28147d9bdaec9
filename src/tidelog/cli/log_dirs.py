"""All log directories of a broker, as commands that write take them.

    tidelog load x.csv --to /d1 --to /d2 …        one by one
    tidelog load x.csv --to /d1,/d2 …             as in log.dirs
    tidelog compact --config server.properties    out of the broker's own file

A command that knows one of several directories would make a second copy of a partition that lies in another one, and
Kafka does not start on such a pair.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from tidelog.log.names import CLUSTER_METADATA_TOPIC, META_PROPERTIES, TopicPartition

__all__ = [
    "config_option",
    "ensure_all_named",
    "ensure_no_duplicates",
    "log_dirs",
    "metadata_option",
    "metadata_root",
    "named_or_configured",
]

Command = Callable[..., Any]

_METADATA = f"{CLUSTER_METADATA_TOPIC}-0"


def config_option(command: Command) -> Command:
    """`--config`, the properties of a broker that name its log directories."""
    return click.option(
        "--config", metavar="FILE", type=click.Path(exists=True, dir_okay=False),
        help="The broker's server.properties: its log.dirs are the directories.",
    )(command)  # fmt: skip


def metadata_option(command: Command) -> Command:
    """`--metadata`, where the metadata log lies."""
    return click.option(
        "--metadata", metavar="DIR", type=click.Path(exists=True, file_okay=False),
        help=f"The directory that {_METADATA} lies in, if it is none of those named: metadata.log.dir of the broker.",
    )(command)  # fmt: skip


def log_dirs(named: Sequence[str], config: str | None, option: str = "DIR") -> list[str]:
    """The log directories that were named, or that a broker's properties name."""
    if named and config is not None:
        raise click.UsageError(f"{option} and --config both name log directories: give one of them")
    if config is not None:
        return _unlike(_ensure_there(_dirs_in(config), config))
    if not named:
        raise click.UsageError(f"no log directory is named: give {option}, or --config server.properties")
    return _unlike([directory for word in named for directory in _parts(word)])


def named_or_configured(named: tuple[str, ...], config: str | None) -> tuple[str, ...]:
    """The same for commands that take whatever was named, trees and addresses too, as it is."""
    return named if named and config is None else tuple(log_dirs(named, config))


def _parts(word: str) -> list[str]:
    """The directories of a list with commas, unless there is one that is called so."""
    if "," not in word or os.path.isdir(word):
        return [word]
    return [part.strip() for part in word.split(",") if part.strip()]


def _dirs_in(config: str) -> list[str]:
    from tidelog.log.manager.manager_config import log_dirs_of
    from tidelog.log.manager.meta_properties import parse_properties

    properties = parse_properties(Path(config).read_bytes().decode("iso-8859-1"))
    if not properties.get("log.dirs") and not properties.get("log.dir"):
        raise click.UsageError(f"{config} has neither log.dirs nor log.dir: name the log directories yourself")
    return log_dirs_of(properties)


def _ensure_there(directories: list[str], config: str) -> list[str]:
    """Reject a broker's log directory that does not exist: its disk may not be mounted, and another would be filled."""
    for directory in directories:
        if not os.path.isdir(directory):
            raise click.UsageError(
                f"{config}: {directory} of log.dirs is not a directory here; mount its disk, or name the log "
                "directories yourself"
            )
    return directories


def _unlike(directories: list[str]) -> list[str]:
    seen: dict[str, str] = {}
    for directory in directories:
        other = seen.setdefault(os.path.realpath(directory), directory)
        if other is not directory:
            raise click.UsageError(f"{other} and {directory} are one directory: name it once")
    return directories


def ensure_no_duplicates(directories: Sequence[str]) -> None:
    """Raise InvalidRequestError if a partition lies in two log directories."""
    from tidelog.errors import InvalidRequestError

    found: dict[str, str] = {}
    for directory in directories:
        for name in sorted(_partition_names(directory)):
            other = found.setdefault(name, directory)
            if other is not directory:
                raise InvalidRequestError(
                    f"{name} lies in {other} and in {directory}: Kafka does not start on them; "
                    f"`tidelog diff {other} {directory}` compares the two, take one away"
                )


def _partition_names(directory: str) -> set[str]:
    from tidelog.errors import InvalidTopicError
    from tidelog.log.names import parse_directory_name

    names = set()
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        try:
            if str(parse_directory_name(name)) == name and os.path.isdir(os.path.join(directory, name)):
                names.add(name)
        except InvalidTopicError:
            continue
    return names


def metadata_root(directories: Sequence[str], metadata: str | None) -> str | None:
    """The directory that the metadata log lies in: the one that was named, or one of the log directories."""
    if metadata is not None:
        root = os.path.dirname(os.path.abspath(metadata)) if Path(metadata).name == _METADATA else metadata
        if not Path(root, _METADATA).is_dir():
            raise click.UsageError(f"--metadata {metadata}: there is no {_METADATA} in it")
        return root
    return next((directory for directory in directories if Path(directory, _METADATA).is_dir()), None)


def ensure_all_named(directories: Sequence[str]) -> Callable[[TopicPartition], None]:
    """Before a partition is made: raise if the broker has log directories that are not named.

    The metadata log knows the directories that each broker has registered, by their ids.
    """

    def ensure(partition: TopicPartition) -> None:
        from tidelog.errors import InvalidRequestError

        node, missing = _not_named(directories)
        if missing:
            named = "directory is" if len(directories) == 1 else "directories are"
            raise InvalidRequestError(
                f"broker {node} has {len(directories) + missing} log directories by its metadata log, and "
                f"{len(directories)} {named} named: {partition} may lie in another one; name all of them (--to DIR "
                "--to DIR, or --config server.properties)"
            )

    return ensure


def _not_named(directories: Sequence[str]) -> tuple[int | None, int]:
    """A broker, and how many of its log directories are not among some."""
    from tidelog.log.local_files import LocalFileSystem
    from tidelog.log.manager.meta_properties import read_meta_properties
    from tidelog.log.partition_metadata import uuid_text
    from tidelog.view.files import ReadOnlyFiles
    from tidelog.view.partition import PartitionView
    from tidelog.view.topic_configs import broker_log_dirs

    fs, root = LocalFileSystem(), metadata_root(directories, None)
    known = [read_meta_properties(fs, each) for each in directories if Path(each, META_PROPERTIES).exists()]
    node = next((each.node_id for each in known if each is not None), None)
    if root is None or node is None:
        return node, 0
    ids = {uuid_text(each.directory_id) for each in known if each is not None and each.directory_id is not None}
    registered = broker_log_dirs(PartitionView.at(ReadOnlyFiles(), os.path.abspath(os.path.join(root, _METADATA))))
    return node, len(set(registered.get(node, ())) - ids)
