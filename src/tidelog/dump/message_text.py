"""The text of a `.log` file up to 0.10.2: one line per message, or per message inside a wrapper."""

from collections.abc import Iterator

from tidelog.dump.batch_lines import OldRecord, codec_name
from tidelog.dump.java_messages import read_message, read_old_records
from tidelog.dump.java_text import JavaFile, base_offset_of, java_bool
from tidelog.dump.log_file import FileBatch, LogFile, codec_of
from tidelog.dump.log_text import Decoder, LogOptions, LogState
from tidelog.dump.output import Output
from tidelog.dump.releases import Release
from tidelog.dump.reports import Reports
from tidelog.records.compression import Codec

__all__ = ["dump_messages"]


def dump_messages(
    file: JavaFile,
    options: LogOptions,
    decoder: Decoder,
    max_message_size: int,
    release: Release,
    reports: Reports,
    out: Output,
) -> None:
    """Write the text of one file."""
    out.write(f"{release.title}: {base_offset_of(file)}\n")
    state = LogState(file, release, reports)
    with LogFile(file, release) as log:
        position = 0
        for batch in log.whole().batches(max_size=max_message_size):
            for old in _messages(batch, options, release):
                _write_message(old, position, options, decoder, release, state, out)
            position += batch.size
        if log.size > position:
            out.write(f"Found {log.size - position} invalid bytes at the end of {file.name}\n")


def _messages(batch: FileBatch, options: LogOptions, release: Release) -> Iterator[OldRecord]:
    """What stands in the file, or inside of it under --deep-iteration."""
    if options.deep:
        return read_old_records(batch, release)
    return iter((read_message(batch, release),))


def _write_message(
    old: OldRecord,
    position: int,
    options: LogOptions,
    decoder: Decoder,
    release: Release,
    state: LogState,
    out: Output,
) -> None:
    record = old.record
    if state.last_offset is None or codec_of(old.codec_id, release) is not Codec.NONE:
        state.stand_at(record.offset)  # wrappers stand for several records
    else:
        state.follow(record.offset)
    if old.size_error is not None:
        raise old.size_error
    codec = codec_of(old.codec_id, release)
    times = f" {record.timestamp_type.label}: {record.timestamp_ms}" if release.message_timestamps else ""
    out.write(
        f"offset: {record.offset} position: {position}{times} isvalid: {java_bool(old.is_valid)} "
        f"payloadsize: {old.value_size} magic: {old.magic} compresscodec: {codec_name(codec, release)} "
        f"crc: {old.crc}"
    )
    if old.key_size >= 0:
        out.write(f" keysize: {old.key_size}")
    if options.data and old.data_error is not None:
        if release.null_value == "null" and record.key is not None:  # printed before the payload is looked at
            out.write(f" key: {decoder.decode(record)[0]}")
        raise old.data_error
    if options.data and not (record.value is None and release.null_value == "no key"):
        key, payload = decoder.decode(record)
        if key is not None:
            out.write(f" key: {key}")
        if payload is not None or release.null_value == "null":
            out.write(f" payload: {'null' if payload is None else payload}")
    out.write("\n")
