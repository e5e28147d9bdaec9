"""`tidelog doctor`: what this machine has of what Spark and the kernels need, and what to do about the rest."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import click

from tidelog.cli.output import print_json, say, table

__all__ = ["doctor"]

Status = Literal["ok", "note", "problem"]

_PROBLEMS = 1
_OLDEST_JAVA = 17
_WAIT_S = 120
_WANTED = {"pyspark": ">=4.3,<4.4", "pyarrow": ">=20", "pandas": ">=2.2,<3"}  # those of the extra `spark`
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)([^"]*)"')

# What the Python of the workers is asked: Spark itself looks for sources with it, in this way.
_PROBE = """
import importlib, json, pkgutil, sys
version = ".".join(map(str, sys.version_info[:3]))
found = {"executable": sys.executable, "version": version, "versions": {}, "modules": {}}
for name in sys.argv[1:]:
    try:
        found["versions"][name] = importlib.import_module(name).__version__
    except Exception as error:
        found["versions"][name] = None if isinstance(error, ModuleNotFoundError) and error.name == name else (
            f"{type(error).__name__}: {error}")
try:
    from pyspark.sql.datasource import DataSource
except Exception:
    pass
else:
    for info in pkgutil.iter_modules():
        if info.name.startswith("pyspark_"):
            try:
                module = importlib.import_module(info.name)
                source = getattr(module, "DefaultSource", None)
                found["modules"][info.name] = None if source is None else {"name": source.name()}
            except BaseException as error:
                found["modules"][info.name] = {"error": f"{type(error).__name__}: {error}"}
