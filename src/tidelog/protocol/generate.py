"""Writes `messages.jsonl`, the tables of all messages, from the jars that Apache Kafka publishes.

    python -m tidelog.protocol.generate [JARS]

Kafka describes each of its messages in a JSON file and puts it into the jar of the module that speaks it. Taken over
are the facts: names, types, versions, tags, defaults. JARS is the folder that `make compat` fills. The same jars give
the same file, a line per message; a test of `make compat` holds the two together.

Two conventions of Kafka's own generator are resolved here, so that nothing else has to know them: a field that names
only its tagged versions exists in these, and a default of JSON null (unlike the text "null") is no default at all.
"""

import json
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["JARS", "TABLES", "main", "tables"]

KAFKA_VERSION = "4.3.0"
TABLES = Path(__file__).with_name("messages.jsonl")
JARS = Path(__file__).parents[3] / os.environ.get("TIDELOG_CACHE", ".cache") / f"kafka-{KAFKA_VERSION}"
MODULES = (
    "clients",
    "group-coordinator",
    "metadata",
    "raft",
    "share-coordinator",
    "storage",
    "transaction-coordinator",
)
FOLDERS = ("common/message/", "common/metadata/", "message/")
FACTS_OF_A_FIELD = ("name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "flexibleVersions")
FACTS_OF_A_MESSAGE = ("type", "apiKey", "validVersions", "flexibleVersions", "listeners")


def main(arguments: Sequence[str]) -> None:
    """Write the tables of the jars in the folder named, or in the cache."""
    jars = Path(arguments[0]) if arguments else JARS
    TABLES.write_text(tables(jars), encoding="utf-8")


def tables(jars: Path) -> str:
    """The text of the file: a line of JSON per message, ordered by module and name."""
    messages = [message for module in MODULES for message in _messages_of(jars, module)]
    lines = (json.dumps(message, separators=(",", ":")) for message in messages)
    return "".join(line + "\n" for line in lines)


def _messages_of(jars: Path, module: str) -> list[dict[str, Any]]:
    with zipfile.ZipFile(jars / f"kafka-{module}-{KAFKA_VERSION}.jar") as jar:
        names = [name for name in jar.namelist() if name.endswith(".json") and name.startswith(FOLDERS)]
        found = [_message(module, _without_comments(jar.read(name).decode())) for name in names]
    return sorted(found, key=lambda message: str(message["name"]))


def _without_comments(text: str) -> Any:
    return json.loads("\n".join(line for line in text.split("\n") if not line.lstrip().startswith("//")))


def _message(module: str, table: dict[str, Any]) -> dict[str, Any]:
    message = {"name": table["name"], "module": module}
    message |= {fact: table[fact] for fact in FACTS_OF_A_MESSAGE if fact in table}
    if table.get("latestVersionUnstable"):
        message["latestVersionUnstable"] = True
    message["fields"] = [_field(field) for field in table.get("fields", [])]
    if "commonStructs" in table:
        message["commonStructs"] = [
            {"name": struct["name"], "fields": [_field(field) for field in struct["fields"]]}
            for struct in table["commonStructs"]
        ]
    return message


def _field(table: dict[str, Any]) -> dict[str, Any]:
    table = {"versions": table.get("taggedVersions"), **table}
    return {fact: table[fact] for fact in FACTS_OF_A_FIELD if fact in table} | dict(_further_facts(table))


def _further_facts(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The facts of a field that are not simply taken over."""
    default = table.get("default")
    if default is not None:
        yield "default", default if isinstance(default, str) else json.dumps(default)
    for flag in ("ignorable", "mapKey"):
        if table.get(flag) in (True, "true"):
            yield flag, True
    if "fields" in table:
        yield "fields", [_field(field) for field in table["fields"]]


if __name__ == "__main__":
    main(sys.argv[1:])
