"""Names of files and directories: what Kafka calls them, and which names it refuses."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tests.golden import corpus
from tidelog.errors import CorruptionError, InvalidRequestError, InvalidTopicError
from tidelog.log.names import (
    DELETED,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP,
    TIME_INDEX_SUFFIX,
    TopicPartition,
    check_partition,
    check_topic_name,
    delete_directory_name,
    file_name,
    future_directory_name,
    is_delete_directory,
    is_future_directory,
    is_index_file,
    is_segment_file,
    is_stray_directory,
    new_uid,
    offset_of,
    parse_directory_name,
    stray_directory_name,
    topics_collide,
)

UID = "6b7f3a1c0d5e4f2a8b9c0d1e2f3a4b5c"
MARKS = ("-delete", "-future", "-stray")

# -- files -----------------------------------------------------------------------------------------------------------


def test_an_offset_takes_twenty_digits() -> None:
    assert file_name(0, LOG_SUFFIX) == "00000000000000000000.log"
    assert file_name(2**63 - 1, SNAPSHOT_SUFFIX) == "09223372036854775807.snapshot"


@behaviour("LOC-029")
@pytest.mark.parametrize("suffix", [LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX])
def test_the_offset_is_recovered_from_a_file_name(suffix: str) -> None:
    assert offset_of(file_name(23423423, suffix)) == 23423423
    assert offset_of(file_name(23423423, suffix) + SWAP) == 23423423


@pytest.mark.parametrize("name", ["", ".log", "00000000000000000000", "x.log", "-1.log", "+1.log", "1x.log", "١.log"])
def test_a_name_that_does_not_begin_with_an_offset_is_refused(name: str) -> None:
    with pytest.raises(CorruptionError, match="begins with an offset"):
        offset_of(name)


def test_an_offset_beyond_64_bits_is_refused() -> None:
    assert offset_of(f"{2**63 - 1}.log") == 2**63 - 1
    for digits in (str(2**63), "9" * 20, "0" * 21, "9" * 100_000):
        with pytest.raises(CorruptionError):
            offset_of(f"{digits}.log")


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_names_sort_as_their_offsets_do(one: int, other: int) -> None:
    assert (file_name(one, LOG_SUFFIX) < file_name(other, LOG_SUFFIX)) == (one < other)


def test_files_of_a_segment_are_known_by_their_last_suffix() -> None:
    names = [file_name(7, suffix) for suffix in SEGMENT_SUFFIXES]
    assert [is_segment_file(name) for name in names] == [True] * 4
    assert [is_index_file(name) for name in names] == [False, True, True, True]
    assert not any(is_segment_file(name + DELETED) for name in names)
    assert not is_segment_file(file_name(7, SNAPSHOT_SUFFIX))


def test_every_segment_file_of_the_corpus_is_named_as_we_would() -> None:
    files = [file for partition in corpus.partitions() for file in partition.path.iterdir()]
    ours = [file for file in files if is_segment_file(file.name) or file.suffix == SNAPSHOT_SUFFIX]
    assert len(ours) > 4000
    assert [file for file in ours if file_name(offset_of(file.name), file.suffix) != file.name] == []


# -- directories -----------------------------------------------------------------------------------------------------


@behaviour("LOC-023")
def test_a_directory_is_called_topic_dash_partition() -> None:
    assert parse_directory_name("test_topic-143") == TopicPartition("test_topic", 143)
    assert str(TopicPartition("test_topic", 143)) == "test_topic-143"


@behaviour("LOC-024")
@pytest.mark.parametrize("mark", MARKS)
def test_a_marked_directory_keeps_topic_and_partition(mark: str) -> None:
    assert parse_directory_name(f"foo.bar-testtopic-42.{UID}{mark}") == TopicPartition("foo.bar-testtopic", 42)


def test_the_last_dash_parts_topic_and_partition() -> None:
    assert parse_directory_name("a-1-2") == TopicPartition("a-1", 2)
    assert parse_directory_name("--0") == TopicPartition("-", 0)
    assert parse_directory_name(f"a.b-1-2.{UID}-future") == TopicPartition("a.b-1", 2)


def test_a_partition_is_read_as_java_reads_a_number() -> None:
    assert parse_directory_name("t-+7") == parse_directory_name("t-007") == TopicPartition("t", 7)
    assert parse_directory_name("t-2147483647").partition == 2**31 - 1
    assert parse_directory_name("t-٣").partition == 3
    for partition in ("2147483648", "1_0", " 1", "1 ", "1\n", "\U0001d7db", "1.0", "0x1", "9" * 100_000):
        with pytest.raises(InvalidTopicError):
            parse_directory_name(f"t-{partition}")


@behaviour("LOC-025")
@pytest.mark.parametrize("plain", ["", "testtopic", "-4", "test_topic-", "test_topic-1999a"])
def test_other_directory_names_are_refused(plain: str) -> None:
    for name in (plain, *(f"{plain}.{UID}{mark}" for mark in MARKS)):
        with pytest.raises(InvalidTopicError, match=re.escape(repr(name))):
            parse_directory_name(name)


@behaviour("LOC-026")
@pytest.mark.parametrize("name", ["non_kafka_dir", "non_kafka_dir-delete"])
def test_directories_that_are_not_kafkas_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopicError):
        parse_directory_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "t-0-delete",  # no uid
        f"t-0.{UID}-deleted",
        f"t 1-0.{UID}-delete",  # white space
        f"t-0.{UID}-delete\n",
        f"t-0.{UID}.-delete",  # cut at the last dot
        "t-0.-delete",
        ".uid-0-delete",
    ],
)
def test_a_mark_needs_a_partition_and_a_uid_in_front_of_it(name: str) -> None:
    with pytest.raises(InvalidTopicError):
        parse_directory_name(name)


KAFKAS_PATTERN = re.compile(r"^(\S+)-(\S+)\.(\S+)-delete", re.ASCII)


@given(st.text(alphabet="a1-. ", max_size=12))
def test_marked_names_are_those_of_kafkas_pattern(stem: str) -> None:
    name = f"{stem}-delete"
    assert is_delete_directory(name) == (KAFKAS_PATTERN.fullmatch(name) is not None)


@behaviour("LOC-027")
def test_the_delete_name_is_cut_at_255_characters() -> None:
    assert delete_directory_name(TopicPartition("foo", 3), UID) == f"foo-3.{UID}-delete"
    uid = new_uid(random.Random(5))
    assert re.fullmatch("[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}", uid)
    for make in (delete_directory_name, stray_directory_name):
        name = make(TopicPartition("n" * 249, 3), uid)
        assert len(name) == 255
        assert set(parse_directory_name(name).topic) == {"n"}
        assert parse_directory_name(name).partition == 3


def test_the_future_name_is_not_cut() -> None:
    name = future_directory_name(TopicPartition("n" * 249, 3), UID)
    assert parse_directory_name(name) == TopicPartition("n" * 249, 3)
    assert len(name) == 249 + len("-3.") + 32 + len("-future")


@behaviour("LOC-028")
def test_a_mark_is_of_one_kind() -> None:
    partition = TopicPartition("foo", 3)
    kinds = (is_delete_directory, is_future_directory, is_stray_directory)
    makers = (delete_directory_name, future_directory_name, stray_directory_name)
    for nth, make in enumerate(makers):
        assert [is_kind(make(partition, UID)) for is_kind in kinds] == [nth == other for other in range(3)]
    assert not any(is_kind("foo-3") for is_kind in kinds)


def test_every_partition_directory_of_the_corpus_is_named_as_we_would() -> None:
    names = {Path(partition.name).name for partition in corpus.partitions("kafka-4.3/6-recovery")}
    stray = "u-nometa-0.e6a033f25b6046bc81aa5ab28e351f09-stray"  # Kafka did not find out whose it was
    assert len(names) > 50
    assert {name for name in names if str(parse_directory_name(name)) != name} == {stray}
    assert stray_directory_name(parse_directory_name(stray), "e6a033f25b6046bc81aa5ab28e351f09") == stray


# -- topics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["valid", "TOPIC", "nAmEs", "ar6", "VaL1d", "_0-9_.", "...", "t" * 249])
def test_topics_can_be_called(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "t" * 250, "foo bar", "foo:bar", "foo=bar", "foo/bar", "foo\\bar", "foo\n", "caf\u00e9", "\0"],
)
def test_topics_cannot_be_called(name: str) -> None:
    with pytest.raises(InvalidTopicError) as raised:
        check_topic_name(name)
    assert raised.value.error_code == 17


def test_topics_collide_where_dots_meet_underscores() -> None:
    for one, other in ((".topic", "_topic"), ("to.pic", "to_pic"), ("topic.", "topic_"), ("topic", "topic")):
        assert topics_collide(one, other)
    for one, other in ((".topic", "topic_"), ("to.pic", "topic"), ("a.b", "a-b"), ("Topic", "topic")):
        assert not topics_collide(one, other)


# -- partitions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", [TopicPartition("orders", 0), TopicPartition("x" * 244, 2**31 - 1)])
def test_partitions_can_be(partition: TopicPartition) -> None:
    check_partition(partition)
    assert parse_directory_name(str(partition)) == partition


@pytest.mark.parametrize("number", ["0", True, 0.0, None, -1, 2**31])
def test_the_number_of_a_partition_is_a_whole_number(number: Any) -> None:
    with pytest.raises(InvalidRequestError, match="the number of a partition is an int from 0 to 2147483647, not "):
        check_partition(TopicPartition("orders", number))


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "a/b", "x" * 245])
def test_a_partition_needs_a_directory_of_its_own(topic: str) -> None:
    with pytest.raises(InvalidTopicError):
        check_partition(TopicPartition(topic, 2**31 - 1))


@pytest.mark.parametrize("other", [("orders", 0), "orders-0", None, TopicPartition])
def test_what_is_like_a_partition_is_none(other: object) -> None:
    with pytest.raises(InvalidRequestError, match="pass a TopicPartition, not "):
        check_partition(other)