print(json.dumps(found))
"""


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    status: Status
    found: str
    remedy: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(as_json: bool) -> None:
    """Tell what this machine has, and lacks, for Spark and for the kernels.

    Java, the Python that Spark's workers run, the packages it has, whether Spark finds format("tidelog") with it, and
    the cache of compiled kernels.

    Exit codes: 0 fine, 1 something would break.
    """
    checks = list(_checks())
    is_fine = all(check.status != "problem" for check in checks)
    if as_json:
        print_json({"ok": is_fine, "checks": [check._asdict() for check in checks]})
    else:
        table(("what", "", "found"), [(check.name, check.status, check.found) for check in checks], cut=("found",))
        for check in checks:
            if check.remedy:
                say(f"{check.name}: {check.remedy}")
    raise click.exceptions.Exit(0 if is_fine else _PROBLEMS)


def _checks() -> Iterator[Check]:
    import tidelog

    yield Check("tidelog", "ok", f"{tidelog.__version__}, Python {sys.version.split()[0]}, {sys.executable}")
    yield _java()
    yield from _python_checks()
    yield _kernels()


# -- Java --------------------------------------------------------------------------------------------------------------


def _java() -> Check:
    from tidelog.spark.jobs.session import java_command

    remedy = "install a Java 17 or newer (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME to one"
    command = java_command()
    if command is None:
        home = os.environ.get("JAVA_HOME")
        return Check("java", "problem", "none" if not home else f"JAVA_HOME={home} has no bin/java", remedy)
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=_WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("java", "problem", f"{command}: {error}", remedy)
    version = _JAVA_VERSION.search(told.stderr + told.stdout)
    if version is None:
        return Check("java", "problem", f"{command} does not tell its version", remedy)
    is_new = int(version[1]) >= _OLDEST_JAVA
    return Check(
        "java", "ok" if is_new else "problem", f"{version[1]}{version[2]}, {command}", "" if is_new else remedy
    )


# -- the Python of the workers -----------------------------------------------------------------------------------------


def _python_checks() -> Iterator[Check]:
    """The interpreter that workers run, and what this one, which `tidelog spark` has them run, is equipped with."""
    ours = _probed(sys.executable)
    command = os.environ.get("PYSPARK_PYTHON")
    found = shutil.which(command or "python3")
    is_ours = found is not None and os.path.abspath(found) == os.path.abspath(sys.executable)
    theirs = ours if is_ours else _probed(command or "python3")
    yield _worker(command, theirs)
    if isinstance(ours, str):
        yield Check("packages", "problem", ours)
        return
    yield from (_package(name, bounds, ours["versions"][name]) for name, bounds in _WANTED.items())
    yield _source(theirs if isinstance(theirs, dict) else ours)  # it is the workers' Python that Spark lets look for it


def _probed(command: str) -> dict[str, Any] | str:
    """What an interpreter has; a sentence if it cannot tell."""
    path = shutil.which(command)
    if path is None:
        return f"{command} is not there"
    # In a directory of its own: Python looks for modules where it is started.
    try:
        told = subprocess.run(
            [path, "-c", _PROBE, "tidelog", *_WANTED],
            capture_output=True,
            text=True,
            timeout=_WAIT_S,
            check=False,
            cwd=os.sep,
        )
        found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return f"{path} does not answer"
    except (OSError, ValueError, IndexError):
        return f"{path} is no Python that answers"
    return found


def _worker(command: str | None, probe: dict[str, Any] | str) -> Check:
    origin = "python3 of PATH" if command is None else "PYSPARK_PYTHON"
    remedy = f"export PYSPARK_PYTHON={sys.executable} (`tidelog spark` does it by itself, for Spark on this machine)"
    if isinstance(probe, str):
        return Check("worker python", "problem", f"{probe} ({origin})", remedy)
    found = f"{probe['version']}, {probe['executable']} ({origin})"
    here = ".".join(map(str, sys.version_info[:2]))
    if probe["version"].rpartition(".")[0] != here:
        return Check("worker python", "problem", f"{found}: Spark wants the version of the driver, {here}", remedy)
    missing = [name for name in ("tidelog", "pyspark") if _is_missing(probe["versions"].get(name))]
    if missing:
        return Check("worker python", "problem", f"{found} has no {' and no '.join(missing)}", remedy)
    return Check("worker python", "ok", found)


def _is_missing(version: str | None) -> bool:
    return version is None or ": " in version


def _package(name: str, bounds: str, version: str | None) -> Check:
    remedy = "pip install 'tidelog[spark]'"
    if version is None or _is_missing(version) or not fits(version, bounds):
        return Check(name, "problem", f"{version or 'none'}, wanted is {bounds}", remedy)
    return Check(name, "ok", f"{version}, wanted is {bounds}")


def fits(version: str, bounds: str) -> bool:
    """Whether a version keeps within bounds such as >=4.3,<4.4.

    >>> fits("4.3.1", ">=4.3,<4.4"), fits("4.10", "<4.4"), fits("3.0.0rc1", "<3")
    (True, False, False)
    """
    for bound in filter(None, (part.strip() for part in bounds.split(","))):
        sign, limit = re.match(r"([<>=!~]*)\s*(.*)", bound).groups()  # type: ignore[union-attr]
        ours, its = _numbers(version), _numbers(limit)
        is_within = {">=": ours >= its, ">": ours > its, "<": ours < its, "<=": ours <= its, "==": ours == its}
        if not is_within.get(sign, True):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = tuple(map(int, re.findall(r"\d+", re.split(r"[a-z+-]", version, maxsplit=1)[0])))
    return (found + (0, 0, 0))[:3]


def _source(probe: dict[str, Any]) -> Check:
    """Whether Spark finds the source: it imports every `pyspark_*` module, and one that fails hides them all."""
    modules: dict[str, Any] = probe["modules"]
    versions: dict[str, str | None] = probe["versions"]
    if _is_missing(versions.get("pyspark")):
        return Check('format("tidelog")', "problem", "not found: workers have no pyspark")
    broken = [f"{name} ({found['error']})" for name, found in modules.items() if found and "error" in found]
    if broken:
        return Check(
            'format("tidelog")', "problem", f"hidden by {', '.join(broken)}",
            "Spark shows no Python source at all while one pyspark_* module fails: remove it, or call "
            "tidelog.spark.register(spark)",
        )  # fmt: skip
    if not any(found and found.get("name") == "tidelog" for found in modules.values()):
        return Check(
            'format("tidelog")', "problem", "not found", "pip install tidelog, or call tidelog.spark.register(spark)"
        )
    others = ", ".join(name for name in modules if name != "pyspark_tidelog")
    return Check('format("tidelog")', "ok", f"found, beside {others}" if others else "found")


# -- kernels -----------------------------------------------------------------------------------------------------------


def _kernels() -> Check:
    """Whether what is compiled once per machine is compiled."""
    from tidelog.kernels.cache import CACHE_VARIABLE, cache_directory
    from tidelog.kernels.catalogue import kernels

    directory = cache_directory()
    if directory is None:
        return Check(
            "kernels", "note", "no private cache directory: each process compiles them again, some seconds",
            f"set {CACHE_VARIABLE} to a directory that is yours alone",
        )  # fmt: skip
    known = kernels()
    kept = sum(each.is_kept(directory) for each in known)
    found = f"{kept} of {len(known)} compiled, {directory}"
    if kept == len(known):
        return Check("kernels", "ok", found)
    return Check("kernels", "note", found, "`tidelog warmup` compiles the others ahead")
