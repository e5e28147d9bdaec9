"""A profile as one HTML file: nothing to fetch, no script, light and dark."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from tidelog import __version__
from tidelog.spark.jobs.advice import Advice, advice_for, codec_in_use
from tidelog.spark.jobs.codec_trial import BATCH_SIZES, nearest_size
from tidelog.spark.jobs.plots import Bar, columns_plot, spark_line, time_plot
from tidelog.spark.jobs.profile import Profile, TopicProfile
from tidelog.spark.jobs.profile_facts import PartitionFacts
from tidelog.spark.jobs.profile_json import METHOD, peak_and_mean
from tidelog.spark.jobs.report_style import STYLE
from tidelog.spark.jobs.sketches import Sizes
from tidelog.spark.jobs.words import batch_size, counted, duration, escape, key_text, moment, number, share, short, size
from tidelog.tables.new_file import written_beside

__all__ = ["report_html", "write_report"]

_HOT_KEYS = 12
_MOST_PARTITIONS = 64  # bars; beyond, the largest are shown
_OUTSIDE = 0.001  # of the records at either end of time that a plot leaves out, so that a wrong clock does not fill it
_TAGS = {"change": "could be better", "know": "good to know", "good": "fine"}


def write_report(profile: Profile, path: str) -> str:
    """Write the report, whole or not at all; its absolute path."""
    page = report_html(profile).encode()
    with written_beside(path, force=True) as file:
        file.write(page)
    return os.path.abspath(path)


def report_html(profile: Profile, at: datetime | None = None) -> str:
    """The page."""
    when = (at or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC")
    places = ", ".join(f'<span class="mono">{escape(path)}</span>' for path in profile.paths)
    advice = [one for topic in profile.topics for one in advice_for(topic) if one.weight == "change"]
    body = [
        f'<h1>What is in the log</h1><p class="soft">{places} &middot; {when}</p>',
        _tiles(profile),
        f'<section class="card"><h3>What could be better</h3>{_advice(advice, with_topic=True)}</section>',
        _topics(profile.topics),
        *(part for topic in profile.topics for part in _topic(topic)),
        f"<footer>Made by tidelog {escape(__version__)} on Spark. Times are UTC. Sizes are in powers of 1000, those of "
        "batches in powers of 1024.</footer>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Profile of {escape(', '.join(profile.paths))}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _tiles(profile: Profile) -> str:
    facts = [topic.facts for topic in profile.topics]
    times = [ms for one in facts for ms in (one.first_ms, one.last_ms) if ms is not None]
    stored, plain = sum(one.stored for one in facts), sum(one.plain for one in facts)
    tiles = [
        (number(len(facts)), "topic" if len(facts) == 1 else "topics"),
        (number(sum(len(topic.partitions) for topic in profile.topics)), "partitions"),
        (number(sum(one.records for one in facts)), "records"),
        (size(stored), "stored"),
        (size(plain), "keys and values"),
        (duration(max(times) - min(times)) if times else "-", "from first to last"),
    ]
    drawn = (f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for value, name in tiles)
    return f'<div class="tiles">{"".join(drawn)}</div>'


def _advice(advice: Sequence[Advice], *, with_topic: bool = False) -> str:
    if not advice:
        return '<p class="soft">Nothing stands out.</p>'
    items = []
    for one in advice:
        name = f'<a href="#{_anchor(one.topic)}">{escape(one.topic)}</a>: ' if with_topic else ""
        tag = one.subject if with_topic else f"{one.subject} ({_TAGS[one.weight]})"
        items.append(f'<li class="{one.weight}"><span class="tag">{escape(tag)}</span>{name}{_prose(one.text)}</li>')
    return f'<ul class="advice">{"".join(items)}</ul>'


def _prose(text: str) -> str:
    """A sentence, in which commands stand between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _topics(topics: Sequence[TopicProfile]) -> str:
    rows = []
    for topic in topics:
        facts = topic.facts
        peak, _ = peak_and_mean(facts.times)
        shown, _ = _in_time(facts)
        line = spark_line([(at, n) for at, n, _ in shown], facts.times.moment_ms, "rate over time") if shown else ""
        cells = [
            f'<td class="topic"><a href="#{_anchor(topic.name)}">{escape(topic.name)}</a></td>',
            *_numbers(
                number(len(topic.partitions)), number(facts.records), size(facts.stored), size(facts.sizes.mean),
                number(facts.distinct_keys), f"{short(peak)}/s",
            ),
            f"<td>{escape(codec_in_use(facts))}</td><td>{line}</td>",
        ]  # fmt: skip
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = (
        "topic",
        "*partitions",
        "*records",
        "*stored",
        "*mean record",
        "*keys",
        "*peak",
        "codec",
        "records over time",
    )
    return f'<h2>Topics</h2><div class="card scroll">{_table(heads, rows)}</div>'


