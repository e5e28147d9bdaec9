"""The report of `tidelog spark profile` in a real browser: wide and narrow, light and dark."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.browser import Browser, missing
from tests.spark.logs import START_MS, record, write
from tidelog.records import NewRecord
from tidelog.spark.jobs.profile import profile
from tidelog.spark.jobs.report import write_report

# What a page looks like: its width, its colours, and its plots, with labels that leave their card or are too small. A
# table that is too wide slides in a box of its own.
LOOK = """(() => {
  const box = each => { const b = each.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; };
  const root = document.documentElement;
  return {
    title: document.title,
    plots: [...document.querySelectorAll("svg")].map(svg => ({
      box: box(svg),
      drawn: [...svg.querySelectorAll("rect, polygon, polyline, path, circle")].filter(each => {
        const b = each.getBoundingClientRect(), style = getComputedStyle(each);
        return b.width > 0 && b.height > 0 && style.visibility === "visible"
          && (style.fill !== "none" && style.fill !== "rgba(0, 0, 0, 0)" || style.stroke !== "none");
      }).length,
      unreadable: [...svg.querySelectorAll("text")].filter(each => {
        const b = each.getBoundingClientRect(), around = svg.closest("figure").getBoundingClientRect();
        return b.left < around.left || b.right > around.right || b.height < 9;
      }).map(each => each.textContent),
      slides: svg.closest(".scroll") !== null,
    })),
    width: root.scrollWidth, window: root.clientWidth,
    ink: getComputedStyle(document.body).color, paper: getComputedStyle(document.body).backgroundColor,
  };
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    reason = missing()
    if reason is not None:
        if os.environ.get("TIDELOG_REQUIRE_BROWSER") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def report(spark: SparkSession, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of three topics: with a long name and long keys, with nothing in it, and an ordinary one."""
    place = tmp_path_factory.mktemp("report")
    logs = place / "logs"
    write(logs, "orders", 0, (record(number) for number in range(900)), segment_bytes=20_000)
    write(logs, "orders", 1, (record(number) for number in range(300)))
    long = "a-topic-whose-name-is-" + "long-" * 30
    keys = (b"a key of " + b"many words " * 12, b"<script>alert(1)</script>", b"\x00\xff" * 60, b"x" * 200)
    some = (NewRecord(keys[n % 4], b"v" * n, START_MS + 9_000 * n, ()) for n in range(200))
    write(logs, long, 0, some)
    write(logs, "empty", 0, [])
    return Path(write_report(profile(spark, logs), str(place / "report.html")))


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 700, 400])
def test_the_report_is_drawn_and_fits(browser: Browser, report: Path, width: int, is_dark: bool) -> None:
    seen = browser.look(report, width=width, is_dark=is_dark, ask=LOOK)
    assert seen.complaints == []
    assert seen.requests == []
    page: dict[str, Any] = seen.answer
    assert page["window"] == width
    assert page["width"] <= width, "the page scrolls to the side"
    assert len(page["plots"]) >= 10
    for plot in page["plots"]:
        left, _, wide, high = plot["box"]
        assert wide > 100
        assert high > 20
        assert left >= 0
        assert left + wide <= width or (plot["slides"] and width < 1200)
        assert plot["drawn"] > 0
        assert plot["unreadable"] == []
    assert is_dark == (_brightness(page["paper"]) < _brightness(page["ink"]))
    assert abs(_brightness(page["paper"]) - _brightness(page["ink"])) > 120
    keep = os.environ.get("TIDELOG_KEEP_PICTURES")
    if keep:
        Path(keep, f"report-{width}-{'dark' if is_dark else 'light'}.png").write_bytes(seen.picture)


def _brightness(colour: str) -> float:
    red, green, blue = (float(part) for part in colour.partition("(")[2].rstrip(")").split(",")[:3])
    return 0.3 * red + 0.6 * green + 0.1 * blue


def test_the_browser_tells_of_complaints_and_requests(browser: Browser, tmp_path: Path) -> None:
    """So that the silence of the report means something."""
    page = tmp_path / "page.html"
    page.write_text(
        "<title>bad</title><img src='http://127.0.0.1:9/x.png'><script>console.log('hm'); nothing.at.all</script>"
        "<div style='width:900px'>wide</div>"
    )
    seen = browser.look(page, width=400, ask=LOOK)
    assert seen.requests == ["http://127.0.0.1:9/x.png"]
    assert any("hm" in each for each in seen.complaints)
    assert any("nothing is not defined" in each for each in seen.complaints)
    assert seen.answer["width"] > 400
