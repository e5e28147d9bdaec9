"""What is asked for, understood or refused on the driver, in one sentence. No Spark is started."""

from pathlib import Path

import pytest

from tests.spark.logs import record, write
from tidelog.errors import InvalidRequestError
from tidelog.log.names import TopicPartition
from tidelog.spark.bounds import Bound, OffsetRange, Reach, ranges
from tidelog.spark.option_table import BATCH, STREAM, WRITE, check_names, rows_for
from tidelog.spark.option_values import OptionValues
from tidelog.spark.places import Places
from tidelog.spark.planning import Splits, plan_tasks
from tidelog.spark.read_options import warn_of
from tidelog.spark.topics import TopicChoice
from tidelog.spark.write_options import WriteOptions
from tidelog.view import open as open_logs


def refused(*, match: str) -> "pytest.RaisesExc[InvalidRequestError]":
    return pytest.raises(InvalidRequestError, match=match)


def test_an_unknown_option_is_refused_with_the_nearest_one() -> None:
    with refused(match="unknown option 'startingOffset'; do you mean 'startingOffsets'"):
        check_names({"startingOffset": "earliest"}, BATCH)
    with refused(match="unknown option 'xyz'; known are path, paths"):
        check_names({"xyz": "1"}, BATCH)


def test_names_are_compared_without_case() -> None:
    assert check_names({"STARTINGoffsets": "earliest", "includeheaders": "true"}, BATCH) == ([], [])


@pytest.mark.parametrize("where", [BATCH, STREAM, WRITE])
def test_options_that_spark_adds_by_itself_are_accepted(where: str) -> None:
    """Streams and pipelines send their name and checkpoint; a table of a catalog sends its properties."""
    of_streams = {"queryName": "q", "queryname": "q", "checkpointLocation": "/c", "CHECKPOINTLOCATION": "/c"}
    of_tables = {"location": "/x", "provider": "tidelog", "owner": "root", "external": "true", "option.topic": "t"}
    assert check_names({"path": "/x", **of_streams, **of_tables}, where) == ([], [])


def test_an_option_that_is_nearly_one_of_spark_is_rejected_with_its_name() -> None:
    with refused(match="unknown option 'queryNam'; do you mean 'queryName'"):
        check_names({"queryNam": "q"}, WRITE)


def test_options_of_a_client_are_taken_and_told_of() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "groupIdPrefix": "g", "kafka.isolation.level": "read_committed"}
    assert check_names(given, BATCH).of_clients == ["kafka.bootstrap.servers", "groupIdPrefix"]


def test_a_warning_names_options_as_they_are_written_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    clients, streams = ("kafka.bootstrap.servers", "groupIdPrefix"), ("maxTriggerDelay", "maxOffsetsPerTrigger")
    given = {name.lower(): "9" for name in (*clients, *streams)}  # as Spark hands them on
    warn_of(given, BATCH)
    assert caplog.messages == [
        "these options have no effect on a directory: groupIdPrefix, kafka.bootstrap.servers",
        "these options have no effect on a batch read: maxOffsetsPerTrigger, maxTriggerDelay",
    ]
    caplog.clear()
    warn_of(given, STREAM)
    assert caplog.messages == ["these options have no effect on a directory: groupIdPrefix, kafka.bootstrap.servers"]


def test_what_has_no_place_in_a_stream_is_refused() -> None:
    with refused(match="'endingOffsets' has no meaning for a stream"):
        check_names({"endingOffsets": "latest"}, STREAM)
    with refused(match="'subscribe' has no meaning for a write"):
        check_names({"subscribe": "orders"}, WRITE)


