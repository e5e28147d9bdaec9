"""What a manager refuses at the door, and says in one sentence: wrong partitions, wrong types, the wrong moment."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from tests.log.logs import fill, lead, offsets_in
from tests.log.manager.managers import ORDERS, VIEWS, a_manager, after, directories_in, unloaded
from tidelog.errors import InvalidConfigError, InvalidRequestError, InvalidTopicError, LogClosedError, StorageError
from tidelog.log import LogConfig, LogManager, TopicPartition
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.names import CLEANER_CHECKPOINT
from tidelog.testing.disk import SimulatedFileSystem

Door = Callable[[LogManager, Any], object]

DOORS: dict[str, Door] = {
    "get": lambda manager, tp: manager.get(tp),
    "get future": lambda manager, tp: manager.get(tp, future=True),
    "root_of": lambda manager, tp: manager.root_of(tp),
    "get_or_create": lambda manager, tp: manager.get_or_create(tp),
    "delete": lambda manager, tp: manager.delete(tp),
    "delete_all": lambda manager, tp: manager.delete_all([ORDERS, tp]),
    "replace": lambda manager, tp: manager.replace_current_with_future(tp),
    "promote": lambda manager, tp: manager.promote_future(tp),
    "truncate_to": lambda manager, tp: manager.truncate_to({VIEWS: 0, tp: 0}),
    "truncate_fully": lambda manager, tp: manager.truncate_fully_and_start_at(tp, 0),
    "pause": lambda manager, tp: manager.pause_cleaning(tp),
    "resume": lambda manager, tp: manager.resume_cleaning(tp),
}


class Topics(StrEnum):
    ORDERS = "orders"


# -- partitions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("orders-0", "pass a TopicPartition, not 'orders-0'"),
        (("orders", 0), r"pass a TopicPartition, not \('orders', 0\)"),
        (None, "pass a TopicPartition, not None"),
        (TopicPartition("orders", "0"), "an int from 0 to 2147483647, not '0'"),  # type: ignore[arg-type]
        (TopicPartition("orders", False), "not False"),
        (TopicPartition("orders", 0.0), "not 0.0"),  # type: ignore[arg-type]
        (TopicPartition("orders", -1), "not -1"),
        (TopicPartition("orders", 2**31), "not 2147483648"),
        (TopicPartition(Topics.ORDERS, 0), "the name of a topic is a str"),
        (TopicPartition(b"orders", 0), "the name of a topic is a str"),  # type: ignore[arg-type]
        (TopicPartition("", 0), "cannot be called ''"),
        (TopicPartition("..", 0), r"cannot be called '\.\.'"),
        (TopicPartition("a/b", 0), "topic names are made of"),
        (TopicPartition("x" * 254, 0), "255 fit"),
    ],
)
def test_what_is_no_partition_is_refused_at_every_door(tmp_path: Path, door: str, wrong: object, why: str) -> None:
    with a_manager(tmp_path) as manager:
        lead(manager.get_or_create(ORDERS), 3)
        with pytest.raises(InvalidRequestError, match=why):
            DOORS[door](manager, wrong)
        assert directories_in(tmp_path) == ["orders-0"]
        assert offsets_in(manager.logs[ORDERS]) == [0, 1, 2]  # nothing was done of what was right
    with a_manager(tmp_path) as manager:
        assert list(manager.logs) == [ORDERS]


@pytest.mark.parametrize("wrong", [ORDERS, "orders-0", None])
def test_several_partitions_are_not_one(tmp_path: Path, wrong: Any) -> None:
    with a_manager(tmp_path) as manager:
        manager.get_or_create(ORDERS)
        with pytest.raises(InvalidRequestError, match="pass several TopicPartitions"):
            manager.delete_all(wrong)
        with pytest.raises(InvalidRequestError, match="a mapping of partitions to offsets"):
            manager.truncate_to(wrong)
        assert list(manager.logs) == [ORDERS]


def test_a_partition_with_an_odd_name_that_lies_there_can_be_had_and_deleted(tmp_path: Path) -> None:
    a_manager(tmp_path).close()
    (tmp_path / "früher-0").mkdir()
    odd = TopicPartition("früher", 0)
    with a_manager(tmp_path, cleaner=CleanerConfig()) as manager:
        lead(manager.get_or_create(odd), 3)
        manager.update_topic_config("früher", {"retention.ms": "5"})
        assert manager.logs[odd].config.retention_ms == 5
        manager.truncate_to({odd: 1})
        assert manager.delete_all([odd]) == 1
        with pytest.raises(InvalidTopicError):
            manager.get_or_create(odd)


# -- moving ------------------------------------------------------------------------------------------------------------


def test_a_copy_that_ends_too_early_does_not_take_the_place_of_a_log(tmp_path: Path) -> None:
    with a_manager([tmp_path / "a", tmp_path / "b"]) as manager:
        log = manager.get_or_create(ORDERS, root=tmp_path / "a")
        lead(log, 5)
        copy = manager.get_or_create(ORDERS, root=tmp_path / "b", future=True)
        lead(copy, 4)
        with pytest.raises(InvalidRequestError, match="not complete: it starts at 0 and ends at 4, .* 0 and ends at 5"):
            manager.replace_current_with_future(ORDERS)
        assert manager.logs[ORDERS] is log
        assert manager.future_logs[ORDERS] is copy
        lead(copy, 1)
        manager.replace_current_with_future(ORDERS)
        assert manager.logs[ORDERS] is copy


def test_a_copy_that_starts_too_late_does_not_take_the_place_of_a_log(tmp_path: Path) -> None:
    with a_manager([tmp_path / "a", tmp_path / "b"]) as manager:
        for log in (
            manager.get_or_create(ORDERS, root=tmp_path / "a"),
            manager.get_or_create(ORDERS, root=tmp_path / "b", future=True),
        ):
            fill(log, [2, 2])
            log.update_high_watermark(4)
        manager.future_logs[ORDERS].delete_records(1)
        with pytest.raises(InvalidRequestError, match="it starts at 1 .* the log starts at 0"):
            manager.replace_current_with_future(ORDERS)
        manager.logs[ORDERS].delete_records(1)
        manager.replace_current_with_future(ORDERS)
        assert manager.logs[ORDERS].log_start_offset == 1


# -- the moment --------------------------------------------------------------------------------------------------------

LOOKS: list[Callable[[LogManager], object]] = [
    lambda manager: manager.get(ORDERS),
    lambda manager: manager.root_of(ORDERS),
    lambda manager: manager.logs,
    lambda manager: manager.future_logs,
    lambda manager: manager.delete(ORDERS),
    lambda manager: manager.truncate_to({ORDERS: 0}),
    lambda manager: manager.checkpoint_recovery_points(),
]


@pytest.mark.parametrize("look", LOOKS)
def test_before_they_are_loaded_there_are_no_logs_to_be_had(tmp_path: Path, look: Callable[[LogManager], Any]) -> None:
    manager = unloaded(tmp_path)
    with pytest.raises(InvalidRequestError, match="not loaded yet: use LogManager.open"):
        look(manager)
    manager.load_task().run()
    look(manager)
    manager.close()


@pytest.mark.parametrize(
    "use",
    [
        *LOOKS,
        lambda manager: manager.update_topic_config("orders", {}),
        lambda manager: manager.update_defaults(LogConfig()),
        lambda manager: manager.__enter__(),
    ],
)
def test_after_it_is_closed_a_manager_says_so_everywhere(tmp_path: Path, use: Callable[[LogManager], object]) -> None:
    manager = a_manager(tmp_path)
    manager.close()
    with pytest.raises(LogClosedError, match="the log manager is closed"):
        use(manager)


def test_a_manager_that_nobody_loads_is_not_entered_and_keeps_no_root(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"use `with LogManager.open"), unloaded(tmp_path):
        pass
    manager = unloaded(tmp_path)
    task = manager.load_task()
    with manager:
        task.run()
        manager.get_or_create(ORDERS)


def test_a_start_that_loses_its_last_root_at_the_very_end_fails() -> None:
    disk = SimulatedFileSystem()
    a_manager("/a", fs=disk, cleaner=CleanerConfig()).close()
    disk.fail(operation="open", path=f"/a/{CLEANER_CHECKPOINT}", error="Input/output error")  # after all logs
    with pytest.raises(StorageError, match=f"no log directory can be used: .*{CLEANER_CHECKPOINT}"):
        a_manager("/a", fs=disk, cleaner=CleanerConfig())
    disk.heal()
    with a_manager("/a", fs=disk, cleaner=CleanerConfig()) as manager:
        after(manager, seconds=1)


# -- types -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roots", "why"),
    [
        (None, "one directory or more, not in None"),
        (b"/data", "one directory or more, not in b'/data'"),
        (7, "not in 7"),
        ([], "none is named"),
        ("", "each a str or a Path, not ''"),
        (["/data", None], "each a str or a Path, not None"),
        ([b"/data"], "each a str or a Path"),
        ("~/kafka", r"the ~ is not expanded here, pass os.path.expanduser\('~/kafka'\)"),
        ([Path("~/kafka")], "the ~ is not expanded"),
    ],
)
def test_roots_are_paths(roots: Any, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        LogManager.open(roots, fs=SimulatedFileSystem())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"defaults": {"retention.ms": "5"}}, "the defaults of all topics are a LogConfig, not {'retention.ms': '5'}"),
        ({"config": {"log.retention.ms": "5"}}, "is a ManagerConfig, not"),
        ({"config": LogConfig()}, "is a ManagerConfig, not"),
        ({"topic_configs": ["orders"]}, r"a mapping of topics to their configs, not \['orders'\]"),
        ({"topic_configs": {"orders": "retention.ms=5"}}, "orders: configs are a mapping of names to values"),
        ({"topic_configs": {"orders": None}}, "orders: configs are a mapping of names to values"),
        ({"topic_configs": {"orders": {"retention.ms": None}}}, "orders: retention.ms is None"),
        ({"topic_configs": {ORDERS: {}}}, "configs belong to a topic, which is named by a str"),
    ],
)
def test_configs_are_of_their_types_and_no_root_is_taken_before(options: dict[str, Any], why: str) -> None:
    disk = SimulatedFileSystem()
    with pytest.raises(InvalidRequestError, match=why):
        LogManager.open("/data", fs=disk, **options)
    assert disk.stat("/data") is None


@pytest.mark.parametrize("budget", ["5", None, True, float("nan")])
def test_a_budget_is_a_number(tmp_path: Path, budget: Any) -> None:
    with a_manager(tmp_path) as manager, pytest.raises(InvalidRequestError, match="a budget is a number of millisec"):
        manager.tick(budget)


@pytest.mark.parametrize(
    ("topic", "properties", "error"),
    [
        (ORDERS, {"retention.ms": "5"}, InvalidRequestError),
        ("a/b", {"retention.ms": "5"}, InvalidTopicError),
        ("", {"retention.ms": "5"}, InvalidTopicError),
        ("orders", None, InvalidRequestError),
        ("orders", {"retention.ms": None}, InvalidRequestError),
        ("orders", {3: "5"}, InvalidRequestError),
        ("orders", {"retention.msec": "5"}, InvalidConfigError),
    ],
)
def test_a_config_that_is_refused_changes_nothing(tmp_path: Path, topic: Any, properties: Any, error: Any) -> None:
    with a_manager(tmp_path) as manager:
        for partition in (ORDERS, VIEWS):
            manager.get_or_create(partition)
        manager.update_topic_config("orders", {"retention.ms": "7"})
        with pytest.raises(error):
            manager.update_topic_config(topic, properties)
        assert manager.logs[ORDERS].config.retention_ms == 7
        with pytest.raises(InvalidRequestError, match="are a LogConfig"):
            manager.update_defaults(properties)
        assert manager.logs[ORDERS].config.retention_ms == 7


@pytest.mark.parametrize("change", ["append", "roll", "truncate"])
def test_a_log_that_was_deleted_can_be_read_and_not_written_to(tmp_path: Path, change: str) -> None:
    manager = a_manager(tmp_path)
    log = manager.get_or_create(ORDERS)
    lead(log, 3)
    manager.delete(ORDERS)
    changes: dict[str, Callable[[], object]] = {
        "append": lambda: lead(log, 1),
        "roll": log.roll,
        "truncate": lambda: log.truncate_to(1),
    }
    with pytest.raises(LogClosedError, match="ask the manager for it again"):
        changes[change]()
    assert offsets_in(log) == [0, 1, 2]
    after(manager, ms=manager.config.file_delete_delay_ms)
    assert directories_in(tmp_path) == []
