"""Decoders of internal topics: their texts are those of the real tool, release by release."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tests.golden import corpus
from tests.golden.corpus import OldDump
from tidelog.dump.decoders import Decoder, decoder_for, quorum_record_json
from tidelog.dump.decoders.json_lines import json_line
from tidelog.dump.java_errors import JavaError
from tidelog.dump.releases import release
from tidelog.errors import UnsupportedError
from tidelog.protocol import json_text, message
from tidelog.records import Record, read_batches
from tidelog.records.control import ControlType

OLDER_TOOLS = [
    *("1.0.0", "1.1.1", "2.0.1", "2.1.1", "2.2.2", "2.3.1", "2.4.1", "2.8.2"),
    *("3.1.0", "3.4.0", "3.9.1", "4.0.0", "4.2.0"),
]


def records_of(log: Path, *, control: bool = False) -> Iterator[Record]:
    for batch in read_batches(log.read_bytes()):
        if batch.is_control == control:
            yield from batch.records()


def decoded_lines(decoder: Decoder, records: Iterable[Record]) -> Iterator[str]:
    """What the tool prints of each record behind its header keys; the last may be an exception."""
    for record in records:
        try:
            key, payload = decoder.decode(record)
        except JavaError as error:
            yield next(error.lines())
            return
        yield ("" if key is None else f" key: {key}") + ("" if payload is None else f" payload: {payload}")


def printed_lines(stdout: str, stderr: str = "") -> list[str]:
    """The same from the text of the real tool."""
    tails = re.findall(r"headerKeys: \[[^\]\n]*\](?! endTxnMarker| Snapshot| KRaft| LeaderChange)(.*)", stdout)
    if stderr:
        assert tails.pop() == "", "the line on which the tool ended"
        tails.append(stderr.partition("\n")[0])
    return tails


def decoder_option(args: Iterable[str]) -> str | None:
    return next((arg.removeprefix("--") for arg in args if arg.endswith("-decoder")), None)


def older_dumps(tool: str) -> Iterator[tuple[Path, str, OldDump]]:
    for writer in ("written-by-1.0.0", "written-by-2.8.2"):
        for dump in corpus.old_dumps("dump-formats", tool, f"{writer}/"):
            option = decoder_option(dump.args)
            if option and "--skip-record-metadata" not in dump.args:
                log = corpus.case("dump-formats") / writer / dump.dir / dump.args[dump.args.index("--files") + 1]
                yield log, option, dump


@pytest.mark.parametrize("tool", OLDER_TOOLS)
def test_a_tool_of_every_age_prints_these_texts(tool: str) -> None:
    compared = 0
    for log, option, dump in older_dumps(tool):
        if " key" not in dump.stdout and not dump.stderr:
            continue  # 1.0 prints no data without --deep-iteration
        ours = list(decoded_lines(decoder_for(option, release(tool)), records_of(log)))
        assert ours == printed_lines(dump.stdout, dump.stderr)
        compared += len(ours)
    assert compared > 50


@behaviour("DMP-017", "DMP-021", "DMP-022", "DMP-023")
@pytest.mark.parametrize("case", ["kafka-4.3/8-consumer-offsets", "kafka-4.3/9-metadata"])
def test_the_newest_tool_prints_these_texts(case: str) -> None:
    compared = 0
    for partition in corpus.partitions(case):
        for log in [*partition.logs, *sorted(partition.path.glob("*.checkpoint"))]:
            for mode in corpus.dump_modes(partition, log.name):
                option = decoder_option(mode.split())
                if option is None or "--skip-record-metadata" in mode:
                    continue
                dump = corpus.dump(partition, log.name, mode)
                ours = list(decoded_lines(decoder_for(option, release("4.3")), records_of(log)))
                theirs = printed_lines(dump.visible, dump.stderr)
                if isinstance(dump.stdout, corpus.LongText):
                    theirs, ours = theirs[:-1], ours[: len(theirs) - 1]
                assert ours == theirs
                compared += len(ours)
    assert compared > 60


# -- what the golden files do not hold -----------------------------------------------------------------------------


def record_of(key: bytes | None, value: bytes | None, offset: int = 0) -> Record:
    return Record(offset=offset, timestamp_ms=0, key=key, value=value)


def decoded(option: str, tool: str, key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    return decoder_for(option, release(tool)).decode(record_of(key, value))


GROUP_EPOCH_KEY = bytes.fromhex("0003 0005") + b"group"  # ConsumerGroupMetadata


@behaviour("DMP-020")
@pytest.mark.parametrize(
    ("option", "tool", "decoder"),
    [
        ("offsets-decoder", "4.3", "the specified decoder"),
        ("offsets-decoder", "4.0", "offset topic decoder"),
        ("share-group-state-decoder", "4.0", "share group state topic decoder"),
        ("transaction-log-decoder", "4.1", "the specified decoder"),
    ],
)
def test_a_record_without_key_ends_the_tool(option: str, tool: str, decoder: str) -> None:
    with pytest.raises(JavaError) as caught:
        decoder_for(option, release(tool)).decode(record_of(None, b"", offset=3))
    assert str(caught.value) == (
        f"java.lang.RuntimeException: Failed to decode message at offset 3 using {decoder} (message had a missing key)"
    )


@behaviour("DMP-021", "DMP-023")
def test_a_group_epoch_and_its_tombstone() -> None:
    value = bytes.fromhex("0000 0000000a 00")
    key_text = '{"type":"3","data":{"groupId":"group"}}'
    assert decoded("offsets-decoder", "4.3", GROUP_EPOCH_KEY, value) == (
        key_text,
        '{"version":"0","data":{"epoch":10}}',
    )
    assert decoded("offsets-decoder", "4.3", GROUP_EPOCH_KEY, None) == (key_text, "<DELETE>")


@behaviour("DMP-024")
def test_an_unknown_type_is_told_and_passed_over() -> None:
    text = "Unknown record type 32767 at offset 0, skipping."
    assert decoded("offsets-decoder", "4.3", bytes.fromhex("7fff"), b"") == (text, None)


@behaviour("DMP-025")
def test_a_value_that_does_not_fit_its_key_is_told_with_the_reason() -> None:
    offset_value = bytes.fromhex("0000 0000000000000005 0000 0000000000000001")
    text, payload = decoded("offsets-decoder", "4.3", GROUP_EPOCH_KEY, offset_value[:4])
    assert payload is None
    assert text == (
        "Error at offset 0, skipping. Could not read record with version 0 from value's buffer due to: null."
    )
    too_new = bytes.fromhex("0009") + offset_value[2:]
    assert decoded("offsets-decoder", "4.3", GROUP_EPOCH_KEY, too_new)[0] == (
        "Error at offset 0, skipping. Found an unknown record version 9 for 3 type"
    )


@behaviour("DMP-022")
def test_members_that_carry_nonsense_keep_their_bytes() -> None:
    group = message("GroupMetadataValue")
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "subscription": b"\x00", "assignment": b"abc"}
    value = group.write(group.new(protocol_type="consumer", members=[member]), 3)
    key = bytes.fromhex("0002 0001") + b"g"
    _, payload = decoded("offsets-decoder", "4.3", key, bytes.fromhex("0003") + value)
    assert payload is not None
    assert '"subscription":"AA==","assignment":"YWJj"' in payload


@behaviour("DMP-027")
def test_remote_log_metadata_is_told_by_its_text_form() -> None:
    delete = message("RemotePartitionDeleteMetadataRecord")
    value = delete.new(topic_id_partition={"name": "orders", "partition": 2}, event_timestamp_ms=7, broker_id=1)
    framed = bytes.fromhex("010200") + delete.write(value, 0)
    assert decoded("remote-log-metadata-decoder", "4.3", None, framed) == (
        None,
        "RemotePartitionDeleteMetadata{topicPartition=AAAAAAAAAAAAAAAAAAAAAA:orders-2, "
        "state=DELETE_PARTITION_MARKED, eventTimestampMs=7, brokerId=1}",
    )
    _, broken = decoded("remote-log-metadata-decoder", "4.3", None, b"\x00")
    assert broken is not None
    assert broken.startswith("Error at offset 0, skipping. Could not deserialize metadata record")


@behaviour("DMP-028")
def test_control_records_of_the_quorum_are_json() -> None:
    partition = corpus.Partition("kafka-4.3/9-metadata", "image/__cluster_metadata-0")
    dump = corpus.dump(partition, "00000000000000000000.log", "--deep-iteration")
    printed = re.findall(r" LeaderChange: (\{.*\})$", dump.visible, re.MULTILINE)
    ours = [
        quorum_record_json("LeaderChangeMessage", record.value or b"")
        for record in records_of(partition.logs[0], control=True)
        if ControlType.parse(record.key) is ControlType.LEADER_CHANGE
    ]
    assert printed
    assert ours[: len(printed)] == printed


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no decoder is called 'json-decoder'"):
        decoder_for("json-decoder", release("4.3"))


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.booleans() | st.none() | st.lists(st.text())))
def test_quick_json_is_the_json_of_the_protocol(node: dict[str, object]) -> None:
    assert json_line(node) == json_text(node)
