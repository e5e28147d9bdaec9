"""Configs of a topic: names, values, defaults and synonyms are Kafka's."""

import dataclasses
import json
import random

import pytest

from tests.behaviours import behaviour
from tests.golden import corpus
from tidelog.errors import InvalidConfigError
from tidelog.log.config import LogConfig, redacted_text
from tidelog.records import Codec

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
FOREVER = 2**63 - 1
NAMES = sorted(LogConfig().to_properties())

NUMBERS_BELOW_ZERO = {"retention.bytes", "retention.ms", "local.retention.ms", "local.retention.bytes"}
LEVELS = {"compression.gzip.level", "compression.lz4.level", "compression.zstd.level"}
SWITCHES = {name for name, value in LogConfig().to_properties().items() if value in ("true", "false")}
WORDS = {"cleanup.policy", "compression.type", "message.timestamp.type"}
LISTS = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
NO_BROKER_NAME = LISTS | {"remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"}
OTHER_NUMBERS = sorted(set(NAMES) - NUMBERS_BELOW_ZERO - LEVELS - SWITCHES - WORDS - LISTS)


def config_of(**properties: object) -> LogConfig:
    return LogConfig.from_properties({name.replace("_", "."): value for name, value in properties.items()})


# -- against real Kafka ------------------------------------------------------------------------------------------


def test_every_name_that_kafka_shows_is_known_and_reads_back() -> None:
    shown = json.loads((corpus.HERE / corpus.RELEASE / "topic-defaults.json").read_text())
    assert sorted(shown) == NAMES
    assert LogConfig.from_properties(shown).to_properties() == shown


def test_the_defaults_are_those_that_kafka_shows_where_its_broker_did_not_change_them() -> None:
    shown = json.loads((corpus.HERE / corpus.RELEASE / "topic-defaults.json").read_text())
    ours = LogConfig().to_properties()
    assert {name for name in NAMES if ours[name] != shown[name]} == {
        "file.delete.delay.ms",  # the corpus was written by a broker in a hurry
        "max.message.bytes",
        "retention.ms",
        "segment.index.bytes",
    }


CASES_WITH_TOPICS = [name for name in corpus.case_names() if (corpus.case(name) / "topics.json").is_file()]


@behaviour("CFG-019")
@pytest.mark.parametrize("case", CASES_WITH_TOPICS)
def test_the_configs_of_every_golden_topic_are_read(case: str) -> None:
    configured = 0
    for topic in corpus.facts(case, "topics.json").values():
        properties = topic.get("configs", {})
        text = LogConfig.from_properties(properties).to_properties()
        configured += len(properties)
        for name, value in properties.items():
            assert text[name.removeprefix("internal.")] == value
    assert configured > 0


def test_there_are_golden_topics() -> None:
    assert len(CASES_WITH_TOPICS) >= 6


