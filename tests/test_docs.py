"""What is written is true: links lead somewhere, names exist, figures have a source, the demo prints what is shown."""

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bench import readme as bench_readme

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")])
README = ROOT / "README.md"


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


# -- pages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_relative_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    broken = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not broken


@pytest.mark.parametrize("page", [README, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=relative)
def test_names_in_backticks_are_in_the_repository(page: Path) -> None:
    files = [*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").glob("*.py"), ROOT / "pyproject.toml"]
    known = "\n".join(file.read_text(encoding="utf-8") for file in files)
    names = re.findall(
        r"`(?:@|\w+\.)?([a-z]+(?:_[a-z0-9]+)+|(?:[A-Z][a-z0-9]+){2,})`", page.read_text(encoding="utf-8")
    )
    assert not [name for name in names if not re.search(rf"\b{name}\b", known)]


@pytest.mark.parametrize("page", [README, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=relative)
def test_make_targets_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|    |\$ )make ([a-z]+)", page.read_text(encoding="utf-8")))
    assert named <= targets


def test_every_error_is_in_the_tree_drawn_above_it() -> None:
    errors = importlib.import_module("tidelog.errors")
    assert [name for name in errors.__all__ if name not in (errors.__doc__ or "")] == []


# -- modules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def order_of(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, each by the alphabet."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if "__all__" in path.read_text(encoding="utf-8")], ids=relative
)
def test_public_names_are_sorted_and_exist(path: Path) -> None:
    module = importlib.import_module(module_name(path))
    assert sorted(module.__all__, key=order_of) == list(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


# -- figures ---------------------------------------------------------------------------------------------------------


def test_the_figures_of_the_readme_are_those_that_were_measured() -> None:
    _, quoted, _ = bench_readme.split(README.read_text(encoding="utf-8"))
    if bench_readme.RESULTS.exists():
        results = json.loads(bench_readme.RESULTS.read_text(encoding="utf-8"))
        assert quoted == bench_readme.section(results), "run `python -m bench.readme`"
    else:
        assert quoted == "", "figures without bench/results.json"


def a_result(name: str, ratio: float | None = None, goal: str | None = None, holds: bool = True) -> dict[str, object]:
    against = None if ratio is None else "memcpy"
    return {
        "name": name,
        "value": 1.2345,
        "unit": "GB/s",
        "against": against,
        "ratio": ratio,
        "goal": goal,
        "holds": holds,
    }


MACHINE = {"processor": "a processor", "cores": 2, "python": "3.11.0", "system": "Linux x86_64"}


def test_the_table_of_the_readme_shows_ratios_and_goals_that_were_missed() -> None:
    rows = [a_result(name) for _, name in bench_readme.QUOTED if name is not None]
    rows[0] |= a_result(str(rows[0]["name"]), ratio=0.257, goal=">= 0.3", holds=False)
    written = bench_readme.section({"machine": MACHINE, "rows": rows})
    assert f"| {bench_readme.QUOTED[1][0]} | 1.2 GB/s | 0.26 x memcpy |" in written
    assert f"Of 1 goals that `make bench` checks, 0 hold; missed: {rows[0]['name']} (>= 0.3)." in written


def test_a_row_that_is_no_longer_measured_is_an_error_not_a_gap() -> None:
    with pytest.raises(LookupError, match="decode a, 7 columns"):
        bench_readme.section({"machine": MACHINE, "rows": []})


# -- the demo --------------------------------------------------------------------------------------------------------


def comparable(text: str) -> list[str]:
    """Lines without what may differ: the folder, and sizes that depend on the versions of the compressors."""
    lines = (re.sub(r"/tmp/\S*?(?=/logs|\s|$)", "FOLDER", line) for line in text.splitlines())
    return [" ".join(re.sub(r"\d+ KB", "KB", line).split()) for line in lines]


def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "examples/demo.py", "--dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    shown = re.search(r"^    \$ make demo\n((?:    .*\n|\n)+)", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert shown is not None
    assert comparable(shown[1].strip()) == comparable(done.stdout.strip().replace(str(tmp_path), "/tmp/demo/logs"))
    assert not done.stderr


def test_the_demo_refuses_to_write_over_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    done = subprocess.run(
        [sys.executable, "examples/demo.py", "--dir", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "exists; name another folder" in done.stderr


def test_every_dependency_states_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for dependency in tomllib.loads(text)["project"]["dependencies"]:
        assert re.search(rf'"{re.escape(dependency)}",\s+# \w', text)
