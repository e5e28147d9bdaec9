"""What the tool of each Kafka release does differently, in one table.

`release("2.0.0")` is the tool of that release. A name may leave out numbers at the end (`2.0`, `0.10`): it then means
the newest of those releases. Each row of the table tells what a release changed; a release is the sum of the rows up to
it. Releases between two rows print what the earlier row says.

    >>> release("4.3").stray_brace, release("3.9.1").stray_brace
    (False, True)
"""

import functools
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from tidelog.errors import UnsupportedError

__all__ = ["NEWEST", "Release", "Version", "release"]

Version = tuple[int, ...]

NEWEST = "4.3"

# The last numbers that stand before the patch number, of every release the tool is known for.
_MINORS: tuple[str, ...] = ("0.8.2", "0.9.0", "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1")
_MINORS += tuple(f"2.{minor}" for minor in range(9))
_MINORS += tuple(f"3.{minor}" for minor in range(10))
_MINORS += tuple(f"4.{minor}" for minor in range(4))
_NEWEST_PATCH = 1 << 30
_LAST_PATCHES = dict(
    zip(
        _MINORS,
        (2, 1, 1, 1, 2, 3, 2, 1, 1, 1, 2, 1, 1, 1, 3, 2, 2, 2, 2, 3, 2, 1, 2, 2, 2, 1, 1, 1, 1, 0, 0),
        strict=True,
    )
)


@dataclass(frozen=True, kw_only=True)
class Release:
    """How one release reads files and words what it finds. The values here are those of 0.8.2."""

    version: Version

    # -- files
    names_unknown_files: bool = False  # else they are passed over in silence
    knows_snapshots: bool = False  # .snapshot and .txnindex
    knows_time_indexes: bool = False
    knows_checkpoints: bool = False  # metadata snapshots
    needs_a_suffix: bool = False  # a name without a dot ends the tool
    opens_by_channel: bool = False  # a missing file is a NoSuchFileException, not a FileNotFoundException

    # -- the lines of a log
    log_lines: Literal["messages", "batches or records", "batches and records"] = "messages"
    title: str = "Starting offset"
    data_is_deep: bool = False  # keys and payloads are printed without --deep-iteration too
    decoder_prints_data: bool = False
    codec_names: Literal["classes", "upper", "lower"] = "classes"
    message_timestamps: bool = False  # in the lines of messages
    batch_count: bool = False
    batch_is_control: bool = False
    batch_delete_horizon: bool = False
    batch_valid_last: bool = False
    record_line: Literal["wide", "indented", "verbose", "short"] = "wide"
    record_producer_epoch: bool = False
    stray_brace: bool = False  # behind the checksum of an old record
    bar_without_key: bool = False  # a payload without a key keeps its bar under --skip-record-metadata
    null_value: Literal["null", "no key", "key"] = "null"  # what is printed of a record without a value
    quorum_records: Literal["type", "snapshot", "voters", "leader"] = "type"  # control records spelt out

    # -- reports
    gap_title: str = "Non-secutive offsets in :"
    first_offset_is_compared: bool = False  # a file that does not begin at 0 has a gap
    reports_by_offset: bool = False  # sorted and without repetitions, else the newest first
    missing_names_file: bool = False
    reports_in_hash_order: bool = False

    # -- indexes
    index_compares: Literal["first", "last"] = "first"  # offset of the batch
    zero_entry_is_checked: bool = True  # before it ends the dump
    empty_index_is_told: bool = False
    reads_whole_tail: bool = False  # of the log, for each entry of a time index
    slice_checks: Literal["sign", "file", "end"] = "sign"

    # -- broken logs
    one_message_format: bool = True  # the magic of a message is printed, but has no meaning yet
    wrappers_fix_magic: bool = False  # the messages inside must have the magic of the wrapper
    broken_wrappers: Literal["plain", "lazy", "invalid message", "record"] = "plain"  # how their exceptions come out
    short_batch: Literal["end", "plain", "file"] = "end"
    invalid_record: str = "org.apache.kafka.common.record.InvalidRecordException"
    zstd: bool = False
    short_record: Literal["null", "error"] = "null"  # what a record that reaches beyond its batch is
    streams: Literal["data", "input"] = "data"  # how compressed records are read: to the end, or beyond it
    names_loading_file: bool = False

    # -- producer snapshots
    snapshot_line: Literal["0.11", "queue", "batch"] = "0.11"
    snapshot_errors: Literal["exceptions", "lines"] = "exceptions"  # what ends the tool, or one line is told about
    snapshot_always_has_batch: bool = True  # a producer without a batch shows one at -1
    first_sequence_wraps: bool = False
    snapshot_timestamp: bool = False
    snapshot_options: Literal["scala", "java"] = "scala"
    snapshot_schema: Literal["struct", "message"] = "struct"
    snapshot_trailing_space: bool = True
    txn_version_names_file: bool = False

    @property
    def name(self) -> str:
        return ".".join(map(str, (number for number in self.version if number != _NEWEST_PATCH)))

    @property
    def full_name(self) -> str:
        """With the patch number, which is that of the newest patch where none was asked for."""
        numbers = self.version
        if numbers[-1] == _NEWEST_PATCH:
            minor = ".".join(map(str, numbers[:-1]))
            return f"{minor}.{_LAST_PATCHES[minor]}"
        return ".".join(map(str, numbers))

    def is_at_least(self, *version: int) -> bool:
        """Whether this is that release or a later one."""
        return self.version >= version