# -- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("segment.byte", "segment.byte is no topic config; the nearest is segment.bytes"),
        ("colour", "colour is no topic config"),
        ("message.format.version", "gone since Kafka 4.0"),
        ("message.downconversion.enable", "gone since Kafka 4.0"),
        ("log.segment.bytes", "nearest is segment.bytes"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(name: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        LogConfig.from_properties({name: "1"})


def test_text_of_every_config_reads_back_as_the_same_config() -> None:
    config = LogConfig(
        cleanup_policy=("compact", "delete"),
        compression_type="zstd",
        compression_zstd_level=-7,
        min_cleanable_dirty_ratio=0.25,
        preallocate=True,
        leader_replication_throttled_replicas=("0:1", "1:2"),
    )
    assert LogConfig.from_properties(config.to_properties()) == config
    assert config.to_properties()["cleanup.policy"] == "compact,delete"
    assert config.to_properties()["preallocate"] == "true"


def test_values_need_not_be_text_and_none_is_not_set() -> None:
    config = LogConfig.from_properties(
        {"segment.ms": 5, "preallocate": True, "min.cleanable.dirty.ratio": 1, "cleanup.policy": ["compact"],
         "retention.ms": None}
    )  # fmt: skip
    assert (config.segment_ms, config.preallocate, config.min_cleanable_dirty_ratio) == (5, True, 1.0)
    assert config.cleanup_policy == ("compact",)
    assert config.retention_ms == 7 * DAY_MS


def test_what_is_set_for_a_topic_stands_over_its_base() -> None:
    base = LogConfig(segment_ms=5, retention_ms=7)
    config = LogConfig.from_properties({"segment.ms": " 6 "}, base)
    assert (config.segment_ms, config.retention_ms) == (6, 7)


@behaviour("CFG-019")
def test_the_internal_name_overrides_the_size_of_segments() -> None:
    assert LogConfig.from_properties({"internal.segment.bytes": "600", "segment.bytes": "1048576"}).segment_bytes == 600
    assert (
        LogConfig.from_properties({"internal.segment.bytes": None, "segment.bytes": "1048576"}).segment_bytes == 2**20
    )
    with pytest.raises(InvalidConfigError, match=r"internal\.segment\.bytes is '13'"):
        LogConfig.from_properties({"internal.segment.bytes": 13})


@behaviour("CFG-012")
def test_values_of_unknown_names_are_not_shown() -> None:
    overrides = {
        "min.insync.replicas": "2",
        "retention.bytes": "100",
        "ssl.truststore.password": "sometrustpasswrd",
        "unknown.topic.password.config": "bbbb",
    }
    assert redacted_text(overrides) == (
        "{min.insync.replicas=2, retention.bytes=100, ssl.truststore.password=(redacted), "
        "unknown.topic.password.config=(redacted)}"
    )
    assert redacted_text({"internal.segment.bytes": 600}) == "{internal.segment.bytes=600}"


# -- values ------------------------------------------------------------------------------------------------------


def assert_refused(name: str, *values: object) -> None:
    for value in values:
        with pytest.raises(InvalidConfigError, match=name.replace(".", r"\.")):
            LogConfig.from_properties({name: value})


@behaviour("CFG-003")
@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_a_switch_is_true_or_false(name: str) -> None:
    assert_refused(name, "not a boolean", "0", "", 1)
    assert LogConfig.from_properties({name: " TRUE "}).to_properties()[name] == "true"


@behaviour("CFG-004")
def test_retention_may_be_negative_but_is_a_number() -> None:
    assert_refused("retention.bytes", "not_a_number", "1.5", "1_000", "", "9223372036854775808")
    assert_refused("retention.ms", "not_a_number", "-2")
    config = config_of(retention_bytes="-7", retention_ms="-1")
    assert (config.retention_bytes, config.retention_ms) == (-7, -1)


@behaviour("CFG-005")
def test_the_cleanup_policy_is_delete_or_compact_or_both() -> None:
    assert_refused("cleanup.policy", "true", "foobar", "delete,foobar", "Delete")
    both = config_of(cleanup_policy="compact , delete")
    assert (both.is_compacted, both.deletes) == (True, True)
    assert (LogConfig().is_compacted, LogConfig().deletes) == (False, True)


@behaviour("CFG-018")
def test_the_cleanup_policy_may_be_empty_but_names_nothing_twice() -> None:
    forever = config_of(cleanup_policy="")
    assert (forever.cleanup_policy, forever.is_compacted, forever.deletes) == ((), False, False)
    assert_refused("cleanup.policy", "delete,delete", "delete,", ",compact", ",")


@behaviour("CFG-006")
def test_the_dirty_ratio_is_a_share() -> None:
    assert_refused("min.cleanable.dirty.ratio", "not_a_number", "-0.1", "1.2", "nan", True)
    assert config_of(min_cleanable_dirty_ratio="1").min_cleanable_dirty_ratio == 1


@behaviour("CFG-007")
def test_at_least_one_replica_is_in_sync() -> None:
    assert_refused("min.insync.replicas", "not_a_number", "0", "-1")
    assert config_of(min_insync_replicas="2").min_insync_replicas == 2


@behaviour("CFG-008")
def test_levels_are_those_of_the_codecs() -> None:
    assert_refused("compression.gzip.level", "not_a_number", "-2", "0", "10")
    assert_refused("compression.lz4.level", "not_a_number", "-1", "0", "18")
    assert_refused("compression.zstd.level", "not_a_number", "-0.1", "23", "-131073")
    config = config_of(compression_gzip_level="-1", compression_lz4_level="17", compression_zstd_level="-131072")
    assert (config.compression_gzip_level, config.compression_lz4_level) == (-1, 17)
    assert config.compression_zstd_level == -131072


@behaviour("CFG-009")
@pytest.mark.parametrize("name", OTHER_NUMBERS)
def test_other_numbers_are_not_negative(name: str) -> None:
    assert_refused(name, "not_a_number", "-1", -1, True, b"1")


def test_the_bounds_of_numbers_are_allowed() -> None:
    lowest = {
        "segment.bytes": 14, "segment.ms": 1, "segment.jitter.ms": 0, "segment.index.bytes": 4, "flush.ms": 0,
        "index.interval.bytes": 0, "max.message.bytes": 0, "flush.messages": 1, "max.compaction.lag.ms": 1,
    }  # fmt: skip
    text = LogConfig.from_properties(lowest).to_properties()
    assert {name: int(text[name]) for name in lowest} == lowest
    for name in lowest:
        if lowest[name]:
            assert_refused(name, lowest[name] - 1)
    assert_refused("segment.bytes", 2**31, str(2**31), "9" * 5000)
    assert_refused("segment.ms", 2**63)


@behaviour("CFG-010")
def test_the_smallest_compaction_lag_is_not_above_the_largest() -> None:
    with pytest.raises(InvalidConfigError, match=r"min\.compaction\.lag\.ms is 200, above max\.compaction\.lag\.ms"):
        config_of(max_compaction_lag_ms="100", min_compaction_lag_ms="200")
    assert config_of(max_compaction_lag_ms="100", min_compaction_lag_ms="100").min_compaction_lag_ms == 100


@behaviour("CFG-011")
@pytest.mark.parametrize("name", sorted(LISTS))
def test_throttled_replicas_are_all_or_pairs(name: str) -> None:
    for value in ("*", "* ", "", " ", "100:10", "100:10,12:10", "100:10,12:10,15:1  ", "100:0,"):
        LogConfig.from_properties({name: value})
    assert_refused(name, "100", "100:", "100:0,10", "100:0,10:", "100 :0,10:   ", "100: 0", "100:0,10 :   ",
                   "*,100:10", "* ,100:10", "*,*", "x100:10")  # fmt: skip


def test_a_value_of_the_wrong_type_is_refused_where_a_config_is_made_directly() -> None:
    with pytest.raises(InvalidConfigError, match=r"cleanup\.policy is 'compact', wanted is a list"):
        LogConfig(cleanup_policy="compact")  # type: ignore[arg-type]
    with pytest.raises(InvalidConfigError, match=r"segment\.bytes is '13', wanted is 14 or more"):
        LogConfig(segment_bytes=13)
    with pytest.raises(InvalidConfigError, match=r"compression\.type is 'none'"):
        dataclasses.replace(LogConfig(), compression_type="none")


# -- remote storage ----------------------------------------------------------------------------------------------


@behaviour("CFG-013")
def test_local_retention_is_that_of_the_log_until_it_is_set() -> None:
    follows = config_of(retention_bytes="1024", retention_ms="1000")
    assert (follows.effective_local_retention_ms, follows.effective_local_retention_bytes) == (1000, 1024)
    assert LogConfig().effective_local_retention_ms == 7 * DAY_MS
    assert LogConfig().effective_local_retention_bytes == -1
    own = config_of(retention_bytes="2000", retention_ms="1000", local_retention_ms="500", local_retention_bytes="1000")
    assert (own.effective_local_retention_ms, own.effective_local_retention_bytes) == (500, 1000)


@behaviour("CFG-014")
@pytest.mark.parametrize(
    ("local_ms", "local_bytes", "whole_bytes", "whole_ms"),
    [(-3, 10, 2, 500), (500, -3, 2, 1000), (2000, 2, 100, 1000), (500, 200, 100, 1000), (-1, 200, 100, 1000),
     (2000, -1, 100, 1000), (-1, 2, 100, 1000), (500, -1, 100, 1000)],
)  # fmt: skip
def test_local_retention_is_not_above_that_of_the_log(
    local_ms: int, local_bytes: int, whole_bytes: int, whole_ms: int
) -> None:
    values = {
        "local_retention_ms": local_ms,
        "local_retention_bytes": local_bytes,
        "retention_bytes": whole_bytes,
        "retention_ms": whole_ms,
    }
    with pytest.raises(InvalidConfigError, match=r"local\.retention"):
        LogConfig(remote_storage_enable=True, **values)
    if min(local_ms, local_bytes) >= -2:
        assert LogConfig(**values).local_retention_ms == local_ms  # without remote storage nothing follows from it


def test_without_copying_local_retention_is_that_of_the_log() -> None:
    with pytest.raises(InvalidConfigError, match=r"remote\.log\.copy\.disable"):
        LogConfig(remote_storage_enable=True, remote_log_copy_disable=True, local_retention_ms=5)
    kept = LogConfig(remote_storage_enable=True, remote_log_copy_disable=True, local_retention_ms=5, retention_ms=5)
    assert kept.effective_local_retention_ms == 5


@behaviour("CFG-015")
def test_remote_storage_needs_support_and_a_topic_that_is_not_compacted() -> None:
    for policy in ("compact", "delete,compact", "compact,delete"):
        with pytest.raises(InvalidConfigError, match="compacted topic"):
            config_of(remote_storage_enable="true", cleanup_policy=policy)
    tiered = config_of(remote_storage_enable="true")
    tiered.check_remote_storage_change(None, is_supported=True)
    with pytest.raises(InvalidConfigError, match="not available"):
        tiered.check_remote_storage_change(None, is_supported=False)


@behaviour("CFG-016")
def test_remote_storage_is_not_left_by_accident() -> None:
    tiered, plain = LogConfig(remote_storage_enable=True), LogConfig()
    with pytest.raises(InvalidConfigError, match=r"remote\.log\.delete\.on\.disable"):
        plain.check_remote_storage_change(tiered, is_supported=True)
    LogConfig(remote_log_delete_on_disable=True).check_remote_storage_change(tiered, is_supported=True)
    plain.check_remote_storage_change(plain, is_supported=True)
    plain.check_remote_storage_change(None, is_supported=False)


# -- what the broker sets ----------------------------------------------------------------------------------------


@behaviour("CFG-001")
def test_a_broker_gives_times_in_hours() -> None:
    config = LogConfig.from_broker_properties(
        {"log.roll.hours": "2", "log.roll.jitter.hours": "2", "log.retention.hours": "960", "process.roles": "broker",
         "log.local.retention.ms": "2592000000", "log.local.retention.bytes": "4294967296"}
    )  # fmt: skip
    assert (config.segment_ms, config.segment_jitter_ms) == (7_200_000, 7_200_000)
    assert config.retention_ms == 40 * DAY_MS
    assert (config.local_retention_ms, config.local_retention_bytes) == (30 * DAY_MS, 4 * 1024**3)


def test_the_finest_unit_wins() -> None:
    def retention(**given: str) -> int:
        return LogConfig.from_broker_properties(
            {f"log.retention.{unit}": text for unit, text in given.items()}
        ).retention_ms

    assert retention(hours="1", minutes="30", ms="1800000") == 1_800_000
    assert retention(hours="1", minutes="30") == 30 * 60_000
    assert retention(hours="1") == HOUR_MS
    assert retention() == 7 * DAY_MS
    assert retention(ms="-1", hours="1") == retention(minutes="-5") == retention(hours="-2") == -1
    assert LogConfig.from_broker_properties({"log.roll.ms": 5, "log.roll.hours": 1}).segment_ms == 5
    flush = {"log.flush.scheduler.interval.ms": "7"}
    assert LogConfig.from_broker_properties(flush).flush_ms == 7
    assert LogConfig.from_broker_properties(flush | {"log.flush.interval.ms": "5"}).flush_ms == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [("log.retention.ms", "0"), ("log.retention.minutes", "0"), ("log.retention.hours", "0"), ("log.roll.hours", "0"),
     ("log.roll.ms", "0"), ("log.roll.jitter.ms", "-1"), ("log.roll.hours", "2147483648"), ("log.segment.bytes", "x")],
)  # fmt: skip
def test_a_value_that_a_broker_would_not_start_with_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfigError, match=name.replace(".", r"\.")):
        LogConfig.from_broker_properties({name: value})


