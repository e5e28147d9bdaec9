"""Writes `older_messages.jsonl`: messages as earlier releases knew them, from the jars that Apache Kafka publishes.

    python -m tidelog.dump.decoders.generate JARS

JARS has a folder for each release, named by its number (`2.8.2`, … `4.2.0`), with the jars of that release in it. A
message is written down for the releases in which its fields or versions were not those of the newest tables, one line
for each form that it had, in the format of these tables and with one fact more:

    "until": "4.0"     the last release with this form; the form before it, if any, ended earlier
    "fields": null     up to then there was no such message

Only what the tool reads counts: the metadata log since 2.8, group records since 3.8, remote
log metadata and transactions since 3.9, share state since 4.0. What earlier releases read of these is the first form.
"""

import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidelog.protocol.generate import FACTS_OF_A_FIELD

__all__ = ["OLDER_MESSAGES", "main", "older_messages"]

OLDER_MESSAGES = Path(__file__).with_name("older_messages.jsonl")
NEWEST = Path(__file__).parents[2] / "protocol" / "messages.jsonl"

_READ_SINCE = {  # the first release whose tool reads records of a module
    "metadata": (2, 8),
    "group-coordinator": (3, 8),
    "storage": (3, 9),
    "share-coordinator": (4, 0),
    "transaction-coordinator": (3, 9),
}
_KINDS = ("metadata", "coordinator-key", "coordinator-value")

Table = dict[str, Any]


def main(arguments: Sequence[str]) -> None:
    """Write the file from the folders of jars named."""
    OLDER_MESSAGES.write_text(older_messages(Path(arguments[0])), encoding="utf-8")


def older_messages(jars: Path) -> str:
    """The text of the file: a line of JSON per message and form, ordered by module, name and release."""
    releases = sorted((folder for folder in jars.iterdir() if (folder / ".complete").exists()), key=_version)
    newest = {table["name"]: table for table in map(json.loads, NEWEST.read_text(encoding="utf-8").splitlines())}
    older = [(_version(folder)[:2], _tables_of(folder, newest)) for folder in releases]
    lines = [
        json.dumps(line, separators=(",", ":"))
        for module in _READ_SINCE
        for name in sorted({name for _, tables in older for name in tables} | set(newest))
        for line in _forms(module, name, older, newest)
    ]
    return "".join(line + "\n" for line in lines)


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(map(int, folder.name.split(".")))


def _forms(
    module: str, name: str, older: list[tuple[tuple[int, ...], dict[str, Table]]], newest: Mapping[str, Table]
) -> Iterator[Table]:
    """The forms of a message that are not the newest, oldest first."""
    known = [tables[name] for tables in [*(tables for _, tables in older), newest] if name in tables]
    if not known or known[-1]["module"] != module or known[-1]["type"] not in _KINDS:
        return
    nothing = {fact: known[-1][fact] for fact in ("name", "module", "type", "apiKey")} | {"fields": None}
    forms = [(r, tables.get(name, nothing)) for r, tables in older if r >= _READ_SINCE[module]]
    forms.append(((99,), newest.get(name, nothing)))
    for (release, form), (_, following) in zip(forms, forms[1:], strict=False):
        if _essence(form) != _essence(following):
            yield {**form, "until": ".".join(map(str, release))}


def _essence(table: Table) -> str:
    """What a reader sees of a table."""
    return re.sub(r',"(ignorable|mapKey)":true', "", json.dumps(table, separators=(",", ":")))


def _tables_of(folder: Path, newest: Mapping[str, Table]) -> dict[str, Table]:
    found = {}
    for jar in sorted(folder.glob("kafka*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for path in archive.namelist():
                if path.endswith(".json") and re.match(r"(common/)?(message|metadata)/", path):
                    table = _facts(_parsed(archive.read(path).decode()), newest)
                    if table:
                        found[table["name"]] = table
    return found


def _parsed(text: str) -> Table:
    """The object in a text with comments; some files have more behind it."""
    plain = re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*", "", text, flags=re.DOTALL).lstrip()
    table: Table = json.JSONDecoder().raw_decode(plain)[0]
    return table


def _facts(table: Table, newest: Mapping[str, Table]) -> Table | None:
    """The table in the form of the newest ones. Keys of coordinators had the type of the record for a version."""
    name, latest = table["name"], newest.get(table["name"], {})
    kind, api_key, versions = table["type"], table.get("apiKey"), table["validVersions"]
    is_key = kind == "coordinator-key" or (kind == "data" and name.endswith("Key"))
    if kind == "data" and (latest.get("type") in _KINDS or name.startswith("ShareGroupPartitionMetadata")):
        kind, api_key = (
            latest.get("type", "coordinator-key" if is_key else "coordinator-value"),
            latest.get("apiKey", 9),
        )
    if kind not in _KINDS:
        return None
    module = latest.get("module", "metadata" if kind == "metadata" else "group-coordinator")
    facts = {"name": name, "module": module, "type": kind, "apiKey": api_key}
    facts["validVersions"] = "0" if is_key else versions
    facts["flexibleVersions"] = table.get("flexibleVersions", "none")
    facts["fields"] = [_field(field, is_key) for field in table["fields"]]
    if "commonStructs" in table:
        facts["commonStructs"] = [
            {"name": struct["name"], "fields": [_field(field, is_key) for field in struct["fields"]]}
            for struct in table["commonStructs"]
        ]
    return facts


def _field(table: Table, is_key: bool) -> Table:
    table = {"versions": table.get("taggedVersions"), **table}
    if is_key:
        table["versions"] = "0"
    field = {fact: table[fact] for fact in FACTS_OF_A_FIELD if fact in table}
    if "tag" in field:
        field["tag"] = int(field["tag"])
    default = table.get("default")
    if default is not None:
        field["default"] = default if isinstance(default, str) else json.dumps(default)
    for flag in ("ignorable", "mapKey"):
        if table.get(flag) in (True, "true"):
            field[flag] = True
    if "fields" in table:
        field["fields"] = [_field(inner, is_key) for inner in table["fields"]]
    return field


if __name__ == "__main__":
    main(sys.argv[1:])
