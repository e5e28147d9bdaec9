"""`tidelog doctor`: what it sees of a machine, and what it calls a problem."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tidelog.cli import doctor

pytest.importorskip("pyspark")


def examined(**environment: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the checks by name, with some variables set."""
    mine = {**os.environ, "PYSPARK_PYTHON": sys.executable, **environment}
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", "doctor", "--json"], capture_output=True, text=True, check=False, env=mine
    )
    told = json.loads(done.stdout)
    assert told["ok"] == (done.returncode == 0)
    return done.returncode, {check["name"]: check for check in told["checks"]}


def java_of_version(folder: Path, text: str) -> str:
    """A Java that does nothing but tell its version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{text}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return str(folder)


def test_a_machine_that_has_everything_is_fine(tmp_path: Path) -> None:
    code, checks = examined(JAVA_HOME=java_of_version(tmp_path, "21.0.4"))
    assert code == 0, checks
    assert checks["java"]["found"].startswith("21.0.4")
    assert checks["pyspark"]["status"] == checks["pyarrow"]["status"] == checks["pandas"]["status"] == "ok"
    assert checks['format("tidelog")'] == {"name": 'format("tidelog")', "status": "ok", "found": "found", "remedy": ""}


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
def test_an_old_java_is_a_problem(tmp_path: Path, version: str) -> None:
    code, checks = examined(JAVA_HOME=java_of_version(tmp_path, version))
    assert code == 1
    assert checks["java"]["status"] == "problem"
    assert "17" in checks["java"]["remedy"]


def test_no_java_is_a_problem(tmp_path: Path) -> None:
    code, checks = examined(JAVA_HOME=str(tmp_path))
    assert code == 1
    assert checks["java"]["found"] == f"JAVA_HOME={tmp_path} has no bin/java"


def test_one_broken_module_that_hides_every_source_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyspark_broken.py").write_text("import nothing_of_that_name\n")
    code, checks = examined(PYTHONPATH=str(tmp_path))
    assert code == 1
    found = checks['format("tidelog")']
    assert found["status"] == "problem"
    assert found["found"].startswith("hidden by pyspark_broken (ModuleNotFoundError: ")
    assert "tidelog.spark.register" in found["remedy"]


def test_workers_without_tidelog_are_a_problem(tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')  # no site-packages
    bare.chmod(0o755)
    code, checks = examined(PYSPARK_PYTHON=str(bare))
    assert code == 1
    assert checks["worker python"]["found"].endswith("(PYSPARK_PYTHON) has no tidelog and no pyspark")
    assert f"export PYSPARK_PYTHON={sys.executable}" in checks["worker python"]["remedy"]


@pytest.mark.parametrize("command", ["/nowhere/python", "/bin/true"])
def test_workers_without_python_are_a_problem(command: str) -> None:
    code, checks = examined(PYSPARK_PYTHON=command)
    assert code == 1
    assert checks["worker python"]["found"].startswith(f"{command} is ")


def test_a_cold_kernel_cache_is_noted_and_no_problem(tmp_path: Path) -> None:
    java = java_of_version(tmp_path / "jdk", "17.0.1")
    code, checks = examined(TIDELOG_KERNEL_CACHE=str(tmp_path / "kernels"), JAVA_HOME=java)
    assert code == 0
    assert checks["kernels"]["status"] == "note"
    assert re.fullmatch(r"0 of \d+ compiled, .*/kernels", checks["kernels"]["found"])
    assert "tidelog warmup" in checks["kernels"]["remedy"]


def test_what_it_wants_is_what_the_extra_installs() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    asked = [re.fullmatch(r"([a-z]+)(.*)", each) for each in project["project"]["optional-dependencies"]["spark"]]
    assert {match[1]: match[2] for match in asked if match} == doctor._WANTED
