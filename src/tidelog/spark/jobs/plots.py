"""Small plots as SVG, drawn by hand: no script, no font, nothing to fetch. Colours are those of the page around them.

Every mark carries a <title>, which browsers show under the pointer and screen readers read.
"""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from tidelog.spark.jobs.words import escape

__all__ = ["Bar", "columns_plot", "spark_line", "time_plot"]

_WIDTH, _HEIGHT = 640, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 10, 12, 26
_TIME_STEPS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600,
    2592000, 7776000, 31536000,
)  # fmt: skip
_DAY_MS = 86_400_000
_CLOCKS = ((600_000, "%H:%M:%S"), (2 * _DAY_MS, "%H:%M"), (300 * _DAY_MS, "%b %d"), (math.inf, "%Y-%m"))
_ROUND = (1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_MOST_COLUMNS = 160


class Bar(NamedTuple):
    """A bar: what stands below it, how high it is, what is said of it."""

    label: str
    value: float
    title: str


def columns_plot(bars: Sequence[Bar], unit: Callable[[float], str], name: str, colour: str = "a") -> str:
    """Bars beside each other, as many as there are classes; only as many labels as there is room for."""
    frame = _Frame(max((bar.value for bar in bars), default=0), unit)
    step = frame.width / max(len(bars), 1)
    every = max(math.ceil(len(bars) / 9), 1)
    parts = []
    for number, bar in enumerate(bars):
        x, y = _LEFT + number * step, frame.y(bar.value)
        parts.append(
            f'<rect class="{colour}" x="{x + step * 0.08:.1f}" y="{y:.1f}" width="{step * 0.84:.1f}" '
            f'height="{max(frame.floor - y, 1 if bar.value else 0):.1f}" rx="1.5">'
            f"<title>{escape(bar.title)}</title></rect>"
        )
        if number % every == 0:
            parts.append(_label(x + step / 2, bar.label))
    return frame.drawn(parts, name)


def time_plot(
    moments: Sequence[tuple[int, float]], moment_ms: int, unit: Callable[[float], str], name: str, colour: str = "a"
) -> str:
    """Amounts over time, as rates per second: an area. A stretch without any is at the bottom."""
    columns = _per_second(moments, moment_ms)
    frame = _Frame(max((rate for _, _, rate in columns), default=0), unit)
    begin, end = columns[0][0], columns[-1][1]

    def x_of(ms: int) -> float:
        return _LEFT + (ms - begin) / max(end - begin, 1) * frame.width

    points, marks = [f"{_LEFT:.1f},{frame.floor:.1f}"], []
    for start, stop, rate in columns:
        y = frame.y(rate)
        points += [f"{x_of(start):.1f},{y:.1f}", f"{x_of(stop):.1f},{y:.1f}"]
        marks.append(
            f'<rect class="hit" x="{x_of(start):.1f}" y="{_TOP}" width="{max(x_of(stop) - x_of(start), 0.5):.1f}" '
            f'height="{frame.floor - _TOP}"><title>{_clock(start, end - begin)}: {escape(unit(rate))}/s</title></rect>'
        )
    points.append(f"{x_of(end):.1f},{frame.floor:.1f}")
    ticks = (ms for ms in _ticks(begin, end) if _LEFT + 24 < x_of(ms) < _WIDTH - 30)
    labels = [_label(x_of(ms), _clock(ms, end - begin)) for ms in ticks]
    return frame.drawn([f'<polygon class="{colour} area" points="{" ".join(points)}"/>', *labels, *marks], name)


def spark_line(moments: Sequence[tuple[int, float]], moment_ms: int, name: str) -> str:
    """The same in the space of a word."""
    columns = _per_second(moments, moment_ms)
    begin, end = columns[0][0], columns[-1][1]
    top = max(rate for _, _, rate in columns) or 1
    points = ["0,24"]
    for start, stop, rate in columns:
        y = 23 - 21 * rate / top
        points += [f"{120 * (ms - begin) / max(end - begin, 1):.1f},{y:.1f}" for ms in (start, stop)]
    return (
        f'<svg class="spark" viewBox="0 0 120 24" role="img" aria-label="{escape(name)}">'
        f'<polygon class="a area" points="{" ".join([*points, "120,24"])}"/></svg>'
    )


def _label(x: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(text)}</text>'


class _Frame:
    """The axes of a plot."""

    def __init__(self, largest: float, unit: Callable[[float], str]) -> None:
        self.top = _nice(largest)
        self.width = _WIDTH - _LEFT - _RIGHT
        self.floor = _HEIGHT - _BOTTOM
        self._unit = unit

    def y(self, value: float) -> float:
        """Where a value stands."""
        return self.floor - (self.floor - _TOP) * value / self.top

    def drawn(self, parts: Sequence[str], name: str) -> str:
        """The plot."""
        lines = []
        for part in (0.0, 0.5, 1.0):
            y = self.y(self.top * part)
            lines.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            lines.append(
                f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(self._unit(self.top * part))}</text>'
            )
        return (
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(name)}">'
            f"{''.join(lines)}{''.join(parts)}</svg>"
        )


def _nice(value: float) -> float:
    """A round number not below another."""
    if value <= 0:
        return 1.0
    power = math.pow(10, math.floor(math.log10(value)))
    return next((step * power for step in _ROUND if step * power >= value), 10 * power)


def _per_second(moments: Sequence[tuple[int, float]], moment_ms: int) -> list[tuple[int, int, float]]:
    """Begin, end and rate of columns, without holes, not more than there is room for."""
    begin, end = moments[0][0], moments[-1][0] + moment_ms
    steps = (end - begin) // moment_ms
    width = math.ceil(steps / _MOST_COLUMNS) * moment_ms
    sums = [0.0] * math.ceil((end - begin) / width)
    for ms, amount in moments:
        sums[(ms - begin) // width] += amount
    found = []
    for number, amount in enumerate(sums):
        start, stop = begin + number * width, min(begin + (number + 1) * width, end)
        found.append((start, stop, amount * 1000 / (stop - start)))
    return found


def _ticks(begin: int, end: int) -> list[int]:
    """Round moments between two."""
    wanted = (end - begin) / 1000 / 5
    step = next((step for step in _TIME_STEPS_S if step >= wanted), _TIME_STEPS_S[-1]) * 1000
    first = -(-begin // step) * step
    return list(range(first, end, step))[:12]


def _clock(ms: int, span_ms: int) -> str:
    """A moment, as exactly as it matters over such a span."""
    form = next(form for longest, form in _CLOCKS if span_ms < longest)
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return str(ms)
