"""What real Kafka wrote, written again by `tidelog.records`: the same bytes."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.golden import corpus
from tidelog.errors import TidelogError
from tidelog.records import (
    Batch,
    BatchBuilder,
    Codec,
    ControlType,
    EndTxnMarker,
    LegacyBatch,
    NewRecord,
    RecordBatch,
    TimestampType,
    build_control_batch,
    build_end_txn_marker,
    build_message_set,
    empty_batch,
    read_batches,
)

# Batches that no writer of ours makes: the requests were made by hand to learn what a broker stores as it is.
HAND_MADE = {
    27: "a base timestamp below that of the first record",
    29: "timestamp -2",
    30: "attribute bit 7",
    31: "attribute bit 8",
    34: "a record whose attributes are 3",
    35: "offset deltas 1, 0",
}
# A broker does not mind magic 3 in a file.
MAGIC_3 = {"unclean/before/u-hdr-magic3-0", "unclean/after/u-hdr-magic3-0", "written-by-1.0.0/bad-magic/mixed-0"}


def valid_batches(case: str) -> Iterator[Batch]:
    """Every batch with a right checksum, of damaged files too, but for those that are no writer's."""
    for partition in corpus.partitions(case):
        for log in partition.logs:
            for batch in readable(log.read_bytes()):
                is_hand_made = partition.name == "image/rec-times-0" and batch.base_offset in HAND_MADE
                is_magic_3 = partition.name in MAGIC_3 and batch.magic == 3
                if batch.is_valid and not is_hand_made and not is_magic_3:
                    yield batch


def readable(data: bytes) -> Iterator[Batch]:
    batches = read_batches(data)
    while True:
        try:
            yield next(batches)
        except (StopIteration, TidelogError):
            return


def version_2(case: str) -> Iterator[RecordBatch]:
    return (batch for batch in valid_batches(case) if isinstance(batch, RecordBatch))


def rewrite(batch: RecordBatch, codec: Codec = Codec.NONE) -> bytearray:
    """The batch as our writer makes it from the records and the fields of the header."""
    if not batch.count:
        return empty_batch(
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            max_timestamp_ms=batch.max_timestamp_ms,
            partition_leader_epoch=batch.partition_leader_epoch,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            attributes=batch.attributes,
        )
    builder = BatchBuilder(
        base_offset=batch.base_offset,
        codec=codec,
        timestamp_type=batch.timestamp_type,
        log_append_time_ms=batch.max_timestamp_ms,
        partition_leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=batch.delete_horizon_ms,
    )
    for record in as_sent(batch).records():
        builder.append(NewRecord(record.key, record.value, record.timestamp_ms, record.headers), record.offset)
    return builder.build(last_offset=batch.last_offset)  # compaction may have taken the record there away


def as_sent(batch: RecordBatch) -> RecordBatch:
    """The batch with the timestamps its producer gave: a broker that sets the time leaves those of records alone."""
    if batch.timestamp_type is TimestampType.CREATE_TIME:
        return batch
    copy = RecordBatch(bytearray(batch.buffer))
    copy.set_max_timestamp(TimestampType.CREATE_TIME, batch.max_timestamp_ms)
    return copy


class Counts(NamedTuple):
    """How many batches of version 2 a case has, so that none drops out unseen."""

    whole: int = 0  # uncompressed, as they were appended
    shortened: int = 0  # uncompressed, and compaction took records from their end
    empty: int = 0  # nothing but a header is left
    compressed: int = 0


BATCHES = {
    "dump-formats": Counts(whole=195, compressed=59),
    "index-content": Counts(whole=156, compressed=52),
    "kafka-4.3/1-codecs": Counts(whole=25, compressed=47),
    "kafka-4.3/2-records": Counts(whole=40, compressed=3),
    "kafka-4.3/3-rolls": Counts(whole=284),
    "kafka-4.3/4-transactions": Counts(whole=186, compressed=22),
    "kafka-4.3/5-compaction": Counts(whole=1293, shortened=123, empty=54, compressed=106),
    "kafka-4.3/6-recovery": Counts(whole=3526),
    "kafka-4.3/7-lookups": Counts(whole=136, compressed=53),
    "kafka-4.3/8-consumer-offsets": Counts(whole=46),
    "kafka-4.3/9-metadata": Counts(whole=115),
    "legacy": Counts(whole=2, compressed=6),
    "seed-walkthrough": Counts(whole=125),
}


@pytest.mark.parametrize("case", BATCHES)
def test_uncompressed_batches_come_out_the_same(case: str) -> None:
    kinds = Counter()
    for batch in version_2(case):
        if batch.codec is Codec.NONE:
            assert rewrite(batch) == batch.buffer, batch
            kinds[kind_of(batch)] += 1
    assert Counts(**kinds) == BATCHES[case]._replace(compressed=0)


