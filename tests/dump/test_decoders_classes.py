"""Decoder classes by name: which release knows which, what they print, and how a stranger is refused."""

import pytest

from tests.behaviours import behaviour
from tidelog.dump.decoders import class_decoder
from tidelog.dump.java_errors import JavaError
from tidelog.dump.releases import release
from tidelog.records.record import Record

OLD, NEW = "kafka.serializer.", "org.apache.kafka.tools.api."


def record_of(key: bytes | None, value: bytes | None) -> Record:
    return Record(offset=0, timestamp_ms=0, key=key, value=value)


@behaviour("DMP-005")
@pytest.mark.parametrize(("tool", "package"), [("4.3", NEW), ("3.8", NEW), ("3.7", OLD), ("0.11", OLD)])
def test_numbers_and_text(tool: str, package: str) -> None:
    decoder = class_decoder(f"{package}IntegerDecoder", f"{package}LongDecoder", release(tool))
    assert decoder.decode(record_of(b"\xff\xff\xff\xfe", b"abcdefghij")) == ("-2", "7017280452245743464")
    decoder = class_decoder(f"{package}StringDecoder", None, release(tool))
    assert decoder.decode(record_of(b"a", b"\xff")) == ("a", "\N{REPLACEMENT CHARACTER}")
    assert decoder.decode(record_of(None, None)) == (None, None)


def test_an_array_is_printed_by_a_number_of_its_own() -> None:
    decoder = class_decoder(f"{NEW}DefaultDecoder", None, release("4.3"))
    first, second = (decoder.decode(record_of(key, None))[0] for key in (b"a", b"b"))
    assert first is not None
    assert first.startswith("[B@")
    assert first != second


def test_too_few_bytes_for_a_number_end_the_tool() -> None:
    decoder = class_decoder(None, f"{NEW}LongDecoder", release("4.3"))
    with pytest.raises(JavaError) as caught:
        decoder.decode(record_of(b"k", b"abc"))
    assert str(caught.value) == "java.nio.BufferUnderflowException"


def test_two_releases_say_that_the_old_names_are_deprecated() -> None:
    for tool in ("3.8", "3.9"):
        decoder = class_decoder(f"{OLD}StringDecoder", f"{OLD}LongDecoder", release(tool))
        assert decoder.notices == (
            f"{OLD}LongDecoder is deprecated. Please use {NEW}LongDecoder instead",
            f"{OLD}StringDecoder is deprecated. Please use {NEW}StringDecoder instead",
        )
    assert class_decoder(f"{OLD}StringDecoder", None, release("3.7")).notices == ()


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        (f"{OLD}StringDecoder", "4.0"),
        (f"{NEW}StringDecoder", "3.7"),
        ("no.such.Class", "3.9"),
        (f"{OLD}LongDecoder", "0.10"),
    ],
)
def test_a_class_that_the_release_does_not_have_is_not_found(name: str, tool: str) -> None:
    with pytest.raises(JavaError) as caught:
        class_decoder(None, name, release(tool))
    assert str(caught.value) == f"java.lang.ClassNotFoundException: {name}"


def test_the_newest_tool_wraps_it() -> None:
    with pytest.raises(JavaError) as caught:
        class_decoder("no.such.Class", None, release("4.3"))
    assert list(caught.value.lines()) == [
        'Exception in thread "main" java.lang.RuntimeException: Failed to load decoder class',
        "Caused by: java.lang.ClassNotFoundException: no.such.Class",
    ]
