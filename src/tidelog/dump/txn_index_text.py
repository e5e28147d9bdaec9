"""The text of a `.txnindex` file: the aborted transactions it lists.

The version takes two bytes of an entry, and the tool looks at the first of them only.
"""

import struct

from tidelog.dump.java_errors import JavaError
from tidelog.dump.java_files import read_file
from tidelog.dump.java_text import JavaFile, parse_long
from tidelog.dump.log_file import KAFKA_EXCEPTION
from tidelog.dump.output import Output
from tidelog.dump.releases import Release

__all__ = ["dump_txn_index"]

# version, a byte nobody reads, producer id, first offset, last offset, last stable offset
_ENTRY = struct.Struct(">bxqqqq")
_CURRENT_VERSION = 0


def dump_txn_index(file: JavaFile, release: Release, out: Output) -> None:
    """Write all entries. A file that is not there has none; bytes behind the last whole entry are passed over."""
    parse_long(file.name.partition(".")[0])
    data = _read(file)
    entries = list(_ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]))
    for version, *_ in entries:
        if version > _CURRENT_VERSION:
            raise _unexpected_version(version, file, release)
    for version, producer_id, first_offset, last_offset, stable_offset in entries:
        out.write(
            f"version: {version} producerId: {producer_id} firstOffset: {first_offset} lastOffset: {last_offset} "
            f"lastStableOffset: {stable_offset}\n"
        )


def _read(file: JavaFile) -> bytes:
    try:
        return read_file(file)
    except JavaError as error:
        if error.class_name == "java.nio.file.NoSuchFileException":
            return b""
        raise


def _unexpected_version(version: int, file: JavaFile, release: Release) -> JavaError:
    where = f" in transaction index {file.absolute}" if release.txn_version_names_file else ""
    return JavaError(
        KAFKA_EXCEPTION,
        f"Unexpected aborted transaction version {version}{where}, current version is {_CURRENT_VERSION}",
    )