def kind_of(batch: RecordBatch) -> str:
    *_, last = [None, *(record.offset for record in batch.records())]
    return "empty" if last is None else "whole" if last == batch.last_offset else "shortened"


@pytest.mark.parametrize("case", [case for case, counts in BATCHES.items() if counts.compressed])
def test_compressed_batches_hold_what_our_writer_would_have_compressed(case: str) -> None:
    """Compressors differ in their output and may; what they were given, and the header around it, may not."""
    compared = 0
    for batch in version_2(case):
        if batch.codec is not Codec.NONE:
            plain = RecordBatch(rewrite(batch))
            assert plain.records_bytes() == batch.records_bytes(), batch
            by_codec = {"batch_length": 0, "crc": 0, "attributes": batch.header.attributes & ~0x07}
            assert plain.header._replace(**by_codec) == batch.header._replace(**by_codec)
            again = RecordBatch(rewrite(batch, batch.codec))
            assert again.codec is batch.codec
            assert list(again.records()) == list(batch.records())
            compared += 1
    assert compared == BATCHES[case].compressed


@pytest.mark.parametrize(
    ("case", "markers"),
    [
        ("dump-formats", 20),
        ("kafka-4.3/4-transactions", 50),
        ("kafka-4.3/5-compaction", 147),
        ("kafka-4.3/6-recovery", 774),
    ],
)
def test_transaction_markers_come_out_the_same(case: str, markers: int) -> None:
    compared = 0
    for batch in version_2(case):
        if batch.is_control and batch.is_transactional and batch.delete_horizon_ms is None:
            (record,) = batch.records()
            again = build_end_txn_marker(
                EndTxnMarker.parse(record),
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                timestamp_ms=record.timestamp_ms,
                offset=batch.base_offset,
                partition_leader_epoch=batch.partition_leader_epoch,
            )
            assert again == batch.buffer, batch
            compared += 1
    assert compared == markers


def test_control_batches_of_the_metadata_quorum_come_out_the_same() -> None:
    compared = 0
    directory = corpus.case("kafka-4.3/9-metadata") / "image" / "__cluster_metadata-0"
    for file in [*directory.glob("*.log"), *directory.glob("*.checkpoint")]:
        for batch in read_batches(file.read_bytes()):
            if isinstance(batch, RecordBatch) and batch.is_control:
                records = list(batch.records())
                again = build_control_batch(
                    [(ControlType.parse(record.key), record.value or b"") for record in records],
                    timestamp_ms=records[0].timestamp_ms,
                    partition_leader_epoch=batch.partition_leader_epoch,
                    base_offset=batch.base_offset,
                )
                assert again == batch.buffer, batch
                compared += 1
    assert compared == 9


@pytest.mark.parametrize(("case", "messages"), [("legacy", 383), ("index-content", 42)])
def test_messages_of_magic_0_and_1_come_out_the_same(case: str, messages: int) -> None:
    """Plain messages, and those inside wrappers with the offsets they have there."""
    compared = 0
    for batch in valid_batches(case):
        if isinstance(batch, LegacyBatch):
            for message in [batch] if batch.codec is Codec.NONE else batch.inner_messages():
                assert rewrite_message(message) == message.buffer, message
                compared += 1
    assert compared == messages


def rewrite_message(message: LegacyBatch) -> bytearray:
    (record,) = message.records()
    has_time = message.magic > 0
    return build_message_set(
        message.magic,
        [NewRecord(record.key, record.value, record.timestamp_ms)],
        base_offset=record.offset,
        timestamp_type=message.timestamp_type if has_time else TimestampType.CREATE_TIME,
        log_append_time_ms=message.max_timestamp_ms,
    )


@pytest.mark.parametrize("case", ["legacy", "index-content"])
def test_wrappers_of_magic_0_and_1_are_read_back_from_our_compression(case: str) -> None:
    """Wrappers that compaction did not thin out: written by us with the same codec, they hold the same records."""
    for batch in valid_batches(case):
        if isinstance(batch, LegacyBatch) and batch.codec is not Codec.NONE:
            records, inner = list(batch.records()), batch.inner_messages()
            if records[-1].offset - records[0].offset != len(records) - 1:
                continue
            again = build_message_set(
                batch.magic,
                [NewRecord(r.key, r.value, m.max_timestamp_ms) for r, m in zip(records, inner, strict=True)],
                base_offset=records[0].offset,
                codec=batch.codec,
                timestamp_type=batch.timestamp_type if batch.magic else TimestampType.CREATE_TIME,
                log_append_time_ms=batch.max_timestamp_ms,
            )
            assert list(LegacyBatch(again).records()) == records
