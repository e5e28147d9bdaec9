"""Shell completion: the scripts, and what they offer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelog.cli.main import cli

TIDELOG = Path(sys.executable).parent / "tidelog"


def completions(words: str, cwd: Path) -> list[str]:
    """What bash is offered for the last of the words."""
    env = {
        **os.environ,
        "_TIDELOG_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = subprocess.run([TIDELOG], env=env, cwd=cwd, capture_output=True, text=True, check=True)
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_names_the_command(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert "_TIDELOG_COMPLETE" in done.stdout


def test_the_script_for_bash_is_valid_bash() -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = CliRunner().invoke(cli, ["completion", "bash"]).stdout
    subprocess.run([bash, "-n", "-c", script], check=True)


def test_commands_are_completed(tmp_path: Path) -> None:
    assert "compact" in completions("tidelog com", tmp_path)


def test_topics_of_the_directory_are_completed(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1", "other-0", "prices-0", "not a partition", "o$(touch x)-0"):
        (tmp_path / "logs" / name).mkdir(parents=True)
    assert completions("tidelog compact logs --topic o", tmp_path) == ["orders", "other"]


def test_a_directory_that_is_not_there_offers_nothing(tmp_path: Path) -> None:
    assert completions("tidelog compact nowhere --topic o", tmp_path) == []
