"""Every option that `format("tidelog")` takes, with what it is for. docs/spark.md prints these tables.

The names are those of Spark's Kafka source and sink where those have one for the thing; they are compared without case.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple

from tidelog.errors import InvalidRequestError

__all__ = ["BATCH", "STREAM", "WRITE", "Ignored", "OptionRow", "check_names", "rows_for"]

BATCH, STREAM, WRITE = "batch", "stream", "write"
_READ = (BATCH, STREAM)
_ALL = (BATCH, STREAM, WRITE)


class OptionRow(NamedTuple):
    """An option: its name, what it is when it is not given, where it counts, in Kafka's source too or not, a line."""

    name: str
    default: str
    where: tuple[str, ...]
    is_kafkas: bool
    words: str


OPTIONS = (
    OptionRow("path", "", _ALL, False, "a root, a partition directory or a pattern; what `.load(path)` sends"),
    OptionRow("paths", "", _READ, False, "several, as a JSON list (what `.load([...])` sends) or with commas"),
    OptionRow("replica", "", _READ, False, "the root whose copies are read where several roots hold copies"),
    OptionRow("subscribe", "", _READ, True, "topics, with commas between"),
    OptionRow("subscribePattern", "", _READ, True, "a regular expression that is found in a topic's name"),
    OptionRow("assign", "", _READ, True, 'partitions: `{"orders":[0,1]}`'),
    OptionRow("startingOffsets", "earliest; latest in streams", _READ, True,
              'earliest, latest (streams), `{"orders":{"0":23,"1":-2}}`, or `group:NAME`'),
    OptionRow("endingOffsets", "latest", (BATCH,), True, 'latest, or `{"orders":{"0":50,"1":-1}}`'),
    OptionRow("startingTimestamp", "", _READ, True, "milliseconds: from the first record at or after it"),
    OptionRow("endingTimestamp", "", (BATCH,), True, "milliseconds: up to the first record at or after it"),
    OptionRow("startingOffsetsByTimestamp", "", _READ, True, 'the same by partition: `{"orders":{"0":1700000000000}}`'),
    OptionRow("endingOffsetsByTimestamp", "", (BATCH,), True, "the same by partition"),
    OptionRow("startingOffsetsByTimestampStrategy", "error", _READ, True,
              "where no record is that late: error, or latest"),
    OptionRow("includeHeaders", "false", _READ, True, "whether there is a column `headers`"),
    OptionRow("failOnDataLoss", "true", _READ, True, "fail where offsets that were asked for are gone"),
    OptionRow("minPartitions", "", _READ, True, "cut further until there are about so many tasks"),
    OptionRow("maxRecordsPerPartition", "", _READ, True, "cut further until a task has at most so many offsets"),
    OptionRow("bytesPerPartition", "128m", _READ, False, "bytes of log for a task"),
    OptionRow("isolationLevel", "read_uncommitted", _READ, False, "read_uncommitted or read_committed"),
    OptionRow("checksum", "true", _READ, False, "compare the checksum of every batch"),
    OptionRow("endBound", "logEnd; highWatermark in streams", _READ, False, "how far to read: logEnd or highWatermark"),
    OptionRow("onCorruption", "fail", _READ, False, "fail, or skip what is damaged (column `corruption`)"),
    OptionRow("columns", "", _READ, False, "some columns, for SQL: `offset, value string`"),
    OptionRow("invalidUtf8", "fail", _READ, False, "for key and value as string: fail, null or replace"),
    OptionRow("maxOffsetsPerTrigger", "", (STREAM,), True, "offsets in one micro-batch, at most"),
    OptionRow("minOffsetsPerTrigger", "", (STREAM,), True, "offsets to wait for"),
    OptionRow("maxTriggerDelay", "15m", (STREAM,), True, "how long to wait for them"),
    OptionRow("refreshInterval", "200ms; 30s remote", (STREAM,), False, "how old a listing of directories may be"),
    OptionRow("topic", "", (WRITE,), True, "the topic to write to; else there is a column `topic`"),
    OptionRow(
        "partitions", "1", (WRITE,), False,
        'how many partitions a new topic gets, or each of several: `{"orders": 12, "clicks": 3}`; without it, with a '
        "column `topic`, as many as the rows name",
    ),  # fmt: skip
    OptionRow("compression", "none", (WRITE,), False, "none, gzip, snappy, lz4 or zstd"),
    OptionRow("batch.bytes", "64k", (WRITE,), False, "the size of record batches before compression, at most 64m"),
    OptionRow("segment.bytes", "1g", (WRITE,), False, "the size of segments"),
    OptionRow("index.interval.bytes", "4k", (WRITE,), False, "bytes of log between two entries of an index"),
    OptionRow("max.message.bytes", "1048588", (WRITE,), False, "the largest batch, as the topic allows it"),
    OptionRow("topicId", "", (WRITE,), False, "the id of a new topic; else it is the one that is there, or a new one"),
    OptionRow("onlyLogDir", "false", (WRITE,), False,
              "the broker has no other log directory: create partitions even if no metadata log here says so"),
    OptionRow("overwriteTopic", "false", (WRITE,), False, "let mode overwrite replace the topic"),
    OptionRow("lockTimeout", "1m", (WRITE,), False, "how long a commit waits for others that have the directory open"),
    OptionRow("checkpointLocation", "", (WRITE,), True, "where Spark keeps how far a stream is"),
    OptionRow("queryName", "", (WRITE,), True, "the name of a stream; `.queryName(name)` and pipelines send it"),
    OptionRow("stagingRetention", "1d", (WRITE,), False, "how old what dead attempts left gets before it is swept"),
)  # fmt: skip

