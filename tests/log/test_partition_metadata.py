"""The topic id of a partition directory."""

import random
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tests.golden import corpus
from tidelog.errors import CheckpointError, InconsistentTopicIdError, InvalidRequestError
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.partition_metadata import (
    ZERO_UUID,
    PartitionMetadataFile,
    parse_uuid,
    random_topic_id,
    uuid_text,
)

ID = uuid.UUID("3a29ab75-d8d2-4f0d-b45c-0879567174fc")
OTHER = uuid.UUID("00000000-0000-4000-8000-00000000000a")


def metadata_in(directory: Path) -> PartitionMetadataFile:
    return PartitionMetadataFile(LocalFileSystem(), str(directory / "partition.metadata"))


def topic_id_of(directory: Path, content: bytes) -> uuid.UUID | None:
    (directory / "partition.metadata").write_bytes(content)
    return metadata_in(directory).read()


# -- ids as text -----------------------------------------------------------------------------------------------------


@given(st.uuids(allow_nil=True))
def test_an_id_is_22_characters_and_comes_back(value: uuid.UUID) -> None:
    text = uuid_text(value)
    assert len(text) == 22
    assert parse_uuid(text) == parse_uuid(f"{text}==") == value


def test_ids_are_written_as_kafka_does() -> None:
    assert uuid_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_text(uuid.UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_text(uuid.UUID(int=2**128 - 1)) == "_____________________w"


@pytest.mark.parametrize(
    "text",
    ["", "A" * 21, "A" * 23, "A" * 22 + "=", "A" * 22 + "===", "+" * 22, "/" * 22, "A" * 21 + " ", "A" * 22 + "\n"],
)
def test_other_text_is_not_an_id(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="22 characters"):
        parse_uuid(text)


def test_random_ids_are_of_version_4_and_never_begin_with_a_dash() -> None:
    rng, plain = random.Random(1), random.Random(1)
    drawn = {random_topic_id(rng) for _ in range(2000)}
    assert len(drawn) == 2000
    assert {(one.version, uuid_text(one)[0] == "-") for one in drawn} == {(4, False)}
    assert any(uuid_text(uuid.UUID(int=plain.getrandbits(128), version=4)).startswith("-") for _ in range(2000))


# -- the file --------------------------------------------------------------------------------------------------------


@behaviour("CKP-011")
def test_a_second_id_must_be_the_first(tmp_path: Path) -> None:
    metadata = metadata_in(tmp_path)
    metadata.record(ID)
    metadata.record(ID)
    with pytest.raises(InconsistentTopicIdError, match=uuid_text(OTHER)) as raised:
        metadata.record(OTHER)
    assert raised.value.error_code == 103
    metadata.flush()
    with pytest.raises(InconsistentTopicIdError):
        metadata.record(OTHER)
    assert metadata.read() == ID


def test_the_id_in_the_file_counts_as_recorded(tmp_path: Path) -> None:
    topic_id_of(tmp_path, f"version: 0\ntopic_id: {uuid_text(ID)}".encode())
    with pytest.raises(InconsistentTopicIdError):
        metadata_in(tmp_path).record(OTHER)
    metadata = metadata_in(tmp_path)
    metadata.record(ID)
    assert not metadata.is_dirty


@behaviour("CKP-012")
def test_the_file_has_two_lines_and_no_end_behind_the_second(tmp_path: Path) -> None:
    metadata = metadata_in(tmp_path)
    metadata.record(ID)
    assert metadata.is_dirty
    assert list(tmp_path.iterdir()) == []
    metadata.flush()
    assert not metadata.is_dirty
    assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: OimrddjSTw20XAh5VnF0_A"
    assert [file.name for file in tmp_path.iterdir()] == ["partition.metadata"]


@behaviour("CKP-013")
def test_without_an_id_nothing_is_written(tmp_path: Path) -> None:
    metadata = metadata_in(tmp_path)
    metadata.flush()
    assert list(tmp_path.iterdir()) == []
    assert metadata.read() is None


def test_an_id_is_written_once(tmp_path: Path) -> None:
    metadata = metadata_in(tmp_path)
    metadata.record(ID)
    metadata.flush()
    (tmp_path / "partition.metadata").unlink()
    metadata.flush()
    assert metadata.read() is None


@behaviour("CKP-014")
def test_the_id_is_read_back(tmp_path: Path) -> None:
    metadata = metadata_in(tmp_path)
    metadata.record(ID)
    metadata.flush()
    assert metadata_in(tmp_path).read() == ID
    assert (tmp_path / "partition.metadata").read_text().startswith("version: 0\n")


def test_the_file_follows_its_directory(tmp_path: Path) -> None:
    metadata = metadata_in(tmp_path / "old")
    metadata.record(ID)
    (tmp_path / "new").mkdir()
    metadata.path = str(tmp_path / "new" / "partition.metadata")
    metadata.flush()
    assert metadata_in(tmp_path / "new").read() == ID


def test_zero_is_no_id(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        metadata_in(tmp_path).record(ZERO_UUID)
    with pytest.raises(CheckpointError, match="zero"):
        topic_id_of(tmp_path, b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")


@pytest.mark.parametrize(
    "content",
    [
        b"version: 0\ntopic_id: %s\n",
        b"version: 0\r\ntopic_id: %s\r\n",
        b"version:\t 0\ntopic_id:  %s\nbehind: it",
        b"version: 7\ntopic_id: %s",  # a later version, so that a broker can be downgraded
        b"a: +00\nb: %s==",  # names are not compared
    ],
)
def test_an_id_is_found_in_what_kafka_accepts(tmp_path: Path, content: bytes) -> None:
    assert topic_id_of(tmp_path, content % uuid_text(ID).encode()) == ID


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"version: 0",
        b"version: 0\n",
        b"version: 0\ntopic_id: ",
        b"version:0\ntopic_id: %s",
        b"version: -1\ntopic_id: %s",
        b"version: x\ntopic_id: %s",
        b"version: 2147483648\ntopic_id: %s",
        b"version: 0: 0\ntopic_id: %s",
        b"version: 0\ntopic_id: %s: x",
        b"version: 0\ntopic_id: %sA",
        b"version: 0\ntopic_id: %s ",
        b"\ntopic_id: %s",
        b"version: 0\ntopic_id: \xff",
    ],
)
def test_anything_else_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(CheckpointError) as raised:
        topic_id_of(tmp_path, content.replace(b"%s", uuid_text(ID).encode()))
    assert raised.value.error_code == 56


@given(st.binary(max_size=60) | st.text(alphabet="version:topic_d 0A\n", max_size=60).map(str.encode))
def test_bytes_of_any_kind_raise_nothing_but_our_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    try:
        found = topic_id_of(tmp_path_factory.getbasetemp(), content)
    except CheckpointError:
        return
    assert found is not None
    assert uuid_text(found)[:21].encode() in content


def test_every_file_of_the_corpus_is_written_back_the_same(tmp_path: Path) -> None:
    files = [path for name in corpus.case_names() for path in sorted(corpus.case(name).rglob("partition.metadata"))]
    assert len(files) == 344
    for number, file in enumerate(files):
        topic_id = metadata_in(file.parent).read()
        assert topic_id is not None
        directory = tmp_path / str(number)
        directory.mkdir()
        ours = metadata_in(directory)
        ours.record(topic_id)
        ours.flush()
        assert (directory / "partition.metadata").read_bytes() == file.read_bytes()
