"""The tables of `docs/spark.md`, written from the options themselves. `make docs` writes them."""

from pathlib import Path

from tidelog.spark.option_table import BATCH, OPTIONS, STREAM, WRITE, OptionRow

PAGE = Path(__file__).resolve().parent.parent / "docs" / "spark.md"
_BEGIN, _END = "<!-- options of a {} -->\n", "<!-- end -->\n"
_KINDS = {"read": (BATCH, STREAM), "write": (WRITE,)}


def page(text: str) -> str:
    """The page with its tables as they should be."""
    for kind, where in _KINDS.items():
        begin = _BEGIN.format(kind)
        before, found, rest = text.partition(begin)
        assert found, f"docs/spark.md has no place for the options of a {kind}"
        text = (
            before
            + begin
            + _table([row for row in OPTIONS if set(row.where) & set(where)])
            + _END
            + rest.partition(_END)[2]
        )
    return text


def _table(rows: list[OptionRow]) -> str:
    lines = ["| option | without it | Kafka's | what it says |", "|---|---|---|---|"]
    for row in rows:
        where = " (batch)" if row.where == (BATCH,) else " (stream)" if row.where == (STREAM,) else ""
        words = row.words.replace("|", "\\|")
        lines.append(f"| `{row.name}`{where} | {row.default} | {'✓' if row.is_kafkas else ''} | {words} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
