"""Whose a root is: the file `meta.properties`, written when a broker's storage is formatted.

    #
    #Sun Nov 15 19:52:30 UTC 2026
    node.id=1
    directory.id=OimrddjSTw20XAh5VnF0_A       of this root alone: how the cluster's metadata says where a replica lies
    version=1
    cluster.id=tlGoldenCorpus43xxxxxA

Version 1 has a cluster and a node; version 0, from the days of ZooKeeper, may lack either and calls the node
`broker.id`. The form is that of Java's properties: comments, continued lines, escapes.

Kafka: MetaProperties, PropertiesUtils, DirectoryId and java.util.Properties.
"""

import re
import time
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.errors import CheckpointError, InvalidRequestError
from tidelog.log.files import FileSystem, ReadFileSystem, join, read_whole, write_atomically
from tidelog.log.names import META_PROPERTIES
from tidelog.log.partition_metadata import parse_uuid, uuid_text
from tidelog.log.text_files import to_number

__all__ = [
    "LOST_DIRECTORY",
    "MIGRATING_DIRECTORY",
    "UNASSIGNED_DIRECTORY",
    "MetaProperties",
    "parse_properties",
    "read_meta_properties",
    "write_meta_properties",
]

# Ids that stand for no root. The first hundred are Kafka's own.
MIGRATING_DIRECTORY = uuid.UUID(int=0)
UNASSIGNED_DIRECTORY = uuid.UUID(int=1)
LOST_DIRECTORY = uuid.UUID(int=2)
_RESERVED = 100

_VERSION, _CLUSTER_ID, _DIRECTORY_ID = "version", "cluster.id", "directory.id"
_NODE_ID = ("broker.id", "node.id")  # by version
_JAVA_ORDER = (_NODE_ID[1], _NODE_ID[0], _DIRECTORY_ID, _VERSION, _CLUSTER_ID)  # of Java's table; any would do

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_LINE_END = re.compile(r"\r\n|\r|\n")
_ODD_BACKSLASHES = re.compile(r"(?<!\\)(\\\\)*\\$")
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"} | {mark: f"\\{mark}" for mark in "\\=:#!"}


class MetaProperties(NamedTuple):
    """The identity of a root."""

    version: int = 1
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: uuid.UUID | None = None


def read_meta_properties(fs: ReadFileSystem, root: str) -> MetaProperties | None:
    """The identity of a root; None if it has none. Raises CheckpointError for a file that does not say it."""
    path = join(root, META_PROPERTIES)
    if fs.stat(path) is None:
        return None
    try:
        return _identity(parse_properties(read_whole(fs, path).decode("iso-8859-1")))
    except InvalidRequestError as error:
        raise CheckpointError(f"{path}: {error}") from error


def write_meta_properties(fs: FileSystem, root: str, meta: MetaProperties, now_ms: int) -> None:
    """Give a root an identity, in one step."""
    values: dict[str, object] = {
        _VERSION: meta.version,
        _CLUSTER_ID: meta.cluster_id,
        _DIRECTORY_ID: None if meta.directory_id is None else uuid_text(meta.directory_id),
    }
    if meta.version not in (0, 1):
        raise InvalidRequestError(f"version {meta.version} of {META_PROPERTIES}; 0 and 1 are known")
    values[_NODE_ID[meta.version]] = meta.node_id
    texts = {name: str(value) for name, value in values.items() if value is not None}
    _identity(texts)  # what could not be read is not written
    if not all(text.isascii() for text in texts.values()):
        raise InvalidRequestError(f"an id is made of ASCII characters, not {meta.cluster_id!r}")
    lines = ["#", f"#{_date(now_ms)}", *(f"{name}={_escaped(texts[name])}" for name in _JAVA_ORDER if name in texts)]
    write_atomically(fs, join(root, META_PROPERTIES), "".join(f"{line}\n" for line in lines).encode())


def _identity(values: dict[str, str]) -> MetaProperties:
    version = _number(values.get(_VERSION, "0").strip(), _VERSION)
    if version not in (0, 1):
        raise InvalidRequestError(f"version {version} of {META_PROPERTIES}; 0 and 1 are known")
    node_name = _NODE_ID[version]
    if version == 1:
        for name in (node_name, _CLUSTER_ID):
            if name not in values:
                raise InvalidRequestError(f"{name} is missing")
    node_id = _number(values[node_name], node_name) if node_name in values else None
    directory_id = None
    if _DIRECTORY_ID in values:
        try:
            directory_id = parse_uuid(values[_DIRECTORY_ID])
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{_DIRECTORY_ID}: {error}") from error
        if directory_id.int < _RESERVED:
            raise InvalidRequestError(f"{_DIRECTORY_ID} is {values[_DIRECTORY_ID]}, which stands for no directory")
    return MetaProperties(version, values.get(_CLUSTER_ID), node_id, directory_id)


def _number(text: str, name: str) -> int:
    value = to_number(text, 32)
    if value is None:
        raise InvalidRequestError(f"{name} is {text[:30]!r}, wanted is a whole number of 32 bits")
    return value


# -- Java's properties -------------------------------------------------------------------------------------------------


def parse_properties(text: str) -> dict[str, str]:
    r"""Names and values of a Java properties file.

    >>> parse_properties("# who\nlog.dirs = /a,\\\n    /b\ncluster.id:x\\=y\n")
    {'log.dirs': '/a,/b', 'cluster.id': 'x=y'}
    """
    values = {}
    for line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None  # it matches anything
        values[_unescaped(key[1])] = _unescaped(line[key.end() :])
    return values


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; a backslash at the end of a line takes in the next."""
    begun: str | None = None
    for natural in _LINE_END.split(text):
        line = natural.lstrip(" \t\f")
        if begun is None and (not line or line[0] in "#!"):
            continue
        line = (begun or "") + line
        if _ODD_BACKSLASHES.search(line):
            begun = line[:-1]
        else:
            begun = None
            yield line
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def meaning(escape: re.Match[str]) -> str:
        what = escape[1]
        if what == "u":
            raise InvalidRequestError(f"\\u without four hexadecimal digits in {text[:30]!r}")
        return chr(int(what[1:], 16)) if len(what) > 1 else _CONTROL.get(what, what)

    return _ESCAPE.sub(meaning, text)


def _date(now_ms: int) -> str:
    """A moment as Java's Date shows it, in UTC, whatever the language of this machine."""
    then = time.gmtime(now_ms // 1000)
    clock = f"{then.tm_hour:02}:{then.tm_min:02}:{then.tm_sec:02}"
    return f"{_DAYS[then.tm_wday]} {_MONTHS[then.tm_mon - 1]} {then.tm_mday:02} {clock} UTC {then.tm_year}"


def _escaped(value: str) -> str:
    text = "".join(_WRITTEN.get(mark, mark) for mark in value)
    return f"\\{text}" if text.startswith(" ") else text
