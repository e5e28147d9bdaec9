"""`profile`: the numbers are those of the records, however they are cut; the report is one sound file."""

import json
import os
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidelog
from tests.spark.logs import START_MS, record, write
from tidelog.errors import InvalidRequestError, StorageError
from tidelog.records import NewRecord
from tidelog.spark.jobs.advice import advice_for, codec_in_use
from tidelog.spark.jobs.profile import Profile, TopicProfile, profile
from tidelog.spark.jobs.profile_facts import CodecUse, PartitionFacts
from tidelog.spark.jobs.profile_json import profile_dict
from tidelog.spark.jobs.report import report_html, write_report


def hot(number: int) -> NewRecord:
    """One key has half of the records; every tenth has no key; one in fifty is late."""
    key = None if number % 10 == 0 else b"<b>hot</b>" if number % 2 else b"key-%d" % number
    late = 60_000 if number % 50 == 7 else 0
    return NewRecord(key, b'{"n":%d}' % number if number % 9 else None, START_MS + 1000 * number - late, ())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics of several segments."""
    place = tmp_path_factory.mktemp("logs")
    write(place, "hot", 0, (hot(number) for number in range(2_000)), segment_bytes=20_000)
    write(place, "hot", 1, (hot(number) for number in range(100)))
    write(place, "even", 0, (record(number) for number in range(500)))
    return place


@pytest.fixture(scope="module")
def found(root: Path, spark: SparkSession) -> Profile:
    return profile(spark, root, part_bytes=5_000)


def as_json(found: Profile) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(json.dumps(profile_dict(found)))
    return {topic["topic"]: topic for topic in told["topics"]}


def test_counts_are_those_of_the_records(root: Path, found: Profile) -> None:
    told = as_json(found)
    assert set(told) == {"hot", "even"}
    for name, topic in told.items():
        rows = tidelog.open(root).scan(name, columns=["key", "value", "partition", "offset"]).to_table().to_pylist()
        keys = Counter(row["key"] for row in rows if row["key"] is not None)
        assert topic["records"] == len(rows)
        assert topic["null_keys"] == sum(row["key"] is None for row in rows)
        assert topic["null_values"] == sum(row["value"] is None for row in rows)
        assert topic["key_bytes"] == sum(len(row["key"] or b"") for row in rows)
        assert topic["value_bytes"] == sum(len(row["value"] or b"") for row in rows)
        assert topic["keys"]["is_exact"]
        assert topic["keys"]["distinct"] == len(keys)
        for one in topic["keys"]["top"]:
            assert one["records"] == keys[bytes.fromhex(one["key_hex"])]
        assert topic["stored_bytes"] == sum(path.stat().st_size for path in root.glob(f"{name}-*/*.log"))
        assert sum(topic["codecs"][codec]["bytes"] for codec in topic["codecs"]) == topic["stored_bytes"]
        assert sum(each["records"] for each in topic["rates"]["moments"]) == len(rows)
        for part in topic["partitions"]:
            offsets = [row["offset"] for row in rows if row["partition"] == part["partition"]]
            assert (part["records"], part["first_offset"], part["last_offset"]) == (
                len(offsets), min(offsets), max(offsets),
            )  # fmt: skip


def test_it_does_not_matter_how_the_work_is_cut(root: Path, found: Profile, spark: SparkSession) -> None:
    told, whole = as_json(found), as_json(profile(spark, root))
    for topic in (*told.values(), *whole.values()):
        for name in ("trial", "advice", "value_kinds", "late_records", "latest_by_ms"):  # samples, and what pieces see
            topic.pop(name)
        for part in topic["partitions"]:
            del part["late_records"], part["latest_by_ms"]
    assert told == whole


def test_batches_are_counted_by_their_headers(found: Profile) -> None:
    even = as_json(found)["even"]
    assert even["batches"]["count"] == 100
    assert even["batches"]["records"]["mean"] == 5
    assert even["codecs"]["none"]["records"] == 500


def test_what_follows_is_said(found: Profile) -> None:
    said = {topic.name: {one.subject: one for one in advice_for(topic)} for topic in found.topics}
    assert "The key <b>hot</b> has 56 % of the keyed records" in said["hot"]["hot key"].text
    assert said["hot"]["skew"].weight == "change"
    assert "Partition 0 has 1.9 times the records" in said["hot"]["skew"].text
    assert said["even"]["batches"].weight == "change"
    assert said["even"]["codec"].weight == "change"
    assert "--value json" in said["hot"]["values"].text
    assert 'withWatermark("timestamp", "59 seconds")' in said["hot"]["lateness"].text
    assert "500 records have 7 keys" in said["even"]["compaction"].text


def facts_of(records: int, **codecs: int) -> PartitionFacts:
    facts = PartitionFacts()
    facts.records = records
    facts.codecs = {name: CodecUse(size=size) for name, size in codecs.items()}
    return facts


@pytest.mark.parametrize(
    ("records", "weight", "words"),
    [
        ((34_650, 63_000, 28_350), "change", "Partition 1 has 1.5 times the records of an average one (63,000 of"),
        ((7, 7, 4, 7, 0, 3), "change", "Partition 0 has 1.5 times"),
        ((90, 70, 110), "good", "The partitions have from 70 to 110 records, 0.78 to 1.22 times the average."),
        ((100,) * 20 + (0,), "good", "The partitions have from 0 to 100 records, 0.00 to 1.05 times the average."),
        ((100, 95, 110), "good", "The partitions have about as many records each."),
    ],
)  # fmt: skip
def test_partitions_are_called_even_only_where_they_are(records: tuple[int, ...], weight: str, words: str) -> None:
    topic = TopicProfile("t", {number: facts_of(count) for number, count in enumerate(records)})
    (skew,) = (one for one in advice_for(topic) if one.subject == "skew")
    assert skew.weight == weight
    assert words in skew.text


@pytest.mark.parametrize(
    ("codecs", "words"),
    [({}, "-"), ({"lz4": 9}, "lz4"), ({"none": 4, "lz4": 96}, "lz4"), ({"none": 47, "lz4": 35, "zstd": 18}, "mixed")],
)
def test_several_codecs_are_called_so(codecs: dict[str, int], words: str) -> None:
    assert codec_in_use(facts_of(100, **codecs)) == words


def test_what_compact_needs_is_said_where_it_is_recommended(found: Profile) -> None:
    (even,) = (topic for topic in found.topics if topic.name == "even")
    (text,) = (one.text for one in advice_for(even) if one.subject == "compaction")
    assert "in the log directory of a broker that is stopped, `tidelog compact --dry-run`" in text


def test_damage_is_left_out_and_told(tmp_path: Path, spark: SparkSession) -> None:
    write(tmp_path, "t", 0, (record(number) for number in range(200)), segment_bytes=1 << 20)
    (log,) = tmp_path.glob("t-0/*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    found = profile(spark, tmp_path)
    (topic,) = found.topics
    assert topic.facts.records == 195
    assert len(topic.facts.damage) == 1
    assert advice_for(topic)[0].subject == "damage"


def test_a_topic_without_records_is_no_error(tmp_path: Path, spark: SparkSession) -> None:
    write(tmp_path, "empty", 0, [])
    found = profile(spark, tmp_path)
    assert as_json(found)["empty"]["records"] == 0
    assert "There are no records" in report_html(found)


def test_a_topic_that_is_not_there_is_one_sentence(root: Path, spark: SparkSession) -> None:
    with pytest.raises(InvalidRequestError, match="hott"):
        profile(spark, root, topics=["hott"])


# -- the report ----------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page is made of; that its tags are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self._open: list[str] = []
        self.feed(text)
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "action", "data")]
        self.ids |= {value or "" for name, value in attrs if name == "id"}
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open
        assert self._open.pop() == tag


def test_the_report_needs_nothing_from_elsewhere(found: Profile) -> None:
    text = report_html(found)
    page = Page(text)
    assert page.tags.count("svg") >= 10
    assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
    assert all(address.startswith("#") and address[1:] in page.ids for address in page.addresses)
    assert not re.search(r"https?:|url\(|@import", text)
    assert "prefers-color-scheme: dark" in text


def test_what_the_records_hold_is_text_in_the_report(found: Profile) -> None:
    text = report_html(found)
    assert "&lt;b&gt;hot&lt;/b&gt;" in text
    assert "<b>hot</b>" not in text


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it plays another user and root")
def test_root_writes_the_report_into_no_directory_behind_a_link_of_another_user(found: Profile, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.lchown(tmp_path / "link", 1000, 1000)
    with pytest.raises(StorageError, match="link is a symbolic link that uid 1000 made"):
        write_report(found, str(tmp_path / "link" / "report.html"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_report_is_written_whole_or_not_at_all(found: Profile, tmp_path: Path) -> None:
    path = write_report(found, str(tmp_path / "report.html"))
    assert Path(path).read_text().endswith("</html>\n")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(InvalidRequestError, match="nowhere is no directory: make it first"):
        write_report(found, str(tmp_path / "nowhere" / "report.html"))