@behaviour("CFG-002")
def test_every_config_can_be_set_for_all_topics_but_those_of_single_topics() -> None:
    synonyms = {
        "segment.bytes": "log.segment.bytes", "segment.ms": "log.roll.ms", "segment.jitter.ms": "log.roll.jitter.ms",
        "segment.index.bytes": "log.index.size.max.bytes", "flush.messages": "log.flush.interval.messages",
        "flush.ms": "log.flush.interval.ms", "retention.bytes": "log.retention.bytes",
        "retention.ms": "log.retention.ms", "max.message.bytes": "message.max.bytes",
        "index.interval.bytes": "log.index.interval.bytes",
        "delete.retention.ms": "log.cleaner.delete.retention.ms",
        "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
        "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
        "file.delete.delay.ms": "log.segment.delete.delay.ms",
        "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio", "cleanup.policy": "log.cleanup.policy",
        "preallocate": "log.preallocate", "message.timestamp.type": "log.message.timestamp.type",
        "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
        "local.retention.ms": "log.local.retention.ms", "local.retention.bytes": "log.local.retention.bytes",
    }  # fmt: skip
    synonyms |= {
        name: name
        for name in ("min.insync.replicas", "unclean.leader.election.enable", "compression.type", *sorted(LEVELS))
    }
    assert sorted({*synonyms} | NO_BROKER_NAME) == NAMES
    others = {
        "cleanup.policy": "compact", "compression.type": "lz4", "message.timestamp.type": "LogAppendTime",
        "min.cleanable.dirty.ratio": "0.7", "preallocate": "true", "unclean.leader.election.enable": "true",
        "compression.gzip.level": "5",
    }  # fmt: skip
    for name, broker_name in synonyms.items():
        value = others.get(name, "15")
        changed = LogConfig.from_broker_properties({broker_name: value}).to_properties()
        assert changed == LogConfig().to_properties() | {name: value}


