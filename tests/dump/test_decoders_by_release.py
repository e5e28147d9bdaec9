"""Texts of the real tools of 29 releases, from 0.9 to 4.3, recorded for random and for broken records.

`test_decoders_by_release.jsonl.xz` has a line per record: release, decoder option, key and value in hex (or null), and
what that release printed behind the header keys; or `!` and the lines that name the exception which ended it. Each
record was the only one of its file, at offset 0. The tools ran on Java 17, those up to 2.5 in their builds for Scala
2.11 and 2.12, the later in those for 2.13.
"""

import json
import lzma
from collections import Counter
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tidelog.dump.decoders import decoder_for
from tidelog.dump.java_errors import JavaError
from tidelog.dump.releases import release
from tidelog.records.record import Record

RECORDED = Path(__file__).with_name("test_decoders_by_release.jsonl.xz")


def recorded() -> list[tuple[str, str, str | None, str | None, str]]:
    return [tuple(json.loads(line)) for line in lzma.decompress(RECORDED.read_bytes()).decode().split("\n")]


def decoded(name: str, option: str, key: str | None, value: str | None) -> str:
    record = Record(
        offset=0,
        timestamp_ms=0,
        key=None if key is None else bytes.fromhex(key),
        value=None if value is None else bytes.fromhex(value),
    )
    try:
        key_text, payload = decoder_for(option, release(name)).decode(record)
    except JavaError as error:
        return "!" + "\n".join(error.lines()).removeprefix('Exception in thread "main" ')
    return ("" if key_text is None else f" key: {key_text}") + ("" if payload is None else f" payload: {payload}")


RELEASES = sorted({row[0] for row in recorded()}, key=lambda name: release(name).version)


@behaviour("DMP-017", "DMP-020", "DMP-021", "DMP-022", "DMP-023", "DMP-024", "DMP-025", "DMP-026", "DMP-027")
@pytest.mark.parametrize("name", RELEASES)
def test_every_release_prints_its_own_text(name: str) -> None:
    for tool, option, key, value, text in recorded():
        if tool == name:
            assert (option, key, value, decoded(tool, option, key, value)) == (option, key, value, text)


def test_every_option_of_every_release_was_recorded() -> None:
    options = Counter((name, option) for name, option, *_ in recorded())
    assert len(RELEASES) == 29
    assert all(count > 9 for count in options.values())
    assert Counter(option for _, option in options) == {
        "offsets-decoder": 29,
        "transaction-log-decoder": 25,
        "cluster-metadata-decoder": 15,
        "remote-log-metadata-decoder": 5,
        "share-group-state-decoder": 4,
    }
