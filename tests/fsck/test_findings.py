"""The codes of findings: one table, and the page that prints it."""

import re
from pathlib import Path

from tidelog.fsck.findings import CODES

PAGE = Path(__file__).parents[2] / "docs" / "fsck.md"


def table() -> str:
    """The codes as a table in Markdown."""
    rows = [f"| `{name}` | {code.severity} | {code.meaning} | {code.remedy} |" for name, code in CODES.items()]
    return "\n".join(["| Code | Severity | Meaning | What to do |", "|---|---|---|---|", *rows])


def test_the_page_lists_every_code() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


def test_a_code_is_a_kind_of_file_and_a_word() -> None:
    assert [name for name in CODES if not re.fullmatch(r"[A-Z]{3,4}(-[A-Z]+){1,2}", name)] == []


def test_every_code_that_the_source_notes_is_in_the_table_and_the_other_way_round() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in _package().glob("*.py") if path.stem != "findings")
    noted = set(re.findall(r'"((?:LOG|SEG|IDX|TIX|TXN|SNP|EPO|PAR|ROOT|CHK|FILE|META|NODE)-[A-Z-]*[A-Z])"', sources))
    noted |= {f"{kind}-{word}" for kind in ("IDX", "TIX") for word in re.findall(r'f"\{kind\}-([A-Z]+)"', sources)}
    assert noted == set(CODES)


def _package() -> Path:
    import tidelog.fsck

    assert tidelog.fsck.__file__ is not None
    return Path(tidelog.fsck.__file__).parent
