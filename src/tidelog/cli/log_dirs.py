"""The log directories of a broker, as commands that write to them take them.

    tidelog load x.csv --to /d1 --to /d2 …        one by one
    tidelog load x.csv --to /d1,/d2 …             as in log.dirs
    tidelog compact --config server.properties    from the broker's own file

A command that knows only one of several directories would create a second copy of a partition that is in another one,
and Kafka does not start on such a pair.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from tidelog.log.names import CLUSTER_METADATA_DIRECTORY

__all__ = [
    "config_option",
    "directories_of_topics",
    "ensure_sound",
    "is_empty",
    "log_dirs",
    "metadata_option",
    "metadata_root",
    "named_or_configured",
    "node_directories",
]

Command = Callable[..., Any]


def config_option(command: Command) -> Command:
    """`--config`, the properties of a broker that name its log directories."""
    return click.option(
        "--config", metavar="FILE", type=click.Path(exists=True, dir_okay=False),
        help="The broker's server.properties: its log.dirs are the directories.",
    )(command)  # fmt: skip


def metadata_option(command: Command) -> Command:
    """`--metadata`, the directory of the metadata log."""
    return click.option(
        "--metadata", metavar="DIR", type=click.Path(exists=True, file_okay=False),
        help=f"The directory with {CLUSTER_METADATA_DIRECTORY}, if it is not one of DIR: the broker's "
        "metadata.log.dir.",
    )(command)  # fmt: skip


def log_dirs(named: Sequence[str], config: str | None, option: str = "DIR", *, with_empty: bool = False) -> list[str]:
    """The log directories that were named, or that a broker's properties name.

    Of a broker's those that are empty are left out, unless all are, or `with_empty`: new disks, with no logs yet.
    """
    if named and config is not None:
        raise click.UsageError(f"{option} and --config both name log directories: give one of them")
    if config is not None:
        directories = _unlike(_ensure_there(_dirs_in(config), config))
        filled = [directory for directory in directories if not is_empty(directory)]
        return directories if with_empty or not filled else filled
    if not named:
        raise click.UsageError(f"no log directory is named: give {option}, or --config server.properties")
    return _unlike([directory for word in named for directory in _parts(word)])


def named_or_configured(named: tuple[str, ...], config: str | None) -> tuple[str, ...]:
    """The same for commands that take whatever was named, trees and addresses too, as it is."""
    return named if named and config is None else tuple(log_dirs(named, config))


def node_directories(named: tuple[str, ...], config: str | None, *, with_lost: bool) -> tuple[str, ...]:
    """The same for commands that look at a whole node: with the `metadata.log.dir` of its properties.

    With `with_lost` those of a broker's directories that are missing or empty are not left out, or rejected.
    """
    if config is None or named:
        return named_or_configured(named, config)
    directories = _unlike(_dirs_in(config)) if with_lost else list(named_or_configured(named, config))
    metadata = _properties(config).get("metadata.log.dir", "").strip()
    if metadata and os.path.realpath(metadata) not in map(os.path.realpath, _dirs_in(config)):
        directories += [metadata] if with_lost else _ensure_there([metadata], config)
    return tuple(directories)


def is_empty(directory: str) -> bool:
    """Whether a path is a directory with nothing in it."""
    try:
        return not os.listdir(directory)
    except OSError:  # it is none, or nobody may look: whoever opens it says so
        return False


def _parts(word: str) -> list[str]:
    """The directories of a list with commas, unless a directory has that name."""
    if "," not in word or os.path.isdir(word):
        return [word]
    return [part.strip() for part in word.split(",") if part.strip()]


def _dirs_in(config: str) -> list[str]:
    from tidelog.log.manager.manager_config import log_dirs_of

    properties = _properties(config)
    if not properties.get("log.dirs") and not properties.get("log.dir"):
        raise click.UsageError(f"{config} has neither log.dirs nor log.dir: name the log directories yourself")
    return log_dirs_of(properties)


def _properties(config: str) -> dict[str, str]:
    from tidelog.log.manager.meta_properties import parse_properties

    return parse_properties(Path(config).read_bytes().decode("iso-8859-1"))


def _ensure_there(directories: list[str], config: str) -> list[str]:
    """Reject a log directory that does not exist: its disk may not be mounted, and another disk would be filled."""
    for directory in directories:
        if not os.path.isdir(directory):
            raise click.UsageError(
                f"{config}: {directory} is not a directory here; mount its disk, or name the log directories yourself"
            )
    return directories


def _unlike(directories: list[str]) -> list[str]:
    seen: dict[str, str] = {}
    for directory in directories:
        other = seen.setdefault(os.path.realpath(directory), directory)
        if other is not directory:
            raise click.UsageError(f"{other} and {directory} are one directory: name it once")
    return directories


def ensure_sound(directories: Sequence[str]) -> None:
    """Raise InvalidRequestError if one of several directories holds no log, or a partition is in two of them."""
    from tidelog.errors import InvalidRequestError
    from tidelog.fsck.places import find_places
    from tidelog.log.local_files import LocalFileSystem

    if len(directories) > 1:  # one that holds no log would be passed over as if it were a new disk
        find_places(LocalFileSystem(), directories)
    found: dict[str, str] = {}
    for directory in directories:
        for name in sorted(_partition_names(directory)):
            other = found.setdefault(name, directory)
            if other is not directory:
                raise InvalidRequestError(
                    f"{name} is in {other} and in {directory}: Kafka does not start on them; "
                    f"`tidelog diff {other} {directory}` compares the two, move one away"
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


def directories_of_topics(directories: Sequence[str], named: Sequence[str]) -> dict[str, list[str]]:
    """Which of the named topics each log directory holds. Directories without any are left out."""
    from tidelog.errors import InvalidRequestError
    from tidelog.log.offline_root import OfflineRoot

    topics = {directory: set(OfflineRoot(directory).topics) for directory in directories}
    for topic in named:
        if not any(topic in here for here in topics.values()):
            raise InvalidRequestError(f"none of {', '.join(directories)} has a partition of topic {topic}")
    return {each: [topic for topic in named if topic in here] for each, here in topics.items() if here & set(named)}


def metadata_root(directories: Sequence[str], metadata: str | None) -> str | None:
    """The directory with the metadata log: the one that was named, or one of the log directories."""
    if metadata is not None:
        root = (
            os.path.dirname(os.path.abspath(metadata))
            if Path(metadata).name == CLUSTER_METADATA_DIRECTORY
            else metadata
        )
        if not Path(root, CLUSTER_METADATA_DIRECTORY).is_dir():
            raise click.UsageError(f"--metadata {metadata}: there is no {CLUSTER_METADATA_DIRECTORY} in it")
        return root
    return next((directory for directory in directories if Path(directory, CLUSTER_METADATA_DIRECTORY).is_dir()), None)
