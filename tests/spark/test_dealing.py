"""Which partition a row goes to, without Spark: what is refused, and what is dealt out."""

import pyarrow as pa
import pytest

from tidelog.errors import InvalidRequestError, InvalidTopicError
from tidelog.spark.dealing import Dealer, TopicShape
from tidelog.spark.jobs.load import _with_partitions
from tidelog.spark.option_values import OptionValues
from tidelog.spark.write_options import WriteOptions, unwritten_words


def rows(**columns: list[object]) -> pa.RecordBatch:
    kinds = {"partition": pa.int32(), "topic": pa.string()}
    return pa.RecordBatch.from_pydict(
        {name: pa.array(values, kinds.get(name, pa.binary())) for name, values in columns.items()}
    )


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
@pytest.mark.parametrize("is_there", [True, False])
def test_topics_of_kafkas_own_are_not_written_to(topic: str, is_there: bool) -> None:
    dealer = Dealer(None, {topic: TopicShape(50)} if is_there else {}, None, first=0)
    with pytest.raises(InvalidTopicError, match=f"{topic} is a topic of Kafka's own"):
        list(dealer.deal(rows(topic=[topic], value=[b"v"])))


@pytest.mark.parametrize("named", [[-1, None], [-1, -1, None], [None, None, -1], [3, None]])
def test_a_load_refuses_a_partition_that_there_is_not(named: list[object]) -> None:
    batch = rows(value=[b"v"] * len(named), partition=named)
    with pytest.raises(InvalidRequestError, match="a row names partition (-1|3) of orders, which has 3 of them"):
        list(_with_partitions(iter([batch]), topic="orders", shape=TopicShape(3)))


def test_a_load_refuses_to_guess_where_only_some_partitions_are_here() -> None:
    with pytest.raises(InvalidRequestError, match="of orders only some are here: 0, 2"):
        list(_with_partitions(iter([rows(value=[b"v"])]), topic="orders", shape=TopicShape(3, frozenset({0, 2}))))


def test_a_load_keeps_what_is_named_and_deals_out_the_rest() -> None:
    batches = [rows(value=[b"v"] * 6, partition=[None, 2, None, None, 0, None]), rows(value=[b"v"] * 2)]
    numbered = list(_with_partitions(iter(batches), topic="orders", shape=TopicShape(4)))
    assert [batch.column("partition").to_pylist() for batch in numbered] == [[0, 2, 1, 2, 0, 3], [0, 2]]
    assert {batch.schema.field("partition").type for batch in numbered} == {pa.int32()}


@pytest.mark.parametrize("count", [1_000_001, 2**31, 2**32])
def test_there_is_an_end_to_the_number_of_partitions(count: int) -> None:
    options = {"path": "/data/kafka", "topic": "orders", "partitions": str(count)}
    with pytest.raises(InvalidRequestError, match=f"partitions={count}: a topic gets 1000000 at most"):
        WriteOptions.of(OptionValues(options), overwrite=False)
    assert WriteOptions.of(OptionValues({**options, "partitions": "1000000"}), overwrite=False).partitions == 1_000_000


def test_an_id_of_zero_is_none() -> None:
    options = {"path": "/data/kafka", "topic": "orders", "topicId": "A" * 22}
    with pytest.raises(InvalidRequestError, match="topicId is zero"):
        WriteOptions.of(OptionValues(options), overwrite=False)


# -- new topics of a copy ----------------------------------------------------------------------------------------------


def dealt(dealer: Dealer, **columns: list[object]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in dealer.deal(pa.RecordBatch.from_pydict(columns)):
        found.setdefault(each.topic, []).extend(each.numbers.tolist())
    return found


def test_each_new_topic_of_a_copy_gets_the_partitions_that_its_rows_name() -> None:
    dealer = Dealer(None, {"there": TopicShape(2)}, None, first=0)
    topics = ["orders", "clicks", "there", "orders"]
    assert dealt(dealer, topic=topics, partition=[2, 0, 1, 11], value=[b"v"] * 4)["orders"] == [2, 11]
    assert dealt(dealer, topic=["clicks"], partition=[3], value=[b"v"]) == {"clicks": [3]}
    assert {topic: shape.partitions for topic, shape in dealer.shapes.items()} == {
        "there": 2, "orders": 12, "clicks": 4,
    }  # fmt: skip
    with pytest.raises(InvalidRequestError, match="a row names partition 2 of there, which has 2 of them"):
        dealt(dealer, topic=["there"], partition=[2], value=[b"v"])
    with pytest.raises(InvalidRequestError, match="a row names partition 1000 of far"):
        dealt(dealer, topic=["far"], partition=[1000], value=[b"v"])


def test_a_new_topic_whose_rows_name_partitions_in_part_needs_a_number() -> None:
    dealer = Dealer(None, {}, None, first=0)
    assert dealt(dealer, topic=["orders"], value=[b"v"]) == {"orders": [0]}  # one, if nothing else is said
    with pytest.raises(InvalidRequestError, match=r"the new topic orders name partitions, up to 4, and some name none"):
        dealt(dealer, topic=["orders"], partition=[4], value=[b"v"])
    with pytest.raises(InvalidRequestError, match=r'the option partitions says how many .* \{"clicks": 3\}'):
        dealt(dealer, topic=["clicks"] * 2, partition=[2, None], value=[b"v"] * 2)


def test_one_option_gives_each_new_topic_its_own_number() -> None:
    options = {"path": "/data/kafka", "partitions": '{"orders": 12, "clicks": 3}'}
    found = WriteOptions.of(OptionValues(options), overwrite=False)
    dealer = Dealer(None, {}, found.wanted, first=0)
    dealt(dealer, topic=["orders", "clicks", "other"], value=[b"v"] * 3)
    assert {topic: shape.partitions for topic, shape in dealer.shapes.items()} == {
        "orders": 12, "clicks": 3, "other": 1,
    }  # fmt: skip
    one = WriteOptions.of(OptionValues({**options, "topic": "orders"}), overwrite=False)
    assert (one.partitions, one.wanted) == (12, 12)
    with pytest.raises(InvalidRequestError, match="partitions names .*orders, clicks.*, and the topic .* is order$"):
        WriteOptions.of(OptionValues({**options, "topic": "order"}), overwrite=False)
    for wrong in ("{", "{}", '{"orders": 0}', '{"orders": "12"}', '{"orders": true}', "[12]", "twelve"):
        with pytest.raises(InvalidRequestError, match="partitions is a number"):
            WriteOptions.of(OptionValues({**options, "partitions": wrong}), overwrite=False)


def test_topics_that_get_a_number_and_no_rows_are_named_with_the_nearest() -> None:
    assert unwritten_words({"orders": 2}, ["orders", "other"]) is None
    told = unwritten_words({"ordrs": 2, "zebra": 1, "other": 1}, ["orders", "other"])
    assert told == (
        "partitions names 'ordrs, zebra', and nothing was written there; the nearest topic that was written is orders"
    )
