"""The partition of a key is the one that Kafka's producers choose."""

import warnings

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property import reference
from tests.property.strategies import fields
from tidelog.columns import partition_for_keys
from tidelog.errors import InvalidRequestError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns about itself when it is imported
    from kafka.partitioner import default as kafka_python

# Published with Kafka's own tests of Utils.murmur2.
VECTORS = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}

_MOST_PARTITIONS = 2**31 - 1  # so many that nearly all of the hash shows


def to_partition(value: int, partitions: int) -> int:
    return (value & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize(("text", "value"), VECTORS.items())
def test_published_vectors_hold(text: str, value: int) -> None:
    data = text.encode()
    assert reference.murmur2(data) == value
    for partitions in (1, 7, 12, 1000, _MOST_PARTITIONS):
        keys = pa.array([data])
        assert partition_for_keys(keys, partitions).to_pylist() == [to_partition(value, partitions)]


@given(st.binary(max_size=40))
def test_the_reference_agrees_with_another_implementation(data: bytes) -> None:
    assert reference.murmur2(data) & 0xFFFFFFFF == kafka_python.murmur2(data) & 0xFFFFFFFF


@given(st.lists(fields, max_size=12), st.one_of(st.integers(1, 50), st.just(_MOST_PARTITIONS)), st.data())
def test_partitions_of_keys_are_those_of_plain_murmur2(
    keys: list[bytes | None], partitions: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(keys)))
    expected = [None if key is None else to_partition(reference.murmur2(key), partitions) for key in keys]
    assert partition_for_keys(pa.array(keys, pa.binary()).slice(start), partitions).to_pylist() == expected[start:]


@given(
    st.lists(st.one_of(st.none(), st.text(max_size=10)), max_size=6), st.sampled_from([pa.string(), pa.large_string()])
)
def test_text_is_hashed_as_its_utf8(keys: list[str | None], data_type: pa.DataType) -> None:
    expected = [None if key is None else to_partition(reference.murmur2(key.encode()), 10) for key in keys]
    assert partition_for_keys(pa.array(keys, data_type), 10).to_pylist() == expected


@pytest.mark.parametrize("partitions", [0, -1, 2**31])
def test_a_topic_has_between_one_and_two_to_the_31st_partitions(partitions: int) -> None:
    with pytest.raises(InvalidRequestError):
        partition_for_keys(pa.array([b"k"]), partitions)


def test_keys_that_are_no_bytes_have_no_partition() -> None:
    with pytest.raises(InvalidRequestError):
        partition_for_keys(pa.array([1]), 12)


def test_chunks_of_keys_keep_their_chunks() -> None:
    keys = pa.chunked_array([[b"a", None], [b"b"]], pa.binary())
    partitions = partition_for_keys(keys, 12)
    assert partitions.to_pylist() == [4, None, 8]
    assert partitions.num_chunks == 2
