"""Internal topics that our engine wrote, before Apache Kafka's own dump tool: the decoders print what it prints.

Records of every type and version are made by chance from the tables of the protocol; some are broken. A topic is one
file and each option of the tool is one run over it.
"""

import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.compat.kafka_tools import dump_log
from tests.protocol.values import Dice, Version
from tidelog.dump.decoders import class_decoder, decoder_for
from tidelog.dump.java_errors import JavaError
from tidelog.dump.releases import release
from tidelog.log import LogConfig, UnifiedLog
from tidelog.protocol import MessageType, Struct, coordinator_record, message, message_names
from tidelog.records import NewRecord, read_batches

T0 = 1_700_000_000_000
GROUP_TYPES = [*range(9), *range(10, 18), *range(19, 24)]
REMOTE_LOG = ("SegmentMetadata", "SegmentMetadataUpdate", "PartitionDeleteMetadata", "SegmentMetadataSnapshot")

Pair = tuple[bytes | None, bytes | None]


class Chance:
    """Makes keys and values by chance, sound and broken ones."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._dice = Dice(self.rng)

    def struct(self, message_type: MessageType, version: int) -> Struct:
        return self._dice.value(Version(message_type, version))

    def value(self, message_type: MessageType) -> bytes:
        """A version and a value of that version."""
        version = self.rng.choice(message_type.valid_versions)
        return version.to_bytes(2, "big") + self.of(message_type, version)

    def of(self, message_type: MessageType, version: int) -> bytes:
        return message_type.write(self.struct(message_type, version), version)

    def group(self) -> bytes:
        """A classic group, whose members carry what the members of a consumer group carry."""
        group, version = message("GroupMetadataValue"), self.rng.randint(0, 4)
        value = self.struct(group, version)
        value.protocol_type = self.rng.choice(["consumer", "consumer", "connect"])
        for member in value.members:
            member.subscription = self.value(message("ConsumerProtocolSubscription"))
            member.assignment = self.broken(self.value(message("ConsumerProtocolAssignment")), 0.3)
        return version.to_bytes(2, "big") + group.write(value, version)

    def broken(self, data: bytes, likelihood: float) -> bytes:
        """The bytes, or with that likelihood what is left of them."""
        if self.rng.random() >= likelihood:
            return data
        position = self.rng.randrange(len(data))
        harms = [data[:position], data + b"\x00!", data[:position] + b"\xff" + data[position + 1 :]]
        return self.rng.choice([*harms, data[:position] + b"\xff\xff\xff\xff\x0f" + data[position:], data[:1]])


def coordinator_pairs(chance: Chance, family: str, types: list[int], rounds: int) -> Iterator[Pair]:
    for record_type in types * rounds:
        key_message, value_message = coordinator_record(family, record_type)
        assert value_message is not None
        key = record_type.to_bytes(2, "big") + chance.of(key_message, 0)
        value = chance.group() if (family, record_type) == ("group", 2) else chance.value(value_message)
        yield chance.broken(key, 0.1), chance.broken(value, 0.2)
        yield key, None
        yield key, struct.pack(">h", chance.rng.choice([-1, 5, 99])) + value[2:]
    yield b"\x7f\xff", b""
    yield b"\x00", b""


def framed_pairs(chance: Chance, message_types: list[MessageType], rounds: int) -> Iterator[Pair]:
    for message_type in message_types * rounds:
        version = chance.rng.choice(message_type.valid_versions)
        assert message_type.api_key is not None
        head = bytes([1, message_type.api_key, version])
        yield None, chance.broken(head + chance.of(message_type, version), 0.25)
        yield None, head[:2] + b"\x63" + chance.of(message_type, version)  # a version of the future
    yield from ((None, None), (None, b""), (None, b"\x00\x01"), (None, b"\x02"), (None, b"\x01\x63\x00"))


def metadata_messages() -> list[MessageType]:
    found = [message(name) for name in message_names() if message(name).kind == "metadata"]
    return [record for record in found if record.schema.module == "metadata" and record.valid_versions]


def remote_pairs(chance: Chance, rounds: int) -> Iterator[Pair]:
    messages = [message(f"Remote{'Log' * name.startswith('Segment')}{name}Record") for name in REMOTE_LOG]
    yield from framed_pairs(chance, messages, rounds)
    for record in messages * rounds:
        value = chance.struct(record, 0)
        if hasattr(value, "start_offset"):
            value.start_offset, value.end_offset = 5, chance.rng.choice([4, 5, 9])
        for state in ("remote_log_segment_state", "remote_partition_delete_state"):
            if hasattr(value, state):
                setattr(value, state, chance.rng.randint(0, 3))
        assert record.api_key is not None
        yield None, bytes([1, record.api_key, 0]) + record.write(value, 0)


def pairs_of(option: str, seed: int) -> list[Pair]:
    chance = Chance(seed)
    match option:
        case "offsets-decoder":
            return list(coordinator_pairs(chance, "group", GROUP_TYPES, 4))
        case "transaction-log-decoder":
            return list(coordinator_pairs(chance, "transaction", [0], 40))
        case "share-group-state-decoder":
            return list(coordinator_pairs(chance, "share", [0, 1], 30))
        case "cluster-metadata-decoder":
            return list(framed_pairs(chance, metadata_messages(), 4))
    return list(remote_pairs(chance, 12))


def write_topic(directory: Path, pairs: list[Pair]) -> Path:
    log = UnifiedLog.open(directory, LogConfig())
    for start in range(0, len(pairs), 50):
        log.append([NewRecord(key, value, T0) for key, value in pairs[start : start + 50]])
    log.close()
    return directory / "00000000000000000000.log"


def texts_of(log: Path, option: str) -> list[str]:
    decoder = decoder_for(option, release("4.3"))
    batches = read_batches(log.read_bytes())
    return [text_of(*decoder.decode(record)) for batch in batches for record in batch.records()]


def text_of(key: str | None, payload: str | None) -> str:
    return ("" if key is None else f" key: {key}") + ("" if payload is None else f" payload: {payload}")


def printed_texts(stdout: str) -> list[str]:
    """What the tool printed behind the header keys of each record; it may have line ends of its own."""
    lines = re.findall(
        r"^\| offset: .*? headerKeys: \[\](.*?)(?=\n\| offset: |\nbaseOffset: |\n\Z)", stdout, re.M | re.S
    )
    return [str(line) for line in lines]


@behaviour("DMP-017", "DMP-021", "DMP-022", "DMP-023", "DMP-024", "DMP-025", "DMP-026", "DMP-027")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("topic", "option"),
    [
        ("__consumer_offsets", "offsets-decoder"),
        ("__transaction_state", "transaction-log-decoder"),
        ("__share_group_state", "share-group-state-decoder"),
        ("__cluster_metadata", "cluster-metadata-decoder"),
        ("__remote_log_metadata", "remote-log-metadata-decoder"),
    ],
)
def test_internal_topics_are_printed_as_kafka_prints_them(tmp_path: Path, topic: str, option: str, seed: int) -> None:
    log = write_topic(tmp_path / f"{topic}-0", pairs_of(option, seed))
    result = dump_log([log], f"--{option}")
    assert (result.exit, result.stderr) == (0, "")
    printed = printed_texts(result.stdout)
    assert texts_of(log, option) == printed
    assert len(printed) > 100


@behaviour("DMP-020")
@pytest.mark.parametrize("option", ["offsets-decoder", "transaction-log-decoder", "share-group-state-decoder"])
def test_a_record_without_key_ends_kafkas_tool_in_the_same_words(tmp_path: Path, option: str) -> None:
    log = write_topic(tmp_path / "t-0", [(None, b"x")])
    (batch,) = read_batches(log.read_bytes())
    with pytest.raises(JavaError) as caught:
        decoder_for(option, release("4.3")).decode(next(iter(batch.records())))
    result = dump_log([log], f"--{option}")
    assert (result.exit, result.stderr.split("\n")[0]) == (1, next(caught.value.lines()))


@pytest.mark.parametrize(
    "name", ["org.apache.kafka.tools.api.LongDecoder", "org.apache.kafka.tools.api.IntegerDecoder"]
)
def test_decoder_classes_print_as_kafkas(tmp_path: Path, name: str) -> None:
    log = write_topic(tmp_path / "t-0", [(b"k", b"abcdefgh"), (None, bytes(9))])
    decoder = class_decoder(None, name, release("4.3"))
    (batch,) = read_batches(log.read_bytes())
    result = dump_log([log], "--value-decoder-class", name)
    assert [text_of(*decoder.decode(record)) for record in batch.records()] == printed_texts(result.stdout)


def test_a_class_that_is_not_there_ends_kafkas_tool_in_the_same_words(tmp_path: Path) -> None:
    log = write_topic(tmp_path / "t-0", [(b"k", b"v")])
    with pytest.raises(JavaError) as caught:
        class_decoder(None, "no.such.Class", release("4.3"))
    result = dump_log([log], "--value-decoder-class", "no.such.Class")
    exceptions = [line for line in result.stderr.split("\n") if re.match(r"Exception|Caused", line)]
    assert exceptions == list(caught.value.lines())
