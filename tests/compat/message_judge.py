"""Kafka's generated message classes as judges of ours: what they make of the bytes, in one JVM.

judge_messages([Question(version, data), ...])      a Verdict per question
"""

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.compat.kafka_tools import Refused, run_java
from tests.protocol.values import Version

JUDGE = Path(__file__).parent / "kafka" / "MessageJudge.java"

PACKAGES = {
    "clients": "org.apache.kafka.common.message",
    "group-coordinator": "org.apache.kafka.coordinator.group.generated",
    "metadata": "org.apache.kafka.common.metadata",
    "raft": "org.apache.kafka.raft.generated",
    "share-coordinator": "org.apache.kafka.coordinator.share.generated",
    "storage": "org.apache.kafka.server.log.remote.metadata.storage.generated",
    "transaction-coordinator": "org.apache.kafka.coordinator.transaction.generated",
}


class Question(NamedTuple):
    """Bytes, or the text of a JSON object, that might be a message."""

    version: Version
    data: bytes | str


class Verdict(NamedTuple):
    """What Kafka made of it. With an `error` there is nothing else; `left` counts the bytes behind the message."""

    error: str | None
    json: str = ""
    left: int = 0
    written: bytes | None = None  # None: Kafka reads it and does not write it, for the reason in `refusal`
    refusal: str | None = None


def kafka_catalogue() -> list[dict[str, Any]]:
    """A dict per API, then one per type of record; MessageJudge.java names what is in them."""
    return [json.loads(line) for line in _run("catalogue")]


def judge_messages(questions: Iterable[Question]) -> list[Verdict]:
    """Let Kafka's classes read each, print it, and write it again."""
    lines = [json.dumps(_asked(question)) for question in questions]
    verdicts = [_verdict(json.loads(line)) for line in _run(stdin="".join(line + "\n" for line in lines))]
    assert len(verdicts) == len(lines)
    return verdicts


def _run(*arguments: str, stdin: str = "") -> list[str]:
    result = run_java(str(JUDGE), *arguments, stdin=stdin)
    if result.exit != 0:
        raise Refused(f"the judge of messages failed:\n{result.stderr}")
    return result.stdout.removesuffix("\n").split("\n")  # text may hold other line ends


def _asked(question: Question) -> dict[str, object]:
    schema = question.version.message.schema
    suffix = "Data" if schema.kind in ("request", "response", "header") else ""
    asked = {"class": f"{PACKAGES[schema.module]}.{schema.name}{suffix}", "version": question.version.number}
    if isinstance(question.data, str):
        return asked | {"json": question.data}
    return asked | {"data": base64.b64encode(question.data).decode()}


def _verdict(answer: dict[str, object]) -> Verdict:
    if "error" in answer:
        return Verdict(str(answer["error"]))
    written = base64.b64decode(str(answer["written"])) if "written" in answer else None
    refusal = str(answer["refusal"]) if "refusal" in answer else None
    return Verdict(None, str(answer["json"]), int(str(answer.get("left", 0))), written, refusal)
