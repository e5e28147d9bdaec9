"""Records, batches, message sets and logs of every shape that can be written.

A log here is bytes: what lies in a segment file. The strategies know nothing about columns or kernels; they speak
`tidelog.records` only, so that one log can be read both ways and the answers compared.
"""

from hypothesis import strategies as st

from tidelog.records import (
    BatchAttributes,
    BatchBuilder,
    Codec,
    ControlType,
    EndTxnMarker,
    Header,
    NewRecord,
    TimestampType,
    build_control_batch,
    build_end_txn_marker,
    build_message_set,
    compress,
    empty_batch,
)
from tidelog.records.legacy import write_message

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1

# Around the places where a length takes one byte more, where copies change their step, and where they become calls.
_SIZES = st.sampled_from([1, 31, 32, 33, 63, 64, 65, 127, 128, 224, 255, 256, 257, 300, 8191, 8192, 20_000])
_repeated_bytes = st.builds(lambda size, byte: bytes([byte]) * size, _SIZES, st.integers(0, 255))

fields = st.one_of(st.none(), st.just(b""), st.binary(max_size=12), st.binary(max_size=12), _repeated_bytes)

header_names = st.one_of(
    st.sampled_from(["", "trace", "h\u00e9", "\u65e5\u672c", "\U0001f30a", "\x00", "n" * 70]), st.text(max_size=6)
)
headers = st.lists(st.builds(Header, header_names, st.one_of(st.none(), st.binary(max_size=40))), max_size=4).map(tuple)

_USUAL_TIME = 1_700_000_000_000
timestamps = st.one_of(
    st.just(-1),
    st.integers(_USUAL_TIME - 100, _USUAL_TIME + 100),  # deltas of either sign, of one and two bytes
    st.integers(0, 2**41),
    st.sampled_from([0, 1, 2**62, MAX_INT64 - 1, MAX_INT64]),
)

new_records = st.builds(NewRecord, fields, fields, timestamps, st.one_of(st.just(()), headers))
plain_records = st.builds(NewRecord, fields, fields, timestamps, st.just(()))  # as the old formats have them

record_lists = st.lists(new_records, min_size=1, max_size=5)

codecs = st.sampled_from(list(Codec))
legacy_codecs = st.sampled_from([codec for codec in Codec if codec is not Codec.ZSTD])
offsets = st.one_of(st.integers(0, 1000), st.sampled_from([2**31, 2**40, 2**62]))
epochs = st.one_of(st.just(-1), st.integers(0, 9), st.just(MAX_INT32))

_sequences = st.one_of(st.integers(0, 9), st.integers(MAX_INT32 - 3, MAX_INT32))


@st.composite
def producers(draw: st.DrawFn) -> dict[str, object]:
    """The fields of a batch that tell who produced it: nobody, an idempotent producer, a transaction."""
    if draw(st.booleans()):
        return {}
    return {
        "producer_id": draw(st.sampled_from([0, 7, 1000, MAX_INT64])),
        "producer_epoch": draw(st.sampled_from([0, 3, 2**15 - 1])),
        "base_sequence": draw(_sequences),
        "is_transactional": draw(st.booleans()),
    }


@st.composite
def data_batches(draw: st.DrawFn, codecs: st.SearchStrategy[Codec] = codecs) -> bytes:
    """Version 2 batches of data, as they were sent or as compaction left them: with gaps, with a delete horizon."""
    options: dict[str, object] = {
        "base_offset": draw(offsets),
        "codec": draw(codecs),
        "partition_leader_epoch": draw(epochs),
        **draw(producers()),
    }
    if draw(st.booleans()):
        options["timestamp_type"] = TimestampType.LOG_APPEND_TIME
        options["log_append_time_ms"] = draw(timestamps.filter(lambda time: time >= 0))
    if draw(st.booleans()):
        options["delete_horizon_ms"] = draw(st.integers(0, 2**41))
    builder = BatchBuilder(**options)  # type: ignore[arg-type]
    for record in draw(record_lists):
        gap = draw(st.sampled_from([0, 0, 0, 1, 63, 64, 10_000, 2**28]))
        builder.append(record, builder.next_offset + gap)
    return bytes(builder.build())


@st.composite
def empty_batches(draw: st.DrawFn) -> bytes:
    """What compaction leaves of a batch whose records are all gone."""
    base = draw(offsets)
    attributes = BatchAttributes(
        timestamp_type=draw(st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])),
        is_transactional=draw(st.booleans()),
        is_control=draw(st.booleans()),
    )
    return bytes(
        empty_batch(
            base_offset=base,
            last_offset=base + draw(st.integers(0, 100)),
            max_timestamp_ms=draw(timestamps),
            partition_leader_epoch=draw(epochs),
            producer_id=5,
            producer_epoch=draw(st.integers(0, 5)),
            base_sequence=draw(_sequences),
            attributes=attributes,
        )
    )


control_batches = st.one_of(
    st.builds(
        lambda kind, epoch, time, offset: bytes(
            build_end_txn_marker(
                EndTxnMarker(kind, epoch), producer_id=9, producer_epoch=1, timestamp_ms=time, offset=offset
            )
        ),
        st.sampled_from([ControlType.ABORT, ControlType.COMMIT]),
        st.integers(0, 5),
        timestamps,
        offsets,
    ),
    st.builds(
        lambda values, time, offset: bytes(
            build_control_batch(
                [(ControlType.LEADER_CHANGE, value) for value in values],
                timestamp_ms=time,
                partition_leader_epoch=4,
                base_offset=offset,
            )
        ),
        st.lists(st.binary(max_size=10), min_size=1, max_size=3),
        timestamps,
        offsets,
    ),
)

record_batches = st.one_of(data_batches(), data_batches(), empty_batches(), control_batches)


@st.composite
def message_sets(draw: st.DrawFn) -> bytes:
    """Entries of magic 0 or 1, one by one or inside a wrapper of any codec that the format allows."""
    by_broker = draw(st.booleans())
    return bytes(
        build_message_set(
            draw(st.sampled_from([0, 1])),
            draw(st.lists(plain_records, min_size=1, max_size=4)),
            base_offset=draw(offsets),
            codec=draw(legacy_codecs),
            timestamp_type=TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME,
            log_append_time_ms=draw(st.integers(0, 2**41)) if by_broker else -1,
        )
    )


@st.composite
def compacted_wrappers(draw: st.DrawFn) -> bytes:
    """A wrapper from which compaction took messages, or which a producer left at offset 0."""
    magic, codec = draw(st.sampled_from([0, 1])), draw(legacy_codecs.filter(bool))
    inner = bytearray()
    first = draw(offsets) if magic == 0 else draw(st.integers(0, 3))
    relative = first
    for record in draw(st.lists(plain_records, min_size=1, max_size=4)):
        last = relative
        write_message(inner, magic, relative, record)
        relative += 1 + draw(st.sampled_from([0, 0, 1, 9]))
    offset = 0 if draw(st.booleans()) else last + (0 if magic == 0 else draw(offsets))
    content = NewRecord(None, compress(codec, inner, magic=magic), draw(timestamps))
    wrapper = bytearray()
    write_message(wrapper, magic, offset, content, codec=codec)
    return bytes(wrapper)


legacy_entries = st.one_of(message_sets(), compacted_wrappers())

logs = st.lists(record_batches, max_size=6).map(b"".join)
legacy_logs = st.lists(legacy_entries, max_size=4).map(b"".join)
mixed_logs = st.lists(st.one_of(record_batches, record_batches, legacy_entries), max_size=7).map(b"".join)
