"""Records of remote log metadata, `__remote_log_metadata`, in the words of Kafka's toString().

payload: RemotePartitionDeleteMetadata{topicPartition=…:orders-0, state=DELETE_PARTITION_MARKED, …}
"""

from tidelog.dump.decoders.framed_records import read_framed
from tidelog.dump.decoders.java_reading import reason_of
from tidelog.dump.decoders.known_messages import remote_log_record
from tidelog.dump.java_errors import JavaError, illegal_argument
from tidelog.dump.java_text import java_bool
from tidelog.dump.releases import Release
from tidelog.protocol import MessageType, Struct
from tidelog.protocol.json_form import uuid_text
from tidelog.records import Record

__all__ = ["RemoteLogDecoder"]

_SEGMENT_STATES = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_PARTITION_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


class RemoteLogDecoder:
    """Decodes the values; keys are not printed."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._texts = {
            "RemoteLogSegmentMetadataRecord": self._segment,
            "RemoteLogSegmentMetadataUpdateRecord": _segment_update,
            "RemotePartitionDeleteMetadataRecord": _partition_delete,
            "RemoteLogSegmentMetadataSnapshotRecord": self._segment_snapshot,
        }

    def decode(self, record: Record) -> tuple[str | None, str | None]:
        """No key, and the payload or a sentence."""
        try:
            return None, self._payload(record.value)
        except JavaError as error:
            return None, f"Error at offset {record.offset}, skipping. {reason_of(error)}"

    def _payload(self, value: bytes | None) -> str:
        if value is None:
            package = "record.internal" if self._release.is_at_least(4, 3) else "record"
            raise JavaError(
                "java.lang.NullPointerException",
                'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
                f'"org.apache.kafka.common.{package}.Record.value()" is null',
            )
        framed = read_framed(value, self._message)
        return self._texts[framed.message.name](framed.value)

    def _message(self, api_key: int) -> MessageType | None:
        return remote_log_record(api_key, self._release)

    def _segment(self, record: Struct) -> str:
        _check_offsets(record.start_offset, record.end_offset)
        epochs = _leader_epochs(record)
        state = _segment_state(record)
        return (
            f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(record.remote_log_segment_id)}"
            f", startOffset={record.start_offset}, endOffset={record.end_offset}, brokerId={record.broker_id}"
            f", maxTimestampMs={record.max_timestamp_ms}, eventTimestampMs={record.event_timestamp_ms}"
            f", segmentLeaderEpochs={epochs}, segmentSizeInBytes={record.segment_size_in_bytes}"
            f", customMetadata={_custom_metadata(record)}, state={state}{self._transaction_index(record)}}}"
        )

    def _segment_snapshot(self, record: Struct) -> str:
        state = _segment_state(record)
        epochs = _leader_epochs(record)
        return (
            f"RemoteLogSegmentMetadataSnapshot{{segmentId={uuid_text(record.segment_id)}"
            f", startOffset={record.start_offset}, endOffset={record.end_offset}"
            f", maxTimestampMs={record.max_timestamp_ms}, segmentLeaderEpochs={epochs}"
            f", segmentSizeInBytes={record.segment_size_in_bytes}"
            f", customMetadata={_custom_metadata(record)}, state={state}{self._transaction_index(record)}}}"
        )

    def _transaction_index(self, record: Struct) -> str:
        if not self._release.is_at_least(4, 0):
            return ""
        return f", txnIdxEmpty={java_bool(record.txn_index_empty)}"


def _segment_update(record: Struct) -> str:
    state = _segment_state(record)
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(record.remote_log_segment_id)}"
        f", customMetadata={_custom_metadata(record)}, state={state}"
        f", eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
    )


def _partition_delete(record: Struct) -> str:
    if not 0 <= record.remote_partition_delete_state < len(_PARTITION_STATES):
        raise JavaError("java.lang.NullPointerException")
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_topic_id_partition(record.topic_id_partition)}"
        f", state={_PARTITION_STATES[record.remote_partition_delete_state]}"
        f", eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
    )


def _check_offsets(start: int, end: int) -> None:
    if start < 0:
        raise illegal_argument(
            f"Unexpected start offset = {start}. StartOffset for a remote segment cannot be negative"
        )
    if end < start:
        raise illegal_argument(
            f"Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than startOffset = {start}"
        )


def _leader_epochs(record: Struct) -> str:
    offsets = {entry.leader_epoch: entry.offset for entry in record.segment_leader_epochs}
    if not offsets:
        raise illegal_argument("segmentLeaderEpochs can not be null or empty")
    return "{" + ", ".join(f"{epoch}={offset}" for epoch, offset in sorted(offsets.items())) + "}"


def _segment_state(record: Struct) -> str:
    if not 0 <= record.remote_log_segment_state < len(_SEGMENT_STATES):
        raise JavaError("java.lang.NullPointerException", "state can not be null")
    return _SEGMENT_STATES[record.remote_log_segment_state]


def _custom_metadata(record: Struct) -> str:
    data = record.custom_metadata
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _segment_id(entry: Struct) -> str:
    where = _topic_id_partition(entry.topic_id_partition)
    return f"RemoteLogSegmentId{{topicIdPartition={where}, id={uuid_text(entry.id)}}}"


def _topic_id_partition(entry: Struct) -> str:
    return f"{uuid_text(entry.id)}:{entry.name}-{entry.partition}"
