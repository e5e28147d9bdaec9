"""What is refused before a commit is decided: a journal that cannot be done would keep everybody from the root."""

import os
import random
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import tidelog
from tests.golden.corpus import case
from tests.log.logs import NOW
from tests.spark.commits import commit_order, options_for, order_of, values
from tidelog.columns import partition_for_keys
from tidelog.errors import InvalidRequestError, MessageTooLargeError, StorageError, TidelogError
from tidelog.log import LogConfig, LogManager, ManualClock, UnifiedLog
from tidelog.log.files import join
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    UNFINISHED_WRITE,
    TopicPartition,
    delete_directory_name,
)
from tidelog.log.partition_metadata import uuid_text
from tidelog.spark.commit import Order, look
from tidelog.spark.committed_batches import BatchKey
from tidelog.spark.dealing import Dealer, shapes_of
from tidelog.spark.staged_pieces import attempt_name, new_job, staged_directories
from tidelog.spark.staging import Staging, stage_rows
from tidelog.spark.write_options import WriteOptions
from tidelog.testing.disk import SimulatedFileSystem
from tidelog.view.topic_configs import broker_log_dirs

ROOT = "/data/kafka"
KEYS = [b"%d" % number for number in range(200)]
KEYED: Mapping[str, object] = {"key": KEYS, "value": KEYS}
FEW: Mapping[str, object] = {"value": [b"a", b"b", b"c"]}
MEGABYTE = 1 << 20


@pytest.fixture
def disk() -> SimulatedFileSystem:
    return SimulatedFileSystem(ManualClock(NOW))


def staged(disk: SimulatedFileSystem, options: WriteOptions, rows: Mapping[str, object] = FEW) -> Order:
    """What a job of one task wants to have committed, as the writer puts it together."""
    is_replaced = options.overwrite and options.partitions is not None
    there = look(options, fs=disk, clock=ManualClock(NOW))
    shapes = shapes_of([] if is_replaced else there, options.topic, options.partitions)
    dealer = Dealer(options.topic, shapes, options.partitions, first=0)
    job = new_job(random.Random())
    staging = Staging(disk, options, attempt_name(job, random.Random()))
    pieces = stage_rows([pa.RecordBatch.from_pydict(dict(rows))], dealer, staging)
    return Order(options, pieces, {piece.topic: dealer.shape_of(piece.topic).partitions for piece in pieces}, job)


def ensure_open(disk: SimulatedFileSystem) -> None:
    """Nothing is decided, and others can write."""
    assert disk.stat(join(ROOT, UNFINISHED_WRITE)) is None
    before = values(disk.copy(), ROOT, "bystander")
    commit_order(disk, staged(disk, options_for(ROOT, topic="bystander", partitions=None)))
    assert values(disk.copy(), ROOT, "bystander") == {0: [*before.get(0, []), b"a", b"b", b"c"]}


def sized(segment: int, message: int) -> WriteOptions:
    configs = (("segment.bytes", str(segment)), ("max.message.bytes", str(message)))
    return options_for(ROOT, configs=configs)


