"""What a client does to a real broker: create a topic, produce, consume, ask for offsets. The client is librdkafka.

Everything a function sends has been acknowledged when it returns, and everything it reads has been read to the end.
Requests of an admin client are repeated: where the broker is fenced for a moment, as on a busy machine, librdkafka has
no broker to ask, and no reason to look again before its time is up.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.broker import Broker
from tests.compat.kafka_tools import run_java
from tests.interop.judges import Seen
from tidelog.records import NewRecord

TIMEOUT_S = 60
ATTEMPTS, ATTEMPT_S = 6, 20  # of a request of an admin client
Place = tuple[str, int]  # a topic and the number of a partition


class Consumed(NamedTuple):
    """What a consumer was given of a partition, from offset 0, and the offset at which it was told that this is all."""

    records: list[Seen]
    end: int


def create_topic(broker: Broker, topic: str, partitions: int, **configs: object) -> None:
    """A topic and its directories. Configs come under their names with underscores."""
    asked = [NewTopic(topic, partitions, 1, config=_properties(configs))]
    request(broker, lambda admin: admin.create_topics(asked)[topic], KafkaError.TOPIC_ALREADY_EXISTS)
    places = [(topic, partition) for partition in range(partitions)]
    assert consume_all(broker, places) == dict.fromkeys(places, Consumed([], 0))  # then their directories are there


def set_topic_configs(broker: Broker, topic: str, **configs: object) -> None:
    """Change configs of a topic. The broker obeys them a moment later."""
    place = ConfigResource(ResourceType.TOPIC, topic)
    for name, value in _properties(configs).items():
        place.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    request(broker, lambda admin: admin.incremental_alter_configs([place])[place])


def delete_topic(broker: Broker, topic: str) -> None:
    request(broker, lambda admin: admin.delete_topics([topic])[topic], KafkaError.UNKNOWN_TOPIC_OR_PART)


def delete_records(broker: Broker, topic: str, partition: int, before: int) -> None:
    """Move the log start of a partition."""
    place = TopicPartition(topic, partition, before)
    request(broker, lambda admin: admin.delete_records([place])[place])


def consume(broker: Broker, topic: str, partition: int, *, committed: bool = False) -> Consumed:
    """Every record of a partition; of `committed` transactions only, if so wanted."""
    return consume_all(broker, [(topic, partition)], committed=committed)[topic, partition]


def consume_all(broker: Broker, places: Iterable[Place], *, committed: bool = False) -> dict[Place, Consumed]:
    """Every record of many partitions, read by one consumer."""
    consumer = Consumer(
        {
            **_common(broker),
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # of a log that does not start at 0
            "fetch.wait.max.ms": 10,  # the end is told when a fetch has waited in vain
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    records: dict[Place, list[Seen]] = {place: [] for place in places}
    ends: dict[Place, int] = {}
    try:
        consumer.assign([TopicPartition(*place, 0) for place in records])
        while len(ends) < len(records):
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"silence, and no end of {sorted(records.keys() - ends.keys())}"
            place, error = _place_of(message), message.error()
            if error is None:
                records[place].append(_seen(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[place] = _offset_of(message)
            else:
                raise AssertionError(f"{place}: {error}")
    finally:
        consumer.close()
    return {place: Consumed(records[place], ends[place]) for place in records}


def log_starts(broker: Broker, places: Iterable[Place]) -> dict[Place, int]:
    """The log start offsets of partitions."""
    return {place: _list_offset(broker, *place, OffsetSpec.earliest()).offset for place in places}


def produce(broker: Broker, topic: str, partition: int, records: Iterable[NewRecord], **options: object) -> None:
    """Send records with the options of a producer, under their names with underscores."""
    producer = new_producer(broker, **options)
    send(producer, topic, partition, records)


def new_producer(broker: Broker, **options: object) -> Producer:
    return Producer({**_common(broker), **{name.replace("_", "."): value for name, value in options.items()}})


def send(producer: Producer, topic: str, partition: int, records: Iterable[NewRecord]) -> None:
    """Send records and wait for every acknowledgement."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    for record in records:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            partition=partition,
            timestamp=record.timestamp_ms,
            headers=[(header.key, header.value) for header in record.headers],
            on_delivery=delivered,
        )
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert not failures, failures[0]


def offset_for_time(broker: Broker, topic: str, partition: int, timestamps_ms: Iterable[int]) -> list[int]:
    """The offsets that the broker names for times; -1 where it has none."""
    return [_list_offset(broker, topic, partition, OffsetSpec.for_timestamp(time)).offset for time in timestamps_ms]


def offset_of_largest_time(broker: Broker, topic: str, partition: int) -> tuple[int, int]:
    """Offset and timestamp of the record with the largest timestamp."""
    found = _list_offset(broker, topic, partition, OffsetSpec.max_timestamp())
    return found.offset, found.timestamp


def _list_offset(broker: Broker, topic: str, partition: int, spec: OffsetSpec) -> Any:
    place = TopicPartition(topic, partition)
    return request(broker, lambda admin: admin.list_offsets({place: spec})[place])


def describe_producers(broker: Broker, topic: str, partition: int) -> list[dict[str, str]]:
    """The table of kafka-transactions: what the broker remembers of the producers of a partition."""
    done = run_java(
        "org.apache.kafka.tools.TransactionsCommand",
        *("--bootstrap-server", broker.address, "describe-producers"),
        *("--topic", topic, "--partition", str(partition)),
    )
    assert done.exit == 0, done.stderr
    titles, *rows = [line.split() for line in done.stdout.splitlines()]
    return [dict(zip(titles, row, strict=True)) for row in rows]


def _seen(message: Message) -> Seen:
    kind, timestamp_ms = message.timestamp()
    value: Any = message.value()
    key: Any = message.key()
    headers: Any = message.headers() or []
    # librdkafka counts from 1, and says 0 where there is no timestamp, which a batch calls a CreateTime of -1.
    return Seen(_offset_of(message), timestamp_ms, key, value, tuple(headers), max(kind - 1, 0))


def _place_of(message: Message) -> Place:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def _offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def _properties(configs: Mapping[str, object]) -> dict[str, str]:
    return {name.replace("_", "."): str(value) for name, value in configs.items()}


def request(broker: Broker, ask: Callable[[AdminClient], Future[Any]], done_before: int | None = None) -> Any:
    """The answer to a request that may be sent again. Error `done_before` says that an earlier attempt was obeyed."""
    for attempt in range(1, ATTEMPTS + 1):
        admin = AdminClient(dict(_common(broker)))  # which must live until it has its answer
        try:
            return ask(admin).result(ATTEMPT_S)
        except TimeoutError:
            if attempt == ATTEMPTS:
                raise
        except KafkaException as failure:
            if attempt == 1 or failure.args[0].code() != done_before:
                raise
            return None
    raise AssertionError("the last attempt raises")


def _common(broker: Broker) -> Mapping[str, Any]:
    return {"bootstrap.servers": broker.address, "log_level": 0}