_CHANGES: tuple[tuple[Version, dict[str, Any]], ...] = (
    ((0, 8, 2, 0), {}),
    ((0, 9, 0, 0), {"broken_wrappers": "lazy"}),
    ((0, 9, 0, 1), {"null_value": "no key"}),
    ((0, 10, 0, 0), {"broken_wrappers": "invalid message", "one_message_format": False, "wrappers_fix_magic": True}),
    (
        (0, 10, 1, 0),
        {
            "message_timestamps": True,
            "knows_time_indexes": True,
            "decoder_prints_data": True,
            "wrappers_fix_magic": False,
        },
    ),
    ((0, 10, 2, 0), {"codec_names": "upper", "short_batch": "plain", "broken_wrappers": "record"}),
    (
        (0, 11, 0, 0),
        {
            "names_unknown_files": True,
            "needs_a_suffix": True,
            "knows_snapshots": True,
            "log_lines": "batches or records",
            "gap_title": "Non-consecutive offsets in :",
        },
    ),
    ((0, 11, 0, 1), {"record_producer_epoch": True, "snapshot_errors": "lines"}),
    ((1, 0, 0), {"snapshot_line": "queue"}),
    ((1, 0, 2), {"snapshot_line": "batch"}),
    ((1, 1, 0), {"data_is_deep": True}),
    ((2, 0, 0), {"batch_count": True, "short_batch": "file", "slice_checks": "file"}),
    ((2, 0, 1), {"batch_is_control": True}),
    ((2, 1, 0), {"zstd": True, "slice_checks": "end", "opens_by_channel": True}),
    ((2, 1, 1), {"names_loading_file": True, "first_sequence_wraps": True}),
    ((2, 2, 0), {"log_lines": "batches and records", "batch_valid_last": True, "record_line": "indented"}),
    (
        (2, 3, 0),
        {
            "gap_title": "Non-consecutive offsets in ",
            "txn_version_names_file": True,
            "index_compares": "last",
            "zero_entry_is_checked": False,
        },
    ),
    (
        (2, 4, 0),
        {
            "null_value": "key",
            "invalid_record": "org.apache.kafka.common.InvalidRecordException",
        },
    ),
    ((2, 4, 1), {"snapshot_always_has_batch": False}),
    ((2, 8, 0), {"record_line": "verbose", "empty_index_is_told": True}),
    ((3, 0, 0), {"record_line": "short", "codec_names": "lower", "stray_brace": True}),
    ((3, 0, 1), {"short_record": "error"}),
    ((3, 1, 0), {"snapshot_timestamp": True}),
    ((3, 2, 0), {"batch_delete_horizon": True}),
    (
        (3, 3, 0),
        {"title": "Log starting offset", "knows_checkpoints": True, "quorum_records": "snapshot"},
    ),
    ((3, 5, 0), {"snapshot_options": "java"}),
    ((3, 6, 0), {"streams": "input"}),
    ((3, 8, 0), {"quorum_records": "voters"}),
    ((4, 0, 0), {"snapshot_schema": "message"}),
    ((4, 1, 0), {"quorum_records": "leader"}),
    (
        (4, 3, 0),
        {
            "needs_a_suffix": False,
            "stray_brace": False,
            "bar_without_key": True,
            "snapshot_trailing_space": False,
            "first_offset_is_compared": True,
            "reports_by_offset": True,
            "missing_names_file": True,
            "reads_whole_tail": True,
            "reports_in_hash_order": True,
        },
    ),
)


def release(name: str) -> Release:
    """The tool of a release, by its number."""
    return _release(_version(name))


@functools.cache
def _release(version: Version) -> Release:
    known = Release(version=version)
    for since, changes in _CHANGES:
        if version >= since:
            known = replace(known, **changes)
    return known


def _version(name: str) -> Version:
    """The number as a tuple, with the newest patch where the patch is left out."""
    for minor in reversed(_MINORS):
        if name == minor or re.fullmatch(rf"{re.escape(minor)}\.\d+", name):
            numbers = tuple(map(int, name.split(".")))
            return numbers if name != minor else (*numbers, _NEWEST_PATCH)
        if minor.startswith(f"{name}."):
            return (*map(int, minor.split(".")), _NEWEST_PATCH)
    raise UnsupportedError(f"Kafka release {name!r} is not known: give one from {_MINORS[0]} to {_MINORS[-1]}")