# -- large rows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("segment", "message", "words"),
    [
        (MEGABYTE, 8 * MEGABYTE, "the topic allows 1048576: the option segment.bytes allows more"),
        (8 * MEGABYTE, MEGABYTE, "the topic allows 1048576: the option max.message.bytes allows more"),
        (MEGABYTE, 2 * MEGABYTE, "the option max.message.bytes and segment.bytes allows more"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_by_its_task(
    disk: SimulatedFileSystem, segment: int, message: int, words: str
) -> None:
    with pytest.raises(MessageTooLargeError, match=words):
        staged(disk, sized(segment, message), {"value": [b"x" * (3 * MEGABYTE)]})
    assert list(staged_directories(disk, ROOT)) == []
    ensure_open(disk)


def test_a_batch_that_no_segment_holds_is_refused_before_anything_is_decided(disk: SimulatedFileSystem) -> None:
    """As by a task that was told of other sizes; batches in front of it and behind it are small."""
    rows = {"value": [b"small", b"x" * (3 * MEGABYTE), b"small"], "partition": [0, 0, 0]}
    order = staged(disk, sized(8 * MEGABYTE, 8 * MEGABYTE), rows)
    with pytest.raises(MessageTooLargeError, match=r"holds a batch of 31\d+ bytes, a segment 1048576"):
        commit_order(disk, order._replace(options=sized(MEGABYTE, 8 * MEGABYTE)))
    ensure_open(disk)
    commit_order(disk, order)
    assert values(disk, ROOT)[0] == rows["value"]


def test_more_pieces_than_a_journal_holds_are_refused_before_any_is_read(disk: SimulatedFileSystem) -> None:
    order = staged(disk, options_for(ROOT))
    piece, rng = order.pieces[0], random.Random(7)
    many = [
        piece._replace(host="h" * 4000, directory=delete_directory_name(piece.place, f"{rng.getrandbits(128):032x}"))
        for _ in range(17_000)  # of which none is there
    ]
    with pytest.raises(InvalidRequestError, match="17000 pieces: .* Let fewer tasks write, .*; nothing is committed"):
        commit_order(disk, order._replace(pieces=many))
    ensure_open(disk)


def test_many_batches_that_fill_several_segments_are_not_refused(disk: SimulatedFileSystem) -> None:
    rows = {"value": [b"%d" % number * 50 for number in range(2000)], "partition": [1] * 2000}
    options = options_for(ROOT, batch_bytes=700)  # segments of 1024
    commit_order(disk, staged(disk, options, rows))
    assert values(disk, ROOT)[1] == rows["value"]


# -- shapes ------------------------------------------------------------------------------------------------------------


def misplaced(disk: SimulatedFileSystem) -> int:
    """How many rows lie in a partition that is not the one of their key."""
    found = values(disk.copy(), ROOT)
    homes = dict(zip(KEYS, partition_for_keys(pa.array(KEYS), len(found)).to_pylist(), strict=True))
    return sum(homes[value] != number for number, each in found.items() for value in each if value)


@pytest.mark.parametrize(("first", "second"), [(2, 8), (8, 2)])
def test_two_writers_of_a_new_topic_do_not_mix_their_partitions(
    disk: SimulatedFileSystem, first: int, second: int
) -> None:
    orders = [staged(disk, options_for(ROOT, partitions=count), KEYED) for count in (first, second)]
    commit_order(disk, orders[0])
    with pytest.raises(InvalidRequestError, match=f"has {first} partitions by now, .* dealt out to {second}: .* again"):
        commit_order(disk, orders[1])
    assert misplaced(disk) == 0
    assert sum(map(len, values(disk.copy(), ROOT).values())) == 200
    ensure_open(disk)


@pytest.mark.parametrize("then", [1, 5])
@pytest.mark.parametrize("is_overwrite", [False, True])
def test_rows_dealt_out_before_a_topic_got_another_number_are_refused(
    disk: SimulatedFileSystem, then: int, is_overwrite: bool
) -> None:
    commit_order(disk, staged(disk, options_for(ROOT), KEYED))
    late = staged(disk, options_for(ROOT, partitions=None, overwrite=is_overwrite), KEYED)
    commit_order(disk, staged(disk, options_for(ROOT, partitions=then, overwrite=True), KEYED))
    with pytest.raises(InvalidRequestError, match=f"orders has {then} partitions by now, its rows were dealt out to 3"):
        commit_order(disk, late)
    assert misplaced(disk) == 0
    assert sum(map(len, values(disk.copy(), ROOT).values())) == 200
    commit_order(disk, staged(disk, late.options, KEYED))
    assert sum(map(len, values(disk.copy(), ROOT).values())) == (200 if is_overwrite else 400)


def with_gaps(disk: SimulatedFileSystem) -> None:
    """Partitions 0 and 2 of orders; 1 may be in another directory."""
    commit_order(disk, staged(disk, options_for(ROOT), {"value": [b"a", b"c"], "partition": [0, 2]}))
    disk.remove_directory(join(ROOT, "orders-1"))


def test_gaps_are_filled_where_it_is_said_how_many_there_are(disk: SimulatedFileSystem) -> None:
    with_gaps(disk)
    commit_order(disk, staged(disk, options_for(ROOT, partitions=4), {"value": [b"d"], "partition": [3]}))
    assert values(disk, ROOT) == {0: [b"a"], 1: [], 2: [b"c"], 3: [b"d"]}


@pytest.mark.parametrize(
    "options",
    [
        options_for(ROOT, partitions=None),
        options_for(ROOT, partitions=None, overwrite=True),
        options_for(ROOT, topic=None, partitions=5),  # of new topics
    ],
)
def test_gaps_stay_where_nothing_is_said_of_them(disk: SimulatedFileSystem, options: WriteOptions) -> None:
    with_gaps(disk)
    rows: dict[str, object] = {"value": [b"d"], "partition": [2]}
    commit_order(disk, staged(disk, options, rows if options.topic else {**rows, "topic": ["orders"]}))
    assert values(disk, ROOT) == ({0: [], 2: [b"d"]} if options.overwrite else {0: [b"a"], 2: [b"c", b"d"]})


# -- what lies there ---------------------------------------------------------------------------------------------------


def put(disk: SimulatedFileSystem, path: str, content: str) -> None:
    file = disk.open_write(join(ROOT, path))
    file.resize(0)
    file.write_at(0, content.encode())
    file.close()


def other_id(disk: SimulatedFileSystem) -> None:
    put(disk, f"orders-2/{PARTITION_METADATA}", f"version: 0\ntopic_id: {uuid_text(uuid.UUID(int=77))}")


def broken_id(disk: SimulatedFileSystem) -> None:
    put(disk, f"orders-2/{PARTITION_METADATA}", "version: 0\ntopic_id: none")


def broken_cleaner_checkpoint(disk: SimulatedFileSystem) -> None:
    put(disk, CLEANER_CHECKPOINT, "no checkpoint\n")


def no_offsets_left(disk: SimulatedFileSystem) -> None:
    put(disk, LOG_START_CHECKPOINT, f"0\n1\norders 2 {2**63 - 5}\n")


def epoch_below_zero(disk: SimulatedFileSystem) -> None:
    put(disk, f"orders-2/{LEADER_EPOCH_CHECKPOINT}", "0\n1\n-5 0\n")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (other_id, "partitions of orders in /data/kafka have different topic ids"),
        (broken_id, "an id is 22 characters"),
        (broken_cleaner_checkpoint, CLEANER_CHECKPOINT),
        (no_offsets_left, "there are no offsets for more"),
        (epoch_below_zero, "(?i)epoch"),
    ],
)
def test_what_would_stop_the_commit_later_stops_it_before(
    disk: SimulatedFileSystem, harm: Callable[[SimulatedFileSystem], None], words: str
) -> None:
    commit_order(disk, staged(disk, options_for(ROOT), KEYED))
    order = staged(disk, options_for(ROOT), KEYED)
    sound = disk.copy()
    harm(disk)
    with pytest.raises(TidelogError, match=words) as caught:
        commit_order(disk, order)
    assert "the commit is decided" not in str(caught.value)
    assert disk.stat(join(ROOT, UNFINISHED_WRITE)) is None
    commit_order(sound, order)
    assert sum(map(len, values(sound, ROOT).values())) == 400