def _topic(topic: TopicProfile) -> Iterator[str]:
    facts = topic.facts
    yield f'<h2 id="{_anchor(topic.name)}">{escape(topic.name)}</h2>'
    if not facts.records:
        yield '<p class="soft">There are no records.</p>'
        return
    yield (
        f'<p class="soft">{counted(facts.records, "record")} in {counted(len(topic.partitions), "partition")}, '
        f"{size(facts.stored)} stored for {size(facts.plain)} of keys and values; "
        f"{moment(facts.first_ms)} to {moment(facts.last_ms)}</p>"
    )
    yield f'<div class="card">{_advice(advice_for(topic))}</div><div class="grid">'
    yield from _over_time(facts)
    yield _histogram("Sizes of records", facts.sizes, size, "a", _size_words(facts))
    yield _histogram("Records in a batch", facts.batch_records, short, "c", _batch_words(facts))
    yield _partitions(topic)
    yield _hot_keys(facts)
    yield _codecs(facts)
    yield "</div>"


# -- cards -------------------------------------------------------------------------------------------------------------


def _card(title: str, body: str, caption: str = "", kind: str = "") -> str:
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f'<figure class="card {kind}"><h3>{escape(title)}</h3>{body}{below}</figure>'


def _in_time(facts: PartitionFacts) -> tuple[list[tuple[int, int, int]], int]:
    """The moments to show, and how many records lie in those that are not: far off, because of a wrong clock."""
    moments = facts.times.moments()
    total = sum(records for _, records, _ in moments)
    first, last = 0, len(moments)
    dropped = cut = 0
    for side in (1, -1):
        cut = 0
        for _, records, _ in moments[::side]:
            if cut + records > _OUTSIDE * total:
                break
            cut += records
            first, last = (first + 1, last) if side == 1 else (first, last - 1)
        dropped += cut
    span = moments[-1][0] - moments[0][0] if moments else 0
    kept = moments[first:last]
    if not kept or span < 3 * max(kept[-1][0] - kept[0][0], facts.times.moment_ms):
        return moments, 0  # nothing is far off
    return kept, dropped


def _over_time(facts: PartitionFacts) -> Iterator[str]:
    shown, dropped = _in_time(facts)
    if not shown:
        return
    peak, mean = peak_and_mean(facts.times)
    step = facts.times.moment_ms
    note = f"Mean {short(mean)}/s, busiest {duration(step)} {short(peak)}/s."
    if dropped:
        note += f" {number(dropped)} records lie far outside this time and are not drawn."
    rates = [(at, float(records)) for at, records, _ in shown]
    yield _card("Records a second", time_plot(rates, step, short, "records a second over time"), note)
    sizes = [(at, float(amount)) for at, _, amount in shown]
    late = f"{share(facts.late_records / facts.records)} of the records are late." if facts.late_records else ""
    yield _card(
        "Bytes a second", time_plot(sizes, step, size, "bytes a second over time", "b"), f"Keys and values. {late}"
    )


def _histogram(title: str, sizes: Sizes, words: Callable[[float], str], colour: str, caption: str) -> str:
    bars = [
        Bar(words(begin), count, f"{words(begin)} to {words(end)}: {number(count)} ({share(count / sizes.count)})")
        for begin, end, count in sizes.classes()
    ]
    return _card(title, columns_plot(bars, short, title, colour), caption)


def _size_words(facts: PartitionFacts) -> str:
    sizes = facts.sizes
    return (
        f"Key and value. Mean {size(sizes.mean)}; half have at most about {size(sizes.percentile(0.5))}, 99 % at most "
        f"about {size(sizes.percentile(0.99))}; the largest {size(sizes.largest)}. "
        f"{number(facts.null_keys)} without a key, {number(facts.null_values)} without a value."
    )


