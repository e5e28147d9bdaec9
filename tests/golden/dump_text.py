"""What Kafka's dump tool prints of a `.log` file, written from our own reading of the file.

Only the golden tests use it: two texts that are equal to the last byte prove every field of every batch and record
at once. `control_texts` lends the words for control records of the metadata quorum, whose values are messages of
the protocol; `printed_control_texts` finds them in an output of the tool.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.records import EndTxnMarker, LegacyBatch, Record, RecordBatch, read_batches
from tidelog.records.java import decode_utf8

_CONTROL_TEXT = re.compile(r" (?:LeaderChange:|SnapshotHeader|SnapshotFooter|KRaftVersion|KRaftVoters) \{.*\}$", re.M)


class DumpText(NamedTuple):
    """The text, and the error that ended it early."""

    text: str
    error: TidelogError | None


def printed_control_texts(stdout: str) -> list[str]:
    """How an output of the tool words the control records of the metadata quorum, in order."""
    return _CONTROL_TEXT.findall(stdout)


class Options(NamedTuple):
    """The options of the tool that concern a `.log` file."""

    deep: bool = False
    data: bool = False
    metadata: bool = True
    max_bytes: int | None = None
    is_4_3: bool = True  # else 3.5 to 4.2

    @classmethod
    def parse(cls, words: Iterable[str], *, is_4_3: bool = True) -> "Options":
        words = list(words)
        data = "--print-data-log" in words
        return cls(
            deep=data or "--deep-iteration" in words,
            data=data,
            metadata="--skip-record-metadata" not in words,
            max_bytes=int(words[words.index("--max-bytes") + 1]) if "--max-bytes" in words else None,
            is_4_3=is_4_3,
        )


def dump_text(log: Path, options: Options, control_texts: Iterable[str] = ()) -> DumpText:
    """The output of releases 3.5 to 4.3 for one file, as far as it can be read."""
    return _collect(_lines(log, options, iter(control_texts)))


def _collect(lines: Iterator[str]) -> DumpText:
    text = ""
    try:
        for line in lines:
            text += f"{line}\n"
    except TidelogError as error:
        return DumpText(text, error)
    return DumpText(text, None)


def _lines(log: Path, options: Options, control_texts: Iterator[str]) -> Iterator[str]:
    data = log.read_bytes()[: options.max_bytes]
    yield f"Dumping {log.name}"
    yield _title(log)
    position = 0
    for batch in read_batches(data):
        yield _batch_line(batch, position)
        position += batch.size_in_bytes
        if not options.deep:
            continue
        messages = _messages(batch)
        for record in batch.records():
            if isinstance(batch, RecordBatch):
                middle = f" sequence: {record.sequence} headerKeys: [{','.join(h.key for h in record.headers)}]"
            else:
                message = next(messages)
                closing = "" if options.is_4_3 else "}"
                middle = f" isValid: {_bool(message.is_valid)} crc: {message.crc}{closing}"
            if batch.is_control:
                middle += _control_text(record) or next(control_texts)
            yield _record_line(batch, record, middle, options)
    if options.max_bytes is None and position < len(data):
        yield f"Found {len(data) - position} invalid bytes at the end of {log.name}"


def _title(log: Path) -> str:
    if log.name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot"
    if log.suffix == ".checkpoint":
        offset, epoch = map(int, log.stem.split("-"))
        return f"Snapshot end offset: {offset}, epoch: {epoch}"
    return f"Log starting offset: {int(log.stem)}"


def _batch_line(batch: RecordBatch | LegacyBatch, position: int) -> str:
    if isinstance(batch, RecordBatch):
        horizon_ms = batch.delete_horizon_ms
        horizon = "OptionalLong.empty" if horizon_ms is None else f"OptionalLong[{horizon_ms}]"
        start = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count} "
            f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
            f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.partition_leader_epoch} isTransactional: {_bool(batch.is_transactional)} "
            f"isControl: {_bool(batch.is_control)} deleteHorizonMs: {horizon}"
        )
    else:
        start = f"offset: {batch.last_offset}"
    return (
        f"{start} position: {position} {batch.timestamp_type.label}: {batch.max_timestamp_ms} "
        f"size: {batch.size_in_bytes} magic: {batch.magic} compresscodec: {batch.codec.name.lower()} "
        f"crc: {batch.crc} isvalid: {_bool(batch.is_valid)}"
    )


def _record_line(batch: RecordBatch | LegacyBatch, record: Record, middle: str, options: Options) -> str:
    data = "" if batch.is_control or not options.data else _data_text(record)
    if options.metadata:
        return (
            f"| offset: {record.offset} {batch.timestamp_type.label}: {record.timestamp_ms} "
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)}{middle}{data}"
        )
    has_bar = data if options.is_4_3 else not batch.is_control and record.key is not None
    return f"|{data}" if has_bar else data


def _data_text(record: Record) -> str:
    key = "" if record.key is None else f" key: {decode_utf8(record.key)}"
    return key if record.value is None else f"{key} payload: {decode_utf8(record.value)}"


def _control_text(record: Record) -> str | None:
    assert record.key is not None
    if record.key[3] > 1:
        return None
    marker = EndTxnMarker.parse(record)
    return f" endTxnMarker: {marker.control_type.name} coordinatorEpoch: {marker.coordinator_epoch}"


def _messages(batch: RecordBatch | LegacyBatch) -> Iterator[LegacyBatch]:
    """The messages that carry the records of a legacy batch, each with its own checksum."""
    if isinstance(batch, LegacyBatch):
        yield from [batch] if batch.count == 1 else batch.inner_messages()


def dump_text_1_0(log: Path, *, deep: bool) -> DumpText:
    """The output of release 1.0 for a file of version 2: batches, or records with their data, never both."""
    return _collect(_lines_1_0(log, deep=deep))


def _lines_1_0(log: Path, *, deep: bool) -> Iterator[str]:
    yield f"Dumping {log.name}"
    yield f"Starting offset: {int(log.stem)}"
    position = 0
    for batch in read_batches(log.read_bytes()):
        assert isinstance(batch, RecordBatch)
        place = f"position: {position} {batch.timestamp_type.label}"
        if not deep:
            yield (
                f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
                f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
                f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
                f"partitionLeaderEpoch: {batch.partition_leader_epoch} "
                f"isTransactional: {_bool(batch.is_transactional)} {place}: {batch.max_timestamp_ms} "
                f"isvalid: {_bool(batch.is_valid)} size: {batch.size_in_bytes} magic: 2 "
                f"compresscodec: {batch.codec.name} crc: {batch.crc}"
            )
        for record in batch.records() if deep else ():
            yield (
                f"offset: {record.offset} {place}: {record.timestamp_ms} isvalid: {_bool(batch.is_valid)} "
                f"keysize: {_size(record.key)} valuesize: {_size(record.value)} magic: 2 "
                f"compresscodec: {batch.codec.name} producerId: {batch.producer_id} "
                f"producerEpoch: {batch.producer_epoch} sequence: {record.sequence} "
                f"isTransactional: {_bool(batch.is_transactional)} "
                f"headerKeys: [{','.join(header.key for header in record.headers)}]{_data_text(record)}"
            )
        position += batch.size_in_bytes


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