def test_what_is_replaced_need_not_be_sound(disk: SimulatedFileSystem) -> None:
    commit_order(disk, staged(disk, options_for(ROOT), KEYED))
    epoch_below_zero(disk)
    commit_order(disk, staged(disk, options_for(ROOT, overwrite=True), KEYED))
    assert sum(map(len, values(disk, ROOT).values())) == 200


def test_a_file_where_a_partition_is_to_be_is_refused(disk: SimulatedFileSystem) -> None:
    order = staged(disk, options_for(ROOT))
    put(disk, "orders-1", "a file")
    with pytest.raises(TidelogError, match="orders-1 is a file, where a partition is to be made"):
        commit_order(disk, order)
    ensure_open(disk)
    disk.remove(join(ROOT, "orders-1"))
    commit_order(disk, order)
    assert sum(map(len, values(disk, ROOT).values())) == 3


def test_a_partition_whose_directory_cannot_be_named_is_refused(disk: SimulatedFileSystem) -> None:
    order = staged(disk, options_for(ROOT, topic="t" * 249, partitions=1))
    far = [piece._replace(partition=100_000) for piece in order.pieces]
    with pytest.raises(InvalidRequestError, match="a directory name of 256 characters; 255 fit"):
        commit_order(disk, order._replace(pieces=far))
    ensure_open(disk)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("is_overwrite", [False, True])