@behaviour("CFG-017")
def test_the_limit_of_older_releases_counts_in_both_directions() -> None:
    def limits(config: LogConfig) -> tuple[int, int]:
        return config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms

    old = "message.timestamp.difference.max.ms"
    after = "message.timestamp.after.max.ms"
    assert limits(LogConfig.from_properties({old: "5"})) == (5, 5)
    assert limits(LogConfig.from_properties({old: "5", after: "7"})) == (5, 7)
    assert limits(LogConfig.from_properties({old: "5", after: "3600000"})) == (5, HOUR_MS)
    assert limits(LogConfig.from_properties({old: "5", after: str(FOREVER)})) == (5, 5)
    assert limits(LogConfig.from_properties({old: "5"}, LogConfig())) == (5, 5)
    assert limits(LogConfig.from_properties({old: "5"}, LogConfig(message_timestamp_before_max_ms=9))) == (9, 5)
    assert limits(LogConfig.from_broker_properties({f"log.{old}": "5", f"log.{after}": "6"})) == (5, 6)
    assert limits(LogConfig()) == (FOREVER, HOUR_MS)
    assert_refused(old, "-1", "x")


# -- what follows ------------------------------------------------------------------------------------------------


def test_a_compacted_topic_rolls_before_records_wait_too_long_for_the_cleaner() -> None:
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=50).max_segment_ms == 100
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=50, cleanup_policy=("compact",)).max_segment_ms == 50
    assert LogConfig(segment_ms=40, max_compaction_lag_ms=50, cleanup_policy=("compact",)).max_segment_ms == 40