def test_every_option_of_the_connector_is_known() -> None:
    names = {row.name for row in rows_for(BATCH) + rows_for(STREAM) if row.is_kafkas}
    assert names >= {
        "assign", "subscribe", "subscribePattern", "startingOffsets", "endingOffsets", "startingTimestamp",
        "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss",
        "startingOffsetsByTimestampStrategy", "includeHeaders", "minPartitions", "maxRecordsPerPartition",
        "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("minPartitions", "0", "minPartitions is a number from 1 on, not '0'"),
        ("minPartitions", "many", "minPartitions is a number from 1 on, not 'many'"),
        ("minPartitions", "9" * 5000, "minPartitions is a number from 1 on, not '999.*' and so on, 5000 characters"),
        ("bytesPerPartition", "9" * 5000, "bytesPerPartition is a size such as 64m"),
        ("bytesPerPartition", "lots", "bytesPerPartition is a size such as 64m"),
        ("maxTriggerDelay", "5 parsec", "maxTriggerDelay is a duration such as"),
        ("checksum", "yes", "checksum is true or false, not 'yes'"),
        ("isolationLevel", "serializable", "isolationLevel is read_uncommitted or read_committed"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_option(name: str, value: str, words: str) -> None:
    values = OptionValues({name: value})
    with refused(match=words):
        if name == "minPartitions":
            values.positive(name)
        elif name == "bytesPerPartition":
            values.size(name, default=1)
        elif name == "maxTriggerDelay":
            values.duration_ms(name, default=1)
        elif name == "checksum":
            values.flag(name, default=True)
        else:
            Reach.of(values, "logEnd")


def test_sizes_and_durations_have_units() -> None:
    values = OptionValues({"a": "64m", "b": "2 KB", "c": "30s", "d": "1500"})
    assert (values.size("a", default=0), values.size("B", default=0)) == (64 << 20, 2048)
    assert (values.duration_ms("c", default=0), values.duration_ms("d", default=0)) == (30_000, 1500)


def test_without_a_path_the_error_says_what_works_in_sql() -> None:
    with refused(match="CREATE TEMPORARY VIEW logs USING tidelog"):
        Places.of(OptionValues({}))


def test_without_a_path_the_error_of_a_write_is_about_writing() -> None:
    with refused(match=r"as in \.save\('/var/lib/kafka'\)") as error:
        WriteOptions.of(OptionValues({"topic": "orders"}), overwrite=False)
    assert "load" not in str(error.value)
    assert "VIEW" not in str(error.value)


def test_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = OptionValues({"paths": '["a", "s3a://bucket/b"]', "path": "c, s3n://bucket/d ,file:/e"})
    assert Places.of(values).paths == (
        f"{tmp_path}/a", "s3://bucket/b", f"{tmp_path}/c", "s3://bucket/d", "/e",
    )  # fmt: skip


@pytest.mark.parametrize("address", ["file:/a b/c", "file:///a b/c", "file://localhost/a%20b/c"])
def test_an_address_of_a_file_is_a_local_path(address: str) -> None:
    places = Places.of(OptionValues({"path": address, "replica": address}))
    assert (places.paths, places.replica, places.is_remote) == (("/a b/c",), "/a b/c", False)


def test_an_address_of_a_file_on_another_machine_is_refused() -> None:
    with refused(match="file://elsewhere/a: an address of a local path has three slashes"):
        Places.of(OptionValues({"path": "file://elsewhere/a"}))


def test_a_directory_with_a_comma_in_its_name_is_one_path(tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    assert Places.of(OptionValues({"path": f"{tmp_path}/a,b"})).paths == (f"{tmp_path}/a,b",)


def test_options_of_a_file_system_are_numbers_and_flags_too() -> None:
    values = OptionValues({"path": "s3://b", "storage.anonymous": "true", "storage.connect_timeout": "3"})
    assert dict(Places.of(values).storage) == {"anonymous": True, "connect_timeout": 3}
    values = OptionValues({"path": "s3://b", "storage.access_key": "0123", "storage.connect_timeout": "0.5"})
    assert dict(Places.of(values).storage) == {"access_key": "0123", "connect_timeout": 0.5}


def test_a_missing_path_says_which_machine_has_looked(tmp_path: Path) -> None:
    import socket

    with refused(match=f"does not exist .looked for on {socket.gethostname()}"):
        Places.of(OptionValues({"path": f"{tmp_path}/nothing"})).open()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for topic, partition, count in (
        ("orders", 0, 40),
        ("orders", 1, 20),
        ("other", 0, 10),
        ("__consumer_offsets", 0, 1),
    ):
        write(tmp_path, topic, partition, (record(number) for number in range(count)))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({"subscribe": "orders, other"}, ["orders-0", "orders-1", "other-0"]),
        ({"subscribePattern": "the"}, ["other-0"]),
        ({"assign": '{"orders":[1,7]}'}, ["orders-1"]),
        ({}, ["orders-0", "orders-1", "other-0"]),
        ({"subscribe": "__consumer_offsets"}, ["__consumer_offsets-0"]),
    ],
)
def test_topics_are_chosen(root: Path, options: dict[str, str], chosen: list[str]) -> None:
    found = TopicChoice.of(OptionValues(options)).choose(open_logs(root))
    assert [f"{topic}-{number}" for topic, number in found] == chosen


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "orders", "assign": "{}"}, "subscribe and assign are given"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": ""}, "subscribe is empty"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"assign": "[1]"}, "assign is written"),
        ({"assign": '{"a":["b"]}'}, "assign is written"),
        ({"assign": '{"a":' * 100_000}, "assign is written .* and so on, 500000 characters"),
        ({"subscribe": "order"}, "no topic 'order' .* do you mean 'orders'"),
        ({"assign": '{"orders":[0,7,9]}'}, "assign names orders-7, orders-9: there is no such partition"),
    ],
)
def test_a_wrong_choice_of_topics_is_refused(root: Path, options: dict[str, str], words: str) -> None:
    with refused(match=words):
        choice = TopicChoice.of(OptionValues(options))
        choice.choose(open_logs(root))
        choice.ensure_there(open_logs(root))


