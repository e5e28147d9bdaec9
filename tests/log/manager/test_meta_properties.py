"""The identity of a root: read as Java reads properties, written as Kafka writes them."""

import uuid
from pathlib import Path

import pytest

from tests.golden.corpus import case
from tidelog.errors import CheckpointError, InvalidRequestError
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.manager.meta_properties import (
    MetaProperties,
    parse_properties,
    read_meta_properties,
    write_meta_properties,
)
from tidelog.log.names import META_PROPERTIES
from tidelog.log.partition_metadata import parse_uuid

FS = LocalFileSystem()
DIRECTORY_ID = parse_uuid("OimrddjSTw20XAh5VnF0_A")
GOLDEN = "kafka-4.3/9-metadata"
WRITTEN_MS = 1_794_772_350_000  # Sun Nov 15 19:52:30 UTC 2026


def identity_of(root: Path, text: str) -> MetaProperties | None:
    (root / META_PROPERTIES).write_text(text, encoding="utf-8")
    return read_meta_properties(FS, str(root))


def test_the_file_of_a_real_broker_is_read() -> None:
    meta = read_meta_properties(FS, str(case(GOLDEN) / "image"))
    assert meta == MetaProperties(1, "tlGoldenCorpus43xxxxxA", 1, DIRECTORY_ID)


def test_what_is_written_is_to_the_byte_what_kafka_wrote(tmp_path: Path) -> None:
    meta = MetaProperties(1, "tlGoldenCorpus43xxxxxA", 1, DIRECTORY_ID)
    write_meta_properties(FS, str(tmp_path), meta, WRITTEN_MS)
    assert (tmp_path / META_PROPERTIES).read_bytes() == (case(GOLDEN) / "image" / META_PROPERTIES).read_bytes()


def test_a_root_without_the_file_has_no_identity(tmp_path: Path) -> None:
    assert read_meta_properties(FS, str(tmp_path)) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("version=1\ncluster.id=c\nnode.id=7\n", MetaProperties(1, "c", 7)),
        ("broker.id=7\n", MetaProperties(0, None, 7)),
        ("version = 0 \ncluster.id : c\n", MetaProperties(0, "c", None)),
        ("version=0\nnode.id=7\n", MetaProperties(0, None, None)),  # of version 1 only
        ("", MetaProperties(0)),
    ],
)
def test_both_versions_are_known(tmp_path: Path, text: str, wanted: MetaProperties) -> None:
    assert identity_of(tmp_path, text) == wanted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=2\n", "version 2"),
        ("version=x\n", "version is 'x'"),
        ("version=1\ncluster.id=c\n", "node.id is missing"),
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ncluster.id=c\nnode.id=1 \n", "node.id is '1 '"),  # Java does not take the space either
        ("version=1\ncluster.id=c\nnode.id=2147483648\n", "32 bits"),
        ("directory.id=short\n", "directory.id: an id is 22 characters"),
        ("directory.id=AAAAAAAAAAAAAAAAAAAAAQ\n", "stands for no directory"),
        ("cluster.id=\\u12\n", "four hexadecimal digits"),
    ],
)
def test_a_file_that_does_not_say_whose_the_root_is_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason) as refusal:
        identity_of(tmp_path, text)
    assert str(tmp_path / META_PROPERTIES) in str(refusal.value)


@pytest.mark.parametrize(
    "meta",
    [
        MetaProperties(1, "a:b=c #!\\ d", -3, uuid.UUID(int=1 << 100)),
        MetaProperties(1, " begins with a space", 0),
        MetaProperties(0, "tab\tand\nlines\r\f", 5),
        MetaProperties(0),
    ],
)
def test_what_is_written_is_read_again(tmp_path: Path, meta: MetaProperties) -> None:
    write_meta_properties(FS, str(tmp_path), meta, WRITTEN_MS)
    assert read_meta_properties(FS, str(tmp_path)) == meta
    assert [path.name for path in tmp_path.iterdir()] == [META_PROPERTIES]


@pytest.mark.parametrize(
    "meta",
    [MetaProperties(1, "c"), MetaProperties(1, None, 3), MetaProperties(2, "c", 3), MetaProperties(1, "ä", 3)],
)
def test_what_could_not_be_read_again_is_not_written(tmp_path: Path, meta: MetaProperties) -> None:
    with pytest.raises(InvalidRequestError):
        write_meta_properties(FS, str(tmp_path), meta, WRITTEN_MS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("  # no\n ! no\n\n \t\n  a b\n", {"a": "b"}),
        ("a = one \\\n   two\n", {"a": "one two"}),
        ("a=ends with \\\\\nb=1\n", {"a": "ends with \\", "b": "1"}),
        ("a=\\\n# no comment\n", {"a": "# no comment"}),
        ("a\\=b\\:c\\ d=e=f\n", {"a=b:c d": "e=f"}),
        ("\\u0061=\\u00e9\\x\\t\n", {"a": "éx\t"}),
        ("a\nb=\n:c\n", {"a": "", "b": "", "": "c"}),
        ("a=1\na=2\n", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, wanted: dict[str, str]) -> None:
    assert parse_properties(text) == wanted
