"""`tidelog warmup` says what it did; the kernels themselves are stood in for, they have their own tests."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from tidelog.cli.main import cli


@dataclass
class WarmUp:
    kernels: int
    seconds: float
    cache_dir: Path | None


class FakeRuntime(ModuleType):
    """Stands for `tidelog.kernels.runtime`: compiles nothing, remembers whether somebody wanted to watch."""

    watched: bool | None = None
    cache_dir: Path | None = Path.home() / ".cache" / "tidelog" / "kernels"

    def warm_up(self, report: Callable[[str, float], None] | None = None) -> WarmUp:
        self.watched = report is not None
        return WarmUp(14, 7.8912, self.cache_dir)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    fake = FakeRuntime("tidelog.kernels.runtime")
    monkeypatch.setitem(sys.modules, "tidelog.kernels.runtime", fake)
    return fake


def test_warmup_prints_one_line(runtime: FakeRuntime) -> None:
    result = CliRunner().invoke(cli, ["warmup"])
    assert result.output == "14 kernels ready in 7.9 s, cached in ~/.cache/tidelog/kernels\n"
    assert result.exit_code == 0


def test_warmup_shows_no_progress_where_stderr_is_no_terminal(runtime: FakeRuntime) -> None:
    result = CliRunner().invoke(cli, ["warmup"])
    assert (runtime.watched, result.stderr) == (False, "")


def test_warmup_says_when_nothing_could_be_kept(runtime: FakeRuntime) -> None:
    runtime.cache_dir = None
    result = CliRunner().invoke(cli, ["warmup"])
    assert result.output == "14 kernels ready in 7.9 s, not cached: no private cache directory\n"


def test_warmup_prints_one_json_object_for_programs(runtime: FakeRuntime) -> None:
    runtime.cache_dir = Path("/var/cache/kernels")
    result = CliRunner().invoke(cli, ["warmup", "--json"])
    assert json.loads(result.output) == {"kernels": 14, "seconds": 7.891, "cache_dir": "/var/cache/kernels"}
