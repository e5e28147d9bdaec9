"""Tables: what is left out, and what is shortened, where there is no room for all of it."""

import re
from pathlib import Path

import pytest

from tests.cli.terminal import in_terminal
from tests.golden.corpus import RELEASE, case
from tidelog.cli import output
from tidelog.log import LogConfig, UnifiedLog
from tidelog.records import NewRecord

IMAGE = case(f"{RELEASE}/4-transactions") / "image"
COLUMNS = ("partition", "batches", "result")
ROWS = [("orders-0", "12", "equal"), ("orders-1", "7", "different " * 9)]


def test_a_column_without_a_cell_is_left_out() -> None:
    assert output.fitted(("a", "notes"), [("1", ""), ("2", "")]) == ["a", "1", "2"]
    assert output.fitted(("a", "notes"), []) == ["a  notes"]


def test_columns_go_in_their_order_until_the_rest_fits() -> None:
    wide = [("x" * 60, "12", "y" * 18)]
    assert output.fitted(COLUMNS, wide, ("batches", "result"))[1].split() == ["x" * 60, "y" * 18]


def test_a_file_has_all_columns_where_leaving_some_out_is_of_no_use() -> None:
    lines = output.fitted(COLUMNS, ROWS, ("batches",), ("result",))
    assert lines[0].split() == list(COLUMNS)
    assert lines[2].count("different") == 9


def test_in_a_terminal_texts_are_shortened_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(output, "room", lambda: 40)
    headings, one, other = output.fitted(COLUMNS, ROWS, ("batches",), ("result",))
    assert headings.split() == ["partition", "result"]
    assert one.split() == ["orders-0", "equal"]
    assert len(other.rstrip()) == 40
    assert "…" in other


@pytest.mark.parametrize("words", [("ls",), ("ls", "-l"), ("diff", "--fingerprint"), ("explain",), ("doctor",)])
def test_no_line_of_a_table_is_wider_than_the_terminal(words: tuple[str, ...], tmp_path: Path) -> None:
    topic = "orders-of-all-customers-in-europe-and-elsewhere-by-region"
    with UnifiedLog.open(tmp_path / f"{topic}-0", LogConfig()) as log:
        for number in range(30):
            log.append([NewRecord(b"key", b"v" * 100, 1_700_000_000_000 + number)])
    more = {"explain": [str(tmp_path), "--topic", topic, "--offset", "20"], "doctor": []}.get(words[0], [str(tmp_path)])
    shown = in_terminal(*words, *more, columns=80)
    drawn = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", shown.text)
    lines = [line for line in drawn.split("\n") if "━" not in line]  # a bar of progress keeps to the width by itself
    prose = (str(tmp_path), "the checksums", "tidelog: ", "kernels: ", "worker python: ", "note: ")
    assert [line for line in lines if len(line) > 80 and not line.startswith(prose)] == []
