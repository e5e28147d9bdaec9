"""Records of `__transaction_state` as text, as releases from 0.11 to 4.0 print them.

    2.4.1 to 4.0    key: transaction_metadata::transactionalId=x
    up to 2.4.0     key: transactionalId=x
    payload: producerId:1,producerEpoch:0,state=Ongoing,partitions=[t-0,t-1],txnLastUpdateTimestamp=…,txnTimeoutMs=…

Up to 2.4.1 the partitions are printed as Scala prints a set, `Set(t-0, t-1)`. Tombstones are `<DELETE>` since 2.4.1 and
end the tool before. What cannot be decoded ends it too, except that 3.4.1 and later print `unknown::version=1` for a
key of another kind.
"""

from tidelog.dump.decoders.java_reading import JavaBuffer, lengths_are_checked, read_message
from tidelog.dump.decoders.known_messages import known_coordinator_record
from tidelog.dump.decoders.scala_order import Hashed, set_order, topic_partition_hash
from tidelog.dump.decoders.struct_reading import read_by_schema
from tidelog.dump.java_errors import JavaError, illegal_argument, null_pointer
from tidelog.dump.releases import Release
from tidelog.protocol import MessageType, Struct
from tidelog.records import Record
from tidelog.view.internal_topics import TRANSACTION_STATES

__all__ = ["TransactionTextDecoder"]

_NAMES_IN_SCHEMAS = {
    "transaction_timeout_ms": "transaction_timeout",
    "transaction_last_update_timestamp_ms": "transaction_entry_timestamp",
    "transaction_start_timestamp_ms": "transaction_start_timestamp",
}


class TransactionTextDecoder:
    """Decodes the records of a release before 4.1."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._reads_by_schema = not release.is_at_least(2, 8)
        self._key_message, self._value_message = known_coordinator_record("transaction", 0, release)

    def decode(self, record: Record) -> tuple[str | None, str | None]:
        """Key and payload."""
        if record.key is None:
            raise null_pointer("java.nio.ByteBuffer.getShort()", '"buffer"')
        buffer = JavaBuffer(record.key)
        version = buffer.read_short()
        if version != 0:
            return self._unknown_key(version), None
        key = self._read(self._key_message, buffer, version)
        title = "transaction_metadata::transactionalId" if self._release.is_at_least(2, 4, 1) else "transactionalId"
        return f"{title}={key.transactional_id}", self._value(record.value)

    def _read(self, message: MessageType, buffer: JavaBuffer, version: int) -> Struct:
        if self._reads_by_schema:
            return read_by_schema(message, buffer, version, _NAMES_IN_SCHEMAS)
        return read_message(message, buffer, version, checked=lengths_are_checked(self._release))

    def _unknown_key(self, version: int) -> str:
        if self._release.is_at_least(3, 4, 1):
            return f"unknown::version={version}"
        if self._reads_by_schema:
            raise self._kafka_exception(f"Unknown transaction log message key schema version {version}")
        raise JavaError(
            "java.lang.IllegalStateException", f"Unknown version {version} from the transaction log message"
        )

    def _kafka_exception(self, message: str) -> JavaError:
        package = "org.apache.kafka.common" if self._release.is_at_least(2, 0) else "kafka.common"
        return JavaError(f"{package}.KafkaException", message)

    def _value(self, data: bytes | None) -> str:
        if data is None:
            if self._release.is_at_least(2, 4, 1):
                return "<DELETE>"
            raise null_pointer("kafka.coordinator.transaction.TransactionMetadata.producerId()", '"txnMetadata"')
        buffer = JavaBuffer(data)
        version = buffer.read_short()
        if not 0 <= version <= (1 if self._release.is_at_least(3, 4, 1) else 0):
            if self._reads_by_schema:
                raise self._kafka_exception(f"Unknown transaction log message value schema version {version}")
            raise JavaError(
                "java.lang.IllegalStateException", f"Unknown version {version} from the transaction log message value"
            )
        value = self._read(self._value_message, buffer, version)
        state = self._state(value.transaction_status)
        if self._release.is_at_least(4, 0):
            _check_transaction_version(value.client_transaction_version)
        return (
            f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch}"
            f",state={state},partitions={self._partitions(value, state)}"
            f",txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms}"
            f",txnTimeoutMs={value.transaction_timeout_ms}"
        )

    def _state(self, number: int) -> str:
        if 0 <= number < len(TRANSACTION_STATES):
            return TRANSACTION_STATES[number]
        what = "id" if self._release.is_at_least(3, 0) else "byte"
        raise JavaError(
            "java.lang.IllegalStateException",
            f"Unknown transaction state {what} {number} from the transaction status message",
        )

    def _partitions(self, value: Struct, state: str) -> str:
        """The partitions in the order of the table that the tool keeps them in. An empty state has none."""
        topics = value.transaction_partitions if state != "Empty" else []
        if topics is None:
            raise self._no_partitions()
        groups = [
            [
                Hashed(f"{entry.topic}-{number}", topic_partition_hash(entry.topic, number))
                for number in entry.partition_ids
            ]
            for entry in topics
        ]
        texts = set_order(groups, is_scala_213=self._release.is_at_least(2, 6))
        return f"[{','.join(texts)}]" if self._release.is_at_least(2, 5) else f"Set({', '.join(texts)})"

    def _no_partitions(self) -> JavaError:
        if self._reads_by_schema:
            array = "topicPartitionArray" if self._release.is_at_least(2, 6) else "$this"
            return JavaError(
                "java.lang.NullPointerException", f'Cannot read the array length because "{array}" is null'
            )
        package = "org.apache.kafka.coordinator.transaction" if self._release.is_at_least(3, 9) else "kafka.internals"
        getter = f"{package}.generated.TransactionLogValue.transactionPartitions()"
        return null_pointer("java.util.List.forEach(java.util.function.Consumer)", f'the return value of "{getter}"')


def _check_transaction_version(level: int) -> None:
    """4.0 keeps the version of the client's protocol, and knows three."""
    if level not in (0, 1, 2):
        raise illegal_argument(f"No feature:transaction.version with feature level {level}")