def _batch_words(facts: PartitionFacts) -> str:
    return (
        f"{counted(facts.batch_sizes.count, 'batch')} of {counted(round(facts.batch_records.mean), 'record')} and "
        f"{size(facts.batch_sizes.mean)} on average, the largest {size(facts.batch_sizes.largest)}."
    )


def _partitions(topic: TopicProfile) -> str:
    those = list(topic.partitions.items())
    caption = ""
    if len(those) > _MOST_PARTITIONS:
        those = sorted(those, key=lambda pair: -pair[1].records)[:_MOST_PARTITIONS]
        caption = f"The {_MOST_PARTITIONS} largest of {number(len(topic.partitions))}, the largest first."
    bars = [
        Bar(
            str(each), one.records,
            f"partition {each}: {number(one.records)} records, {size(one.stored)}, offsets {one.first_offset} to "
            f"{one.last_offset}",
        )
        for each, one in those
    ]  # fmt: skip
    return _card("Records in each partition", columns_plot(bars, short, "records by partition", "a"), caption)


def _hot_keys(facts: PartitionFacts) -> str:
    keyed = facts.records - facts.null_keys
    top = list(facts.keys.top(_HOT_KEYS))
    if not keyed or not top:
        return _card("Keys", '<p class="soft">No record has a key.</p>')
    most = top[0][1]
    rows = []
    for key, records, amount in top:
        hot = ' class="hot"' if records / keyed >= 0.1 else ""
        rows.append(
            f'<tr><td class="key mono" title="{escape(key_text(key))}">{escape(key_text(key))}</td>'
            f'<td><span class="track"><i{hot} style="width:{100 * records / most:.0f}%"></i></span></td>'
            f"{''.join(_numbers(number(records), share(records / keyed), size(amount)))}</tr>"
        )
    known = "" if facts.keys.is_exact else "about "
    caption = f"{known}{number(facts.distinct_keys)} different keys. "
    caption += (
        "All of them were counted."
        if facts.keys.is_exact
        else f"By a {METHOD}: a count may be too small by up to {number(facts.keys.error)}."
    )
    return _card("Hot keys", f'<div class="scroll">{_table(("key", "", "*records", "*share", "*bytes"), rows)}</div>',
                 caption[:1].upper() + caption[1:])  # fmt: skip


def _codecs(facts: PartitionFacts) -> str:
    trial = facts.trial
    if not trial.measured:
        return ""
    mean = facts.plain / max(facts.batch_sizes.count, 1)
    nearest = nearest_size(mean)
    best = min(trial.measured.values(), key=lambda one: one.size).size
    rows = []
    for codec in dict.fromkeys(name for name, _ in trial.measured):
        cells = []
        for batch in BATCH_SIZES:
            one = trial.measured[codec, batch]
            ratio = one.size / trial.plain
            marks = (
                f"{' now' if codec == facts.codec and batch == nearest else ''}{' best' if one.size == best else ''}"
            )
            how = max(0, min(60, round(60 * (1 - ratio))))
            cells.append(f'<td class="cell{marks}" style="--how:{how}%">{share(ratio)}</td>')
        at = trial.measured[codec, nearest]
        speeds = _numbers(*(f"{trial.plain / 1e6 / max(s, 1e-9):,.0f} MB/s" for s in (at.write_s, at.read_s)))
        rows.append(f"<tr><td>{escape(codec)}</td>{''.join(cells)}{''.join(speeds)}</tr>")
    heads = ("codec", *(f"*batches of {batch_size(batch)}" for batch in BATCH_SIZES), "*written at", "*read at")
    caption = (
        f"Bytes stored for a byte of keys and values, measured on {number(trial.records)} records "
        f"({size(trial.plain)}). Framed: the codec that has the most bytes now, and about its batches; bold: the "
        f"fewest bytes. Speeds in batches of {batch_size(nearest)}, on one core. "
        f"Now it is {share(facts.stored / max(facts.plain, 1))}."
    )
    return _card(
        "Codecs and batch sizes, measured", f'<div class="scroll">{_table(heads, rows)}</div>', caption, "wide"
    )


# -- parts -------------------------------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    cells = "".join(f'<th class="n">{h[1:]}</th>' if h.startswith("*") else f"<th>{h}</th>" for h in heads)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _numbers(*cells: str) -> list[str]:
    return [f'<td class="n">{cell}</td>' for cell in cells]


def _anchor(topic: str) -> str:
    return f"topic-{escape(topic)}"  # names of topics have letters, digits, dots, underscores and dashes only
