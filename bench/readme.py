"""`python -m bench.readme`: the table of README.md, written from bench/results.json.

The README quotes what was measured and nothing else. A row that the results no longer have is an error here, and
tests/test_docs.py fails when the page and the results differ.
"""

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")
README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- bench -->\n", "<!-- /bench -->"

# What the README says of a row, and the row's name. A name may go on in brackets: "decode a, lz4 (x3.1)".
QUOTED = (
    ("**Log to Arrow**, 7 columns, checksums compared", None),
    ("10 B key, 100 B value", "decode a, 7 columns"),
    ("the same, from a file in the page cache", "decode a, 7 columns, from a cached file"),
    ("10 B key, 1 KB value", "decode b, 7 columns"),
    ("10 B key, 10 B value, 100 KB batches", "decode c, 7 columns"),
    ("10 B key, 100 B value, two headers, 8 columns", "decode d, 8 columns"),
    ("batches that Java clients and librdkafka wrote", "decode real, 7 columns"),
    ("100 B values against aiokafka, into Arrow", "decode a against aiokafka"),
    ("100 B values against kafka-python, into Arrow", "decode a against kafka-python"),
    ("100 B values, lz4, against the readable path", "decode a, lz4"),
    ("100 B values, zstd, against the readable path", "decode a, zstd"),
    ("**Headers**", None),
    ("checksums compared, 100 B values", "scan a with checksums"),
    ("**Arrow to batches**", None),
    ("100 B values", "encode a"),
    ("100 B values against aiokafka", "encode a against aiokafka"),
    ("**The log of a partition**", None),
    ("append of an idempotent 16 KiB batch", "append of an idempotent 16 KiB batch"),
    ("append of an idempotent batch of one record", "append of an idempotent one-record batch"),
    ("recovery, checksums compared, 16 KiB batches", "recovery of a 512 MiB segment, 16 KiB batches"),
    ("recovery against Apache Kafka 4.3 as a broker starts", "recovery against Apache Kafka 4.3"),
    ("read by offset, 1,000 segments", "lookup by offset, 1000 segments, warm"),
    ("lookup by time, 1,000 segments", "lookup by time, 1000 segments, warm"),
    ("**Many logs**", None),
    ("compaction of 1 GiB, 1 M keys, against Apache Kafka 4.3", "compaction against Apache Kafka 4.3"),
    ("the same against a JVM that has compacted before", "compaction against Kafka's, JVM warmed up"),
    ("open 2,000 partitions after a clean stop", "open 2000 partitions, clean"),
    ("CPU of each, against 100 partitions", "open 2000 partitions, clean, CPU"),
    ("memory of each, against 100 partitions", "memory of 2000 partitions"),
    ("**Tools**", None),
    ("`dump-log` of 1 GiB, the whole command, wall time", "dump: plain"),
    ("`dump-log --print-data-log` of 1 GiB", "dump: --print-data-log"),
    ("`fsck`, headers and checksums, one core, cached files", "fsck, headers and checksums, per core"),
    ("`fsck --deep`, every record, one core, cached files", "fsck, every record, per core"),
    ("`fsck --deep` on two cores, wall time", "fsck, every record, 2 cores"),
    ("**Spark**, CPU of all processes, against its Kafka source with the broker", None),
    ("all columns", "Spark: all columns"),
    ("`count`", "Spark: count"),
    ("`groupBy(key).count`", "Spark: groupBy(key).count"),
    ("offsets alone", "Spark: offset alone"),
    ("values alone", "Spark: value alone"),
    ("1 M rows written to eight partitions ([tuned](docs/spark.md#tuning))", "Spark: writing 1 M rows"),
    ("the same, as Spark is set", "Spark: writing 1 M rows, Arrow batches bounded by bytes"),
    ("**Start**", None),
    ("new process to first decode, kernels compiled before", "warm cache: new process to first decode"),
    ("compiling every kernel, once per machine", "cold cache: every kernel compiled"),
)

Row = dict[str, Any]


def section(results: dict[str, Any]) -> str:
    """The lines between the marks: a table, the goals, the machine."""
    rows: list[Row] = results["rows"]
    lines = ["| | measured | compared |", "|---|---:|---|"]
    for words, name in QUOTED:
        if name is None:
            lines.append(f"| {words} | | |")
        else:
            row = _find(rows, name)
            compared = "" if row["ratio"] is None else f"{_figure(row['ratio'])} x {row['against']}"
            lines.append(f"| {words} | {_figure(row['value'])} {row['unit']} | {compared} |")
    return "\n".join([*lines, "", _goals(rows), _machine(results["machine"]), ""])


def _figure(value: float) -> str:
    """Two digits that count, and never an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _find(rows: list[Row], name: str) -> Row:
    for row in rows:
        if row["name"] == name or row["name"].startswith(f"{name} ("):
            return row
    raise LookupError(f"{RESULTS.name} has no row {name!r}: run `make bench`, or mend QUOTED in bench/readme.py")


def _goals(rows: list[Row]) -> str:
    with_goal = [row for row in rows if row["goal"]]
    missed = [f"{row['name']} ({row['goal']})" for row in with_goal if not row["holds"]]
    held = f"Of {len(with_goal)} goals that `make bench` checks, {len(with_goal) - len(missed)} hold"
    return f"{held}; missed: {'; '.join(missed)}." if missed else f"{held}."


def _machine(machine: Row) -> str:
    return (
        f"Measured by CPU time, one core of {machine['processor']}, {machine['system']}, Python {machine['python']};"
        " memcpy is a copy of 256 MB in the same run."
    )


def split(page: str) -> tuple[str, str, str]:
    """The page in front of the section, the section, and what follows it."""
    head, begin, rest = page.partition(BEGIN)
    quoted, end, tail = rest.partition(END)
    if not begin or not end:
        raise LookupError(f"README.md has no section between {BEGIN.strip()} and {END}")
    return head + begin, quoted, end + tail


def main() -> int:
    """Write the section into README.md."""
    try:
        head, _, tail = split(README.read_text(encoding="utf-8"))
        written = section(json.loads(RESULTS.read_text(encoding="utf-8")))
    except (LookupError, OSError) as error:
        print(f"bench.readme: {error}", file=sys.stderr)
        return 1
    README.write_text(head + written + tail, encoding="utf-8")
    print("wrote the figures of README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
