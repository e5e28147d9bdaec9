"""`tidelog spark export` into formats that are not Spark's own: what --packages fetches from Maven works with it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.compat.kafka_tools import ROOT
from tests.spark.logs import record, write

TIMEOUT_S = 300
# Made for Spark 4.2. On 4.3 batches are written and appended; a stream into a table that has rows fails inside of it.
DELTA = "io.delta:delta-spark_2.13:4.4.0"


def export(logs: Path, target: Path, *more: str) -> dict[str, Any]:
    kept = ROOT / os.environ.get("TIDELOG_CACHE", ".cache") / "ivy"
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", "spark", "export", str(logs), "--to", str(target), "--json",
         "--conf", f"spark.jars.ivy={kept.resolve()}", *more],
        capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def rows_of_delta(table: Path) -> list[tuple[int, str]]:
    """Offset and value of every row, by the table's own log: which files belong to it."""
    files: set[str] = set()
    for version in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, version.read_text("utf-8").splitlines()):
            files |= {action["add"]["path"]} if "add" in action else set()
            files -= {action["remove"]["path"]} if "remove" in action else set()
    rows = [row for file in files for row in pq.ParquetFile(table / file).read(["offset", "value"]).to_pylist()]
    return sorted((row["offset"], row["value"]) for row in rows)


def test_records_become_a_new_delta_table(tmp_path: Path) -> None:
    write(tmp_path / "logs", "orders", 0, (record(number) for number in range(50)))
    wishes = ["--format", "delta", "--packages", DELTA, "--value", "string"]
    assert export(tmp_path / "logs", tmp_path / "table", *wishes)["records"] == 50
    assert rows_of_delta(tmp_path / "table") == [(number, f"value-{number}") for number in range(50)]


def test_records_become_a_table_of_deltas_catalog(tmp_path: Path) -> None:
    """Whose own query writes the rows: what was written is told all the same."""
    write(tmp_path / "logs", "orders", 0, (record(number) for number in range(50)))
    warehouse = tmp_path / "warehouse"
    wishes = ["--table", "--format", "delta", "--packages", DELTA, "--value", "string",
              "--conf", f"spark.sql.warehouse.dir={warehouse}"]  # fmt: skip
    assert export(tmp_path / "logs", Path("orders"), *wishes)["records"] == 50
    assert rows_of_delta(warehouse / "orders") == [(number, f"value-{number}") for number in range(50)]
