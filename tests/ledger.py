"""The ledger of the behaviour checklist: what a test shows, and what is still absent.

`tests/behaviours.tsv` holds the checklist, one observable fact of Apache Kafka's store per line (id, tab, sentence);
`tests/absent.tsv` says of facts that no test shows why that is so (id, tab, reason).
A test claims a fact with `@behaviour("LOG-017")`. The claims are read from the source of the tests, not from a run,
so the ledger costs nothing and is the same on every machine. `make docs` prints it and writes `docs/behaviours.md`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CHECKLIST = ROOT / "tests" / "behaviours.tsv"
ABSENT = ROOT / "tests" / "absent.tsv"
PAGE = ROOT / "docs" / "behaviours.md"

SUBJECTS = {
    "REC": "Record batches and records",
    "VAL": "Validation and offset assignment by the leader",
    "SEG": "Log segments",
    "IDX": "Offset, time and transaction index",
    "LOC": "The log as a chain of segments",
    "LOG": "The whole log of a partition",
    "LDR": "Loading and recovery",
    "PSM": "Producer state",
    "LEC": "Leader epochs",
    "CKP": "Checkpoints and metadata files",
    "MGR": "Log directories",
    "CLN": "Compaction",
    "CFG": "Configuration",
    "DMP": "The dump tool",
}


class Claim(NamedTuple):
    """A test that names a behaviour: `test` is `path::name` as pytest would print it."""

    id: str
    test: str


def read_checklist() -> dict[str, str]:
    """Every id with its sentence, in the order of the file."""
    lines = CHECKLIST.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines)


def read_reasons() -> dict[str, str]:
    """Why a fact is absent, by id."""
    lines = ABSENT.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines)


def claims_in(source: str, path: str) -> Iterator[Claim]:
    """Every literal id passed to `behaviour(...)` in one file, with the innermost test it stands on."""

    def visit(node: ast.AST, owner: str) -> Iterator[Claim]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            owner = f"{owner}::{node.name}"
        if isinstance(node, ast.Call) and _name_of(node.func) == "behaviour":
            for argument in node.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"{path}:{argument.lineno}: behaviour ids must be literal strings")
                yield Claim(argument.value, owner)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, owner)

    return visit(ast.parse(source, path), path)


def collect_claims() -> list[Claim]:
    """The claims of all tests, ordered by file, so that the page changes only when a claim does."""
    claims: list[Claim] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        claims += claims_in(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    return claims


def unknown_ids(claims: list[Claim], checklist: dict[str, str]) -> list[Claim]:
    """Claims of ids that are not in the checklist, usually a typing error."""
    return [claim for claim in claims if claim.id not in checklist]


def summary(checklist: dict[str, str], claims: list[Claim]) -> list[tuple[str, str, int, int]]:
    """Per prefix: (prefix, subject, rows, rows that some test shows)."""
    shown = {claim.id for claim in claims}
    rows = []
    for prefix, subject in SUBJECTS.items():
        ids = [id_ for id_ in checklist if id_.startswith(prefix)]
        rows.append((prefix, subject, len(ids), len(shown.intersection(ids))))
    return rows


def render(checklist: dict[str, str], claims: list[Claim], reasons: dict[str, str]) -> str:
    """The page: the counts, then every row with the tests that show it, or with the reason why none does."""
    tests: dict[str, list[str]] = {}
    for claim in claims:
        tests.setdefault(claim.id, []).append(claim.test)
    counts = summary(checklist, claims)
    shown = sum(row[3] for row in counts)
    lines = [
        "# Behaviours of Apache Kafka's store",
        "",
        "Facts that Apache Kafka's own tests pin down, in our words. A row with a test is claimed; a row without one",
        f"is absent, and nothing is promised. Shown by a test: {shown} of {len(checklist)}. Written by `make docs`.",
        "",
        "| prefix | subject | rows | shown by a test | absent |",
        "|---|---|---:|---:|---:|",
    ]
    lines += [f"| {p} | {subject} | {rows} | {done} | {rows - done} |" for p, subject, rows, done in counts]
    for prefix, subject in SUBJECTS.items():
        lines += ["", f"## {prefix}: {subject}", "", "| id | behaviour | shown by |", "|---|---|---|"]
        for id_, sentence in checklist.items():
            if id_.startswith(prefix):
                proof = "<br>".join(f"`{test}`" for test in dict.fromkeys(tests.get(id_, [])))
                proof = proof or (f"absent: {_cell(reasons[id_])}" if id_ in reasons else "-")
                lines.append(f"| {id_} | {_cell(sentence)} | {proof} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the counts and what the claims got wrong, write the page."""
    checklist, claims = read_checklist(), collect_claims()
    counts = summary(checklist, claims)
    width = max(len(subject) for subject in SUBJECTS.values())
    print(f"{'':3}  {'subject':{width}}  rows  shown  absent")
    for prefix, subject, rows, done in counts:
        print(f"{prefix}  {subject:{width}}  {rows:4}  {done:5}  {rows - done:6}")
    total, shown = len(checklist), sum(row[3] for row in counts)
    print(f"{'':3}  {'all':{width}}  {total:4}  {shown:5}  {total - shown:6}")
    unknown = unknown_ids(claims, checklist)
    for claim in unknown:
        print(f"not in the checklist: {claim.id}, named by {claim.test}")
    PAGE.write_text(render(checklist, claims, read_reasons()), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    if unknown:
        raise SystemExit(1)


def _name_of(function: ast.expr) -> str:
    """The last name of what is called: `behaviour` and `pytest.mark.behaviour` are the same mark."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _cell(text: str) -> str:
    """A sentence inside a Markdown table: a bar would end the cell."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
