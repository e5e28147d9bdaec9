"""A sample of the campaign of commands that are typed at random (wrong_usage.py)."""

from tests.cli.wrong_usage import run


def test_whatever_is_typed_ends_in_one_line_and_a_documented_exit_code() -> None:
    outcomes = run(seed=16, cases=120)
    assert outcomes.total() == 120
    assert set(outcomes) == {"exit-0", "exit-1", "exit-2", "exit-3"}