def found(root: Path, options: dict[str, str]) -> dict[str, tuple[int, int]]:
    values = OptionValues({"subscribe": "orders", **options})
    logs = open_logs(root)
    starting, ending = Bound.starting(values, default="earliest"), Bound.ending(values)
    starting.ensure_fits(ending)
    lost: list[str] = []
    got = ranges(logs, TopicChoice.of(values).choose(logs), starting, ending, Reach(), lost.append)
    assert not lost
    return {str(one.partition): (one.first, one.limit) for one in got}


def test_bounds_come_to_offsets(root: Path) -> None:
    assert found(root, {}) == {"orders-0": (0, 40), "orders-1": (0, 20)}
    assert found(root, {"startingOffsets": '{"orders":{"0":5,"1":-2}}'}) == {"orders-0": (5, 40), "orders-1": (0, 20)}
    assert found(root, {"startingTimestamp": "1700000002500", "endingTimestamp": "1700000004900"}) == {
        "orders-0": (10, 20),
        "orders-1": (10, 20),
    }


def test_partitions_with_nothing_to_read_are_left_out(root: Path) -> None:
    assert found(root, {"startingOffsets": '{"orders":{"0":5,"1":20}}'}) == {"orders-0": (5, 40)}


@pytest.mark.parametrize(
    "ending", [{}, {"endingOffsets": '{"orders":{"0":-1,"1":-1}}'}, {"endingTimestamp": "9000000000000"}]
)
def test_a_beginning_behind_the_latest_offset_is_refused(root: Path, ending: dict[str, str]) -> None:
    with refused(match="startingOffsets begins orders-0 with 99, after its end 40"):
        found(root, {"startingOffsets": '{"orders":{"0":99,"1":7}}', **ending})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": '{"orders":{"0":-2,"1":-1}}'}, "endingOffsets can not be the earliest, -2, of a partition"),
        ({"endingOffsets": "earliest"}, "endingOffsets says where reading ends"),
        ({"startingOffsets": '{"a":' * 100_000}, "startingOffsets is written"),
        ({"startingOffsets": f'{{"orders":{{"0":{10**30},"1":0}}}}'}, "startingOffsets is written"),
        ({"startingTimestamp": "9" * 30}, "startingTimestamp is a number of milliseconds since 1970"),
    ],
)
def test_a_bound_that_cannot_be_is_refused(root: Path, options: dict[str, str], words: str) -> None:
    with refused(match=words):
        found(root, options)


def test_a_path_that_is_no_json_is_one(root: Path) -> None:
    assert len(Places.of(OptionValues({"path": "[" * 100_000})).paths) == 1


def test_more_tasks_than_offsets_are_not_made(root: Path) -> None:
    logs = open_logs(root)
    wanted = [OffsetRange(TopicPartition("other", 0), 2, 7)]
    tasks = plan_tasks(logs, wanted, Splits(1 << 20, min_partitions=10**17), Reach())
    assert [(p.first_offset, p.limit_offset) for task in tasks for p in task.pieces] == [
        (n, n + 1) for n in range(2, 7)
    ]


def test_two_bounds_must_name_the_same_partitions(root: Path) -> None:
    with refused(match="both name the same partitions"):
        found(root, {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":5,"1":6}}'})


def test_offsets_that_are_gone_are_told_of(root: Path) -> None:
    logs = open_logs(root)
    lost: list[str] = []
    [one] = ranges(
        logs,
        [TopicPartition("other", 0)],
        Bound("offsets", "startingOffsets", by_partition=((TopicPartition("other", 0), 2),)),
        Bound("offsets", "endingOffsets", by_partition=((TopicPartition("other", 0), 99),)),
        Reach(),
        lost.append,
    )
    assert (one.first, one.limit) == (2, 10)
    assert lost == ["other-0 ends with offset 10, before 99"]
