"""What follows from a profile: sentences for people, each with the numbers it rests on."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from tidelog.spark.jobs.codec_trial import CodecTrial, nearest_size
from tidelog.spark.jobs.profile import TopicProfile
from tidelog.spark.jobs.profile_facts import PartitionFacts
from tidelog.spark.jobs.words import batch_size as size_of_batch
from tidelog.spark.jobs.words import counted, duration, key_text, number, share, size

__all__ = ["Advice", "CodecChoice", "advice_for", "choose_codec", "codec_in_use"]

Weight = Literal["change", "know", "good"]

_WORTH_IT = 0.10  # a tenth of the bytes
_ALMOST_ALL = 0.95
_SMALL_BATCH = 8_000
_HEADER = 61
_SKEW = 1.5
_ABOUT_THE_SAME = 1.2
_HOT_SHARE = 0.10
_ONE_OF_TWO = 0.5
_LARGE_RECORD = 1_000_000


class Advice(NamedTuple):
    """One conclusion."""

    topic: str
    weight: Weight
    subject: str
    text: str


class CodecChoice(NamedTuple):
    """What a topic would take with the best codec, by measurement: as a share of what it takes now."""

    codec: str
    batch_size: int
    share_of_now: float
    write_mb_s: float
    read_mb_s: float


def advice_for(topic: TopicProfile) -> list[Advice]:
    """What follows for a topic, what is to be changed first."""
    if not topic.facts.records:
        return [Advice(topic.name, "know", "empty", "There are no records.")]
    rules = (_damage, _codec, _batches, _skew, _hot_key, _partitioner, _compaction, _lateness, _large, _values)
    found = [one for rule in rules for one in rule(topic)]
    order = ("change", "know", "good")
    return sorted(found, key=lambda one: order.index(one.weight))


def choose_codec(facts: PartitionFacts) -> CodecChoice | None:
    """The codec that takes the fewest bytes with batches of the present size; None if nothing was measured."""
    trial = facts.trial
    if not trial.measured or not trial.plain or not facts.plain:
        return None
    batch = _plain_batch(facts)
    codec = min((name for name, _ in trial.measured), key=lambda name: trial.of(name, batch).size)
    return _choice(facts, codec, batch)


def _choice(facts: PartitionFacts, codec: str, batch: int) -> CodecChoice:
    trial = facts.trial
    one = trial.of(codec, batch)
    now = facts.stored / facts.plain  # bytes on the disk for a byte of keys and values
    mb = trial.plain / 1e6
    return CodecChoice(
        codec,
        nearest_size(batch),
        one.size / trial.plain / now,
        mb / max(one.write_s, 1e-9),
        mb / max(one.read_s, 1e-9),
    )


def _plain_batch(facts: PartitionFacts) -> int:
    """Bytes of a batch before compression, on average."""
    return int(facts.plain / max(facts.batch_sizes.count, 1)) + _HEADER


# -- rules -------------------------------------------------------------------------------------------------------------


def _codec(topic: TopicProfile) -> Iterator[Advice]:
    facts = topic.facts
    best = choose_codec(facts)
    if best is None:
        return
    fast = _choice(facts, "lz4", _plain_batch(facts))
    saved = 1 - best.share_of_now
    basis = f"measured on {size(facts.trial.plain)} of its records in batches of {size_of_batch(best.batch_size)}"
    if saved < _WORTH_IT:
        yield Advice(
            topic.name, "good", "codec",
            f"Stored with {_codecs_of(facts)}; no codec would save a tenth ({best.codec}: {_saving(best)}), {basis}.",
        )  # fmt: skip
        return
    text = (
        f"{best.codec} instead of {_codecs_of(facts)} would take {share(best.share_of_now)} of the present "
        f"{size(facts.stored)}, which saves {size(facts.stored * saved)}. It compresses {best.write_mb_s:,.0f} MB/s "
        f"and is read at {best.read_mb_s:,.0f} MB/s on one core"
    )
    if best.codec != "lz4" and fast.share_of_now < 1 - _WORTH_IT:
        text += f"; lz4 would take {share(fast.share_of_now)} at {fast.write_mb_s:,.0f} MB/s"
    yield Advice(topic.name, "change", "codec", f"{text}; {basis}.")


def codec_in_use(facts: PartitionFacts) -> str:
    """The codec that holds almost all bytes, or `mixed`; a dash if there are none."""
    used = _shares_of_codecs(facts)
    if not used:
        return "-"
    return used[0][1] if used[0][0] >= _ALMOST_ALL else "mixed"


def _codecs_of(facts: PartitionFacts) -> str:
    """The codec that is used, or those that are, with the shares of their bytes."""
    used = _shares_of_codecs(facts)
    if used[0][0] >= _ALMOST_ALL:
        return used[0][1]
    return f"a mix ({', '.join(f'{name} {share(part)}' for part, name in used)})"


def _shares_of_codecs(facts: PartitionFacts) -> list[tuple[float, str]]:
    """The codecs with their shares of the bytes, the largest first."""
    total = sum(use.size for use in facts.codecs.values()) or 1
    return sorted(((use.size / total, name) for name, use in facts.codecs.items()), reverse=True)


def _saving(choice: CodecChoice) -> str:
    return f"{share(abs(1 - choice.share_of_now))} {'less' if choice.share_of_now < 1 else 'more'}"


def _batches(topic: TopicProfile) -> Iterator[Advice]:
    facts = topic.facts
    batches = facts.batch_sizes.count
    if not batches:
        return
    plain = _plain_batch(facts)
    headers = _HEADER * batches / max(facts.stored, 1)
    records = counted(round(facts.batch_records.mean), "record")
    described = f"A batch holds {records}, {size(facts.batch_sizes.mean)} stored"
    gain = _gain_of_larger(facts.trial, plain)
    if plain >= _SMALL_BATCH or (headers < 0.02 and gain < _WORTH_IT):
        yield Advice(topic.name, "good", "batches", f"{described}: headers take {share(headers)} of the bytes.")
        return
    text = f"{described}: headers alone take {share(headers)} of the bytes"
    if gain >= _WORTH_IT:
        text += f", and in batches of 64 KiB the same records with zstd would take {share(gain)} less than in these"
    yield Advice(
        topic.name, "change", "batches",
        f"{text}. Let producers wait for more: linger.ms, and batch.size (16384 by default).",
    )  # fmt: skip


def _gain_of_larger(trial: CodecTrial, plain: int) -> float:
    """What batches of 64 KiB would save, with zstd."""
    if not trial.measured:
        return 0.0
    now, larger = trial.of("zstd", plain).size, trial.of("zstd", 1 << 16).size
    return 1 - larger / now if now else 0.0


def _skew(topic: TopicProfile) -> Iterator[Advice]:
    sizes = {number: facts.records for number, facts in topic.partitions.items()}
    total = sum(sizes.values())
    if len(sizes) < 2 or not total:
        return
    times = {each: records * len(sizes) / total for each, records in sizes.items()}  # the average
    most, least = max(times, key=lambda each: times[each]), min(times, key=lambda each: times[each])
    if times[most] >= _SKEW:
        yield Advice(
            topic.name, "change", "skew",
            f"Partition {most} has {times[most]:.1f} times the records of an average one "
            f"({number(sizes[most])} of {number(total)}): whoever reads it is done last.",
        )  # fmt: skip
    elif times[most] >= _ABOUT_THE_SAME or times[least] <= 1 / _ABOUT_THE_SAME:
        yield Advice(
            topic.name, "good", "skew",
            f"The partitions have from {number(sizes[least])} to {number(sizes[most])} records, "
            f"{times[least]:.2f} to {times[most]:.2f} times the average.",
        )  # fmt: skip
    else:
        yield Advice(topic.name, "good", "skew", "The partitions have about as many records each.")


def _hot_key(topic: TopicProfile) -> Iterator[Advice]:
    facts = topic.facts
    keyed = facts.records - facts.null_keys
    top = next(facts.keys.top(1), None)
    if top is None or not keyed:
        return
    key, records, _ = top
    if records / keyed >= _HOT_SHARE and facts.distinct_keys > 1:
        at_least = "" if facts.keys.is_exact else "at least "
        yield Advice(
            topic.name, "change" if len(topic.partitions) > 1 else "know", "hot key",
            f"The key {key_text(key)} has {at_least}{share(records / keyed)} of the keyed records: all of them are in "
            "one partition, and in one task of a job that groups by key.",
        )  # fmt: skip


def _partitioner(topic: TopicProfile) -> Iterator[Advice]:
    facts = topic.facts
    keyed = facts.records - facts.null_keys
    if not keyed or len(topic.partitions) < 2 or not topic.is_whole:
        return
    if facts.misplaced:
        yield Advice(
            topic.name, "know", "partitioner",
            f"{share(facts.misplaced / keyed)} of the keyed records are not where Kafka's default partitioner puts "
            f"them among {len(topic.partitions)} partitions: partitions were added, or producers choose otherwise, as "
            "librdkafka does. Looking a key up in one partition would miss records.",
        )  # fmt: skip
    else:
        yield Advice(topic.name, "good", "partitioner", "Every key is where Kafka's default partitioner puts it.")


def _compaction(topic: TopicProfile) -> Iterator[Advice]:
    facts = topic.facts
    if facts.null_keys or not facts.records:
        if facts.null_keys == facts.records:
            yield Advice(topic.name, "know", "keys", "No record has a key.")
        return
    kept = facts.distinct_keys / facts.records
    if kept < _ONE_OF_TWO:
        about = "" if facts.keys.is_exact else "about "
        yield Advice(
            topic.name, "know", "compaction",
            f"{counted(facts.records, 'record')} have {about}{counted(facts.distinct_keys, 'key')}. If only the last "
            f"of a key matters, compaction keeps {share(kept)} of them; in the log directory of a broker that is "
            "stopped, `tidelog compact --dry-run` counts it exactly.",
        )  # fmt: skip


def _lateness(topic: TopicProfile) -> Iterator[Advice]:
    facts = topic.facts
    if facts.untimed:
        yield Advice(topic.name, "know", "times", f"{number(facts.untimed)} records have no time.")
    if facts.late_records:
        yield Advice(
            topic.name, "know", "lateness",
            f"{share(facts.late_records / facts.records)} of the records are older than one before them, by up to "
            f"{duration(facts.latest_by_ms)}: a stream needs withWatermark(\"timestamp\", \"{_watermark(facts)}\") to "
            "drop none.",
        )  # fmt: skip


def _watermark(facts: PartitionFacts) -> str:
    seconds = -(-facts.latest_by_ms // 1000)
    return f"{seconds} seconds" if seconds < 600 else f"{-(-seconds // 60)} minutes"


def _large(topic: TopicProfile) -> Iterator[Advice]:
    largest = topic.facts.sizes.largest
    if largest >= _LARGE_RECORD:
        yield Advice(
            topic.name, "know", "large records",
            f"The largest record has {size(largest)}: max.message.bytes, max.partition.fetch.bytes and the memory of "
            "whoever reads have to allow for it.",
        )  # fmt: skip


def _values(topic: TopicProfile) -> Iterator[Advice]:
    kinds = topic.facts.kinds
    seen = sum(count for kind, count in kinds.items() if kind not in ("null", "empty"))
    if not seen:
        return
    kind, count = max(((k, c) for k, c in kinds.items() if k not in ("null", "empty")), key=lambda pair: pair[1])
    mostly = "are" if count == seen else f"are mostly ({share(count / seen)})"
    hint = {
        "json": "JSON: `tidelog spark export --value json --schema …` makes columns of them",
        "text": "text: `tidelog spark export --value string` writes them as such",
        "bytes": "bytes of some other format",
    }.get(kind, f"of a {kind}")
    yield Advice(topic.name, "know", "values", f"Values {mostly} {hint}.")


def _damage(topic: TopicProfile) -> Iterator[Advice]:
    if topic.facts.damage:
        yield Advice(
            topic.name, "change", "damage",
            f"Some batches cannot be read, and are not counted: {topic.facts.damage[0]}. Run tidelog fsck.",
        )  # fmt: skip