@pytest.mark.parametrize("locked", ["orders-0", "orders-0/00000000000000000000.log"])
def test_a_user_who_may_write_to_the_root_alone_is_refused(locked: str, is_overwrite: bool) -> None:
    fs = LocalFileSystem()
    with tempfile.TemporaryDirectory() as root:
        commit_order(fs, order_of(fs, options_for(root), key=BatchKey("first", 0)))
        for path in (root, *map(str, Path(root).rglob("*"))):
            os.chmod(path, 0o755 if path == join(root, locked) else 0o777)
        os.seteuid(65534)
        try:
            order = order_of(fs, options_for(root, overwrite=is_overwrite))
            if is_overwrite and locked != "orders-0":
                assert commit_order(fs, order)  # who may remove a file need not write to it
            else:
                with pytest.raises(StorageError, match=f"{locked}: this user may not write to it"):
                    commit_order(fs, order)
                assert fs.stat(join(root, UNFINISHED_WRITE)) is None
        finally:
            os.seteuid(0)


def test_a_log_is_opened_for_the_plan_without_a_change_to_it(tmp_path: Path) -> None:
    """With an id that it does not have yet: the plan opens it as the commit will."""
    fs, root = LocalFileSystem(), str(tmp_path)
    with UnifiedLog.open(tmp_path / "orders-0", LogConfig()):
        pass
    (tmp_path / CLEAN_SHUTDOWN).touch()
    options = options_for(root, partitions=None, topic_id=uuid.UUID(int=77))
    job = new_job(random.Random())
    staging = Staging(fs, options, attempt_name(job, random.Random()))
    dealer = Dealer("orders", shapes_of(look(options, fs=fs), "orders", None), None, first=0)
    pieces = stage_rows([pa.RecordBatch.from_pydict(dict(FEW))], dealer, staging)
    before = sorted((path.name, path.read_bytes()) for path in (tmp_path / "orders-0").iterdir())
    (tmp_path / pieces[0].directory / "staged.batches").write_bytes(b"")
    with pytest.raises(TidelogError, match="its task has staged"):
        commit_order(fs, Order(options, pieces, {"orders": 1}, job))
    assert sorted((path.name, path.read_bytes()) for path in (tmp_path / "orders-0").iterdir()) == before


# -- names, and a broker's root ----------------------------------------------------------------------------------------


def test_topics_that_begin_alike_are_staged_apart(disk: SimulatedFileSystem) -> None:
    """Their directories hold only the beginning, for which there is room."""
    first, second = "a" * 240 + "1", "a" * 240 + "2"
    rows = {"topic": [first, second, first], "value": [b"a0", b"b0", b"a1"]}
    order = staged(disk, options_for(ROOT, topic=None, partitions=None), rows)
    assert len({piece.directory for piece in order.pieces}) == 2
    commit_order(disk, order)
    assert values(disk.copy(), ROOT, first) == {0: [b"a0", b"a1"]}
    assert values(disk.copy(), ROOT, second) == {0: [b"b0"]}
    assert list(staged_directories(disk, ROOT)) == []


def test_what_was_staged_in_a_name_of_its_own_is_what_a_broker_removes(disk: SimulatedFileSystem) -> None:
    order = staged(disk, options_for(ROOT), KEYED)
    assert len({piece.directory[-len("-delete") - 16 :] for piece in order.pieces}) == 3  # digits of each partition
    with LogManager.open(ROOT, fs=disk, clock=ManualClock(NOW)) as manager:
        assert list(manager.logs_of_topic("orders")) == []
    assert {str(TopicPartition("orders", number)) for number in range(3)} == {
        piece.directory.partition(".")[0] for piece in order.pieces
    }