def test_jitter_is_drawn_below_both_its_own_limit_and_the_age_of_a_segment() -> None:
    rng = random.Random(7)
    assert LogConfig().segment_jitter(rng) == 0
    drawn = {LogConfig(segment_jitter_ms=3).segment_jitter(rng) for _ in range(200)}
    assert drawn == {0, 1, 2}
    assert {LogConfig(segment_jitter_ms=30, segment_ms=2).segment_jitter(rng) for _ in range(200)} == {0, 1}


@pytest.mark.parametrize("source", list(Codec))
def test_the_topic_says_which_codec_is_stored(source: Codec) -> None:
    assert LogConfig().codec_for(source) is source
    assert LogConfig(compression_type="uncompressed").codec_for(source) is Codec.NONE
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        assert LogConfig(compression_type=codec.label).codec_for(source) is codec


def test_levels_count_only_where_the_topic_chose_the_codec() -> None:
    levels = {"compression_gzip_level": 2, "compression_lz4_level": 3, "compression_zstd_level": 4}
    kept, chosen = LogConfig(**levels), LogConfig(**levels, compression_type="lz4")
    assert [kept.level_for(codec) for codec in Codec] == [None] * 5
    assert [chosen.level_for(codec) for codec in Codec] == [None, 2, None, 3, 4]


def test_append_time_is_a_matter_of_the_topic() -> None:
    assert not LogConfig().uses_append_time
    assert config_of(message_timestamp_type="LogAppendTime").uses_append_time
    assert_refused("message.timestamp.type", "logappendtime", "", "-1")
