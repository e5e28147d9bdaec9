"""What a program asks for and cannot have is one of our errors, whatever type it has."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import tidelog
from tests.golden.corpus import RELEASE, case
from tidelog.errors import InvalidRequestError, TidelogError

IMAGE = case(f"{RELEASE}/4-transactions") / "image"
VALUES = (5, 1.5, [1], {}, object(), True, "no such thing", "\udc80", b"\xff", -1, 2**70, float("nan"), (), {1: None})
SCANS = (
    "key", "partitions", "columns", "from_offset", "to_offset", "from_time", "to_time", "max_lateness",
    "key_partitions", "committed", "end_bound", "on_corruption",
)  # fmt: skip


def questions() -> dict[str, Callable[[Any], object]]:
    logs = tidelog.open(IMAGE)
    part = logs["txn-multi", 0]
    asked: dict[str, Callable[[Any], object]] = {
        "open": lambda value: tidelog.open(value),
        "open replica": lambda value: tidelog.open(IMAGE, replica=value),
        "topic": lambda value: logs[value],
        "partition": lambda value: logs["txn-multi", value],
        "read from": lambda value: list(part.read(from_offset=value)),
        "read to": lambda value: list(part.read(to_offset=value)),
        "read end_bound": lambda value: list(part.read(end_bound=value)),
        "offset_for_time": lambda value: part.offset_for_time(value),
        "offset_for_time end_bound": lambda value: part.offset_for_time(0, end_bound=value),
        "explain offset": lambda value: part.explain(offset=value),
        "explain time": lambda value: part.explain(time=value),
    }
    for name in SCANS:
        asked[f"scan {name}"] = lambda value, name=name: logs.scan("txn-multi", **{name: value}).count()  # type: ignore[misc]
    return asked


@pytest.mark.parametrize("name", questions())
def test_a_question_has_an_answer_or_an_error_of_ours(name: str) -> None:
    ask = questions()[name]
    for value in VALUES:
        with suppress(TidelogError):
            ask(value)


def test_a_flag_that_is_text_or_a_number_is_rejected_in_words() -> None:
    """The text "false" is true to Python."""
    logs = tidelog.open(IMAGE)
    part = logs["txn-multi", 0]
    asked: dict[str, list[Callable[[Any], object]]] = {
        "committed": [
            lambda value: logs.scan("txn-multi", committed=value),
            lambda value: list(part.read(committed=value)),
            lambda value: list(part.batches(committed=value)),
            lambda value: part.offset_for_time(0, committed=value),
            lambda value: part.explain(offset=0, committed=value),
        ],
        "verify": [
            lambda value: logs.scan("txn-multi", verify=value),
            lambda value: list(part.read(verify=value)),
            lambda value: list(part.batches(verify=value)),
        ],
    }
    for name, questions in asked.items():
        for ask in questions:
            for value in ("false", 0, 1, None, "read_committed", []):
                with pytest.raises(InvalidRequestError, match=f"{name} is True or False, not "):
                    ask(value)
            for right in (True, False):
                ask(right)


def test_a_key_that_is_a_number_is_rejected_in_words() -> None:
    with pytest.raises(InvalidRequestError, match="a key is bytes or text, not 5"):
        tidelog.open(IMAGE).scan("txn-multi", key=5)  # type: ignore[arg-type]
