"""A profile for programs: plain numbers."""

from typing import Any

from tidelog.spark.jobs.advice import advice_for
from tidelog.spark.jobs.profile import Profile, TopicProfile
from tidelog.spark.jobs.profile_facts import PartitionFacts
from tidelog.spark.jobs.sketches import Sizes, TimeLine
from tidelog.spark.jobs.words import key_text

__all__ = ["HOT_KEYS", "METHOD", "peak_and_mean", "profile_dict"]

HOT_KEYS = 20
METHOD = "Misra-Gries summary of 4,096 keys"


def profile_dict(profile: Profile) -> dict[str, Any]:
    """The whole profile."""
    return {
        "paths": list(profile.paths),
        "records": sum(topic.facts.records for topic in profile.topics),
        "stored_bytes": sum(topic.facts.stored for topic in profile.topics),
        "topics": [_topic(topic) for topic in profile.topics],
    }


def _topic(topic: TopicProfile) -> dict[str, Any]:
    facts = topic.facts
    return {
        "topic": topic.name,
        **_counts(facts),
        "partitions": [{"partition": number, **_counts(one)} for number, one in topic.partitions.items()],
        "keys": _keys(facts),
        "rates": _rates(facts.times),
        "record_sizes": _sizes(facts.sizes),
        "batches": {
            "count": facts.batch_sizes.count,
            "control": facts.control_batches,
            "sizes": _sizes(facts.batch_sizes),
            "records": _sizes(facts.batch_records),
        },
        "codecs": {
            codec: {"batches": use.batches, "records": use.records, "bytes": use.size}
            for codec, use in facts.codecs.items()
        },
        "trial": _trial(facts),
        "value_kinds": dict(facts.kinds),
        "advice": [{"weight": one.weight, "subject": one.subject, "text": one.text} for one in advice_for(topic)],
        "damage": facts.damage,
    }


def _counts(facts: PartitionFacts) -> dict[str, Any]:
    return {
        "records": facts.records,
        "stored_bytes": facts.stored,
        "key_bytes": facts.key_bytes,
        "value_bytes": facts.value_bytes,
        "null_keys": facts.null_keys,
        "null_values": facts.null_values,
        "first_offset": facts.first_offset,
        "last_offset": facts.last_offset,
        "first_timestamp_ms": facts.first_ms,
        "last_timestamp_ms": facts.last_ms,
        "without_timestamp": facts.untimed,
        "late_records": facts.late_records,
        "latest_by_ms": facts.latest_by_ms,
        "misplaced": facts.misplaced,
    }


def _keys(facts: PartitionFacts) -> dict[str, Any]:
    return {
        "distinct": facts.distinct_keys,
        "is_exact": facts.keys.is_exact,
        "method": METHOD,
        "error": facts.keys.error,  # records that a count may be too small by
        "top": [
            {"key": key_text(key), "key_hex": key.hex(), "records": records, "bytes": size}
            for key, records, size in facts.keys.top(HOT_KEYS)
        ],
    }


def _rates(times: TimeLine) -> dict[str, Any]:
    moments = times.moments()
    peak, mean = peak_and_mean(times)
    return {
        "moment_ms": times.moment_ms,
        "mean_records_per_s": mean,
        "peak_records_per_s": peak,
        "moments": [{"timestamp_ms": at, "records": records, "bytes": size} for at, records, size in moments],
    }


def peak_and_mean(times: TimeLine) -> tuple[float, float]:
    """Records per second: in the busiest moment, and from the first moment to the last."""
    moments = times.moments()
    if not moments:
        return 0.0, 0.0
    seconds = times.moment_ms / 1000
    span = (moments[-1][0] - moments[0][0]) / 1000 + seconds
    return max(records for _, records, _ in moments) / seconds, sum(records for _, records, _ in moments) / span


def _sizes(sizes: Sizes) -> dict[str, Any]:
    return {
        "mean": round(sizes.mean, 1),
        "smallest": sizes.smallest,
        "p50": sizes.percentile(0.5),
        "p95": sizes.percentile(0.95),
        "p99": sizes.percentile(0.99),
        "largest": sizes.largest,
        "histogram": [{"from": begin, "count": count} for begin, count in sizes.octaves()],
    }


def _trial(facts: PartitionFacts) -> dict[str, Any]:
    trial = facts.trial
    mb = trial.plain / 1e6
    return {
        "records": trial.records,
        "plain_bytes": trial.plain,
        "measured": [
            {
                "codec": codec,
                "batch_size": batch_size,
                "bytes": one.size,
                "write_mb_per_s": round(mb / max(one.write_s, 1e-9), 1),
                "read_mb_per_s": round(mb / max(one.read_s, 1e-9), 1),
            }
            for (codec, batch_size), one in trial.measured.items()
        ],
    }
