"""Configs of the cleaner: names, defaults and limits are Kafka's."""

from typing import Any

import pytest

from tidelog.errors import InvalidConfigError
from tidelog.log.compaction.cleaner_config import CleanerConfig

MEGABYTE = 1 << 20


def test_the_defaults_are_kafkas() -> None:
    assert CleanerConfig.from_properties({}) == CleanerConfig(
        threads=1,
        dedupe_buffer_size=134_217_728,
        io_buffer_size=524_288,
        load_factor=0.9,
        max_message_bytes=1_048_588,
        io_max_bytes_per_second=1.7976931348623157e308,
        backoff_ms=15_000,
        enable=True,
    )


def test_the_names_are_those_of_a_broker_and_others_are_passed_over() -> None:
    config = CleanerConfig.from_properties(
        {
            "log.cleaner.threads": "2",
            "log.cleaner.dedupe.buffer.size": " 4194304 ",
            "log.cleaner.io.buffer.size": 1000,
            "log.cleaner.io.buffer.load.factor": "0.5",
            "message.max.bytes": "77",
            "log.cleaner.io.max.bytes.per.second": "1.5E6",
            "log.cleaner.backoff.ms": "0",
            "log.cleaner.enable": "False",
            "log.cleaner.min.cleanable.ratio": "0.1",
            "log.dirs": "/kafka",
            "broker.id": None,
        }
    )
    assert config == CleanerConfig(
        threads=2,
        dedupe_buffer_size=4 * MEGABYTE,
        io_buffer_size=1000,
        load_factor=0.5,
        max_message_bytes=77,
        io_max_bytes_per_second=1_500_000,
        backoff_ms=0,
        enable=False,
    )


@pytest.mark.parametrize(
    ("threads", "size", "slots", "buffer_bytes"),
    [
        (1, 128 * MEGABYTE, 5_592_405, 262_144),
        (4, 128 * MEGABYTE, 1_398_101, 65_536),
        (1, 2**40, (2**31 - 1) // 24, 262_144),  # a thread does not use more than 2 GiB
        (0, 128 * MEGABYTE, 5_592_405, 262_144),  # what one who cleans by hand has
    ],
)
def test_memory_is_shared_by_the_threads(threads: int, size: int, slots: int, buffer_bytes: int) -> None:
    config = CleanerConfig(threads=threads, dedupe_buffer_size=size)
    assert (config.slots, config.buffer_bytes) == (slots, buffer_bytes)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("log.cleaner.threads", "-1", "log.cleaner.threads is '-1', wanted is 0 or more"),
        ("log.cleaner.threads", "two", "log.cleaner.threads is 'two', wanted is a whole number of 32 bits"),
        ("log.cleaner.io.buffer.size", "-1", "log.cleaner.io.buffer.size is '-1', wanted is 0 or more"),
        ("log.cleaner.backoff.ms", "-5", "log.cleaner.backoff.ms is '-5', wanted is 0 or more"),
        ("message.max.bytes", "-1", "message.max.bytes is '-1', wanted is 0 or more"),
        ("log.cleaner.enable", "1", "log.cleaner.enable is '1', wanted is true or false"),
        ("log.cleaner.io.buffer.load.factor", "0", "does not hold two keys"),
        ("log.cleaner.dedupe.buffer.size", "1048576", "wanted is more than 1048576 for each of 1 threads"),
    ],
)
def test_what_kafka_refuses_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        CleanerConfig.from_properties({name: value})


def test_a_map_that_holds_no_two_keys_is_refused() -> None:
    assert CleanerConfig(dedupe_buffer_size=48).slots == 2
    with pytest.raises(InvalidConfigError, match="raise log.cleaner.dedupe.buffer.size or lower log.cleaner.threads"):
        CleanerConfig(dedupe_buffer_size=48, threads=2)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (4, 2), (3, 1), (3, 6), (1, 1)])
def test_a_running_cleaner_can_get_half_or_double_its_threads(before: int, after: int) -> None:
    CleanerConfig(threads=after).check_change(CleanerConfig(threads=before))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (1, 0, "wanted is 1 or more"),
        (1, 3, "no more than double of what it was, 1"),
        (6, 2, "no less than half"),
        (0, 1, "no more than double of what it was, 0"),
    ],
)
def test_a_change_of_threads_beyond_that_is_refused(before: int, after: int, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        CleanerConfig(threads=after).check_change(CleanerConfig(threads=before))


@pytest.mark.parametrize("values", [{"threads": True}, {"backoff_ms": 1.5}, {"enable": 1}, {"load_factor": "0.9"}])
def test_values_of_another_type_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError):
        CleanerConfig(**values)