def test_what_is_new_in_the_root_of_a_broker_is_told_once(
    disk: SimulatedFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    commit_order(disk, staged(disk, options_for(ROOT, topic="before", partitions=1)))
    assert caplog.text == ""
    put(disk, META_PROPERTIES, "version=1\nnode.id=1\ncluster.id=x\n")
    commit_order(disk, staged(disk, options_for(ROOT, is_only_log_dir=True)))
    assert caplog.text.count("the cluster of this broker may not know orders; ") == 1
    assert "--create --topic orders --partitions N, stop the broker, write, start the broker" in caplog.text
    caplog.clear()
    commit_order(disk, staged(disk, options_for(ROOT)))
    commit_order(disk, staged(disk, options_for(ROOT, overwrite=True)))
    commit_order(disk, staged(disk, options_for(ROOT, topic="known", topic_id=uuid.UUID(int=77), is_only_log_dir=True)))
    assert caplog.text == ""
    disk.remove_directory(join(ROOT, "orders-1"))
    with pytest.raises(InvalidRequestError, match="orders-1 has no directory in .* that it reached offset 1: restore"):
        commit_order(disk, staged(disk, options_for(ROOT, is_only_log_dir=True)))
    caplog.clear()
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        put(disk, name, "0\n1\norders 0 1\n")
    commit_order(disk, staged(disk, options_for(ROOT, is_only_log_dir=True)))
    assert caplog.text.count("the cluster of this broker may not know orders; ") == 1


@pytest.mark.parametrize("is_only_log_dir", [False, True])
def test_a_directory_of_a_broker_that_has_more_gets_no_new_partition(tmp_path: Path, is_only_log_dir: bool) -> None:
    """Whatever the option says: the metadata log knows better, and the advice does not name the option."""
    root = Path(shutil.copytree(case("kafka-4.3/9-metadata") / "image", tmp_path / "kraft"))
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    [[registered]] = broker_log_dirs(tidelog.open(str(root))["__cluster_metadata", 0]).values()
    meta = root / META_PROPERTIES
    meta.write_text(meta.read_text().replace(registered, "tlGoldenCorpus43xxxxxA"))
    options = options_for(str(root), topic="unheard", partitions=None, is_only_log_dir=is_only_log_dir)
    fs = LocalFileSystem()
    dealer = Dealer("unheard", shapes_of(look(options, fs=fs), "unheard", None), None, first=0)
    job = new_job(random.Random())
    staging = Staging(fs, options, attempt_name(job, random.Random()))
    pieces = stage_rows([pa.RecordBatch.from_pydict(dict(FEW))], dealer, staging)
    with pytest.raises(InvalidRequestError) as told:
        commit_order(fs, Order(options, pieces, {"unheard": 1}, job))
    assert str(told.value) == (
        "broker 1 has 2 log directories by its metadata log, and 1 directory is named: unheard-0 may be in another "
        "one; write with `tidelog load --config server.properties`"
    )
    assert not (root / "unheard-0").exists()


def test_a_directory_of_a_broker_without_its_metadata_log_gets_no_new_partition(disk: SimulatedFileSystem) -> None:
    """The partition may be in another log directory of that broker, and Kafka does not start on two copies."""
    commit_order(disk, staged(disk, options_for(ROOT, topic="before", partitions=1)))
    put(disk, META_PROPERTIES, "version=1\nnode.id=1\ncluster.id=x\n")
    with pytest.raises(
        InvalidRequestError, match="belongs to broker 1, .* orders-0 may be in another one; .*onlyLogDir"
    ):
        commit_order(disk, staged(disk, options_for(ROOT)))
    assert not [name for name in disk.list(ROOT) if name.startswith("orders-") and "." not in name]
    commit_order(disk, staged(disk, options_for(ROOT, topic="before", partitions=1), {"value": [b"x"]}))