# Spark adds these by itself, or means them for itself: accepted everywhere, whatever they say. Measured with Spark 4.3:
# streams and declarative pipelines send queryName and checkpointLocation; a table of a catalog sends its properties,
# and each of its options a second time with a prefix.
OF_SPARK = frozenset({
    "checkpointlocation", "queryname", "path", "paths",
    "location", "provider", "owner", "comment", "collation", "external", "is_managed_location", "table_type",
    "__partition_columns", "__clustering_columns", "outputmode", "trigger", "catalog",
})  # fmt: skip
OF_SPARK_PREFIX = "option."

# Taken, without an effect: there is no client here. One warning names those that were given.
IGNORED_PREFIXES = ("kafka.", "kafkaconsumer.", "fetchoffset.", "partition.metadata.cache.")
IGNORED = frozenset({"groupidprefix"})
_WRITTEN = {  # as they are documented: Spark hands names on in lower case
    "groupidprefix": "groupIdPrefix",
    "kafkaconsumer.polltimeoutms": "kafkaConsumer.pollTimeoutMs",
    "fetchoffset.numretries": "fetchOffset.numRetries",
    "fetchoffset.retryintervalms": "fetchOffset.retryIntervalMs",
}
HEARD_OF_KAFKAS = "kafka.isolation.level"  # the one that has an effect
STORAGE_PREFIX = "storage."  # options of the file system of an address

_BY_NAME = {row.name.lower(): row for row in OPTIONS}


def rows_for(where: str) -> list[OptionRow]:
    """The options that count for one way of use."""
    return [row for row in OPTIONS if where in row.where]


class Ignored(NamedTuple):
    """Options that were given without an effect: those of a client, and those of a stream, in a batch read."""

    of_clients: list[str]
    of_streams: list[str]


def check_names(options: Mapping[str, str], where: str) -> Ignored:
    """Refuse options that nobody knows, or that have no place here; those that have no effect, to warn of.

    >>> check_names({"kafka.bootstrap.servers": "localhost:9092", "maxoffsetspertrigger": "9"}, BATCH)
    Ignored(of_clients=['kafka.bootstrap.servers'], of_streams=['maxOffsetsPerTrigger'])
    """
    ignored = Ignored([], [])
    for name in options:
        known = name.lower()
        if known in OF_SPARK or known == HEARD_OF_KAFKAS or known.startswith((STORAGE_PREFIX, OF_SPARK_PREFIX)):
            continue
        if known in IGNORED or known.startswith(IGNORED_PREFIXES):
            ignored.of_clients.append(_WRITTEN.get(known, name))
            continue
        row = _BY_NAME.get(known)
        if row is None:
            raise InvalidRequestError(f"unknown option {name!r}{_nearest(known, where)}")
        if where in row.where:
            continue
        if row.is_kafkas and where == BATCH and row.where == (STREAM,):
            ignored.of_streams.append(row.name)  # Kafka's source warns too
        else:
            raise InvalidRequestError(f"option {row.name!r} has no meaning for a {_called(where)}")
    return ignored


def _nearest(name: str, where: str) -> str:
    names = {row.name.lower(): row.name for row in rows_for(where)}
    near = get_close_matches(name, names, 1)
    return f"; do you mean {names[near[0]]!r}?" if near else f"; known are {', '.join(names.values())}"


def _called(where: str) -> str:
    return {BATCH: "batch read", STREAM: "stream", WRITE: "write"}[where]
