"""Would Kafka start on damaged directories, and with what: a sample of the campaign, before a real broker."""

from pathlib import Path

import pytest

from tests.compat import broker_clients as clients
from tests.compat.broker import Broker
from tests.compat.judged_roots import FOLDERS, STATES, copy_tree, judged_roots
from tests.compat.node_starts import run as run_nodes
from tests.compat.start_campaign import agree, judge_case, judge_damage, told, told_verdict
from tests.compat.start_judge import StartJudge
from tests.log.logs import sealed
from tidelog.fsck import Severity, check, repair, verdicts
from tidelog.fsck.would_start import would_start
from tidelog.log.local_files import LocalFileSystem
from tidelog.records import RecordBatch, read_batches

SAMPLE = (1031, 1047, 1049, 1055, 1071, 2034, 2117, 3000)
NAMED = (
    "metadata.version 7",
    "a partition with a foreign ISR",
    "topic config segment.index.bytes='12'",
    ".kafka_cleanshutdown of root 1 is a directory",
    "last .snapshot of __cluster_metadata-0 is a directory",
    "first segment of orders-1 named '-0000000000000000001'",
    "no metadata, and bootstrap.checkpoint with a high level",
    "no metadata, and bootstrap.checkpoint with a changed checksum",
    "bootstrap.checkpoint with a cut footer",
    "bootstrap.checkpoint with cut records",
    "bootstrap.checkpoint with zeros at the end",
    "bootstrap.checkpoint with a changed record",
    "quorum-state leaderId=-2",
    "root 1 loops",
    "version 0 and codec 3 in the last batch of orders-1",
    "a last offset before the first in the last batch of orders-1",
    "a late batch of the metadata log again near the start of its segment",
    "a late batch of the metadata log again before its successor",
    "a late batch of the metadata log only near the start of its segment",
    "the last batch of the metadata log but one again at its end",
    "the newest snapshot ends inside of a batch of topics",
    "the newest snapshot ends after the log",
    "a control batch of the metadata log again in the middle",
    "a control record that a new leader reads again",
)


def test_verdicts_on_named_damage_are_those_of_kafka() -> None:
    with StartJudge() as judge:
        outcomes = [judge_damage(judge, 7, "static-clean", name) for name in NAMED]
    assert [words for outcome, words in outcomes if outcome in ("disagreement", "unknown")] == []


def test_verdicts_on_damaged_directories_are_those_of_kafka() -> None:
    with StartJudge() as judge:
        outcomes = [judge_case(judge, number) for number in SAMPLE]
    assert [words for outcome, words in outcomes if outcome == "disagreement"] == []
    assert {"refused", "partial"} <= {outcome for outcome, _ in outcomes}


@pytest.mark.parametrize("state", [STATES[0], STATES[3]])
def test_sound_directories_start_with_everything(state: str, tmp_path: Path) -> None:
    work = tmp_path / "roots"
    copy_tree(judged_roots()[state][0].parent, work)
    roots = [work / name for name in FOLDERS]
    ours = would_start(LocalFileSystem(), [str(root) for root in roots])
    with StartJudge() as judge:
        kafka = judge.start(roots, is_dynamic=state.startswith("dynamic"))
    assert ours.is_whole
    assert agree(ours, kafka), f"{told(kafka)}\n{told_verdict(ours)}"


def test_verdicts_on_nodes_that_are_only_a_broker_or_a_controller_are_those_of_kafka() -> None:
    outcomes = run_nodes(seed=100, cases=8)
    assert {"node-starts-broker-started", "node-starts-controller-started"} <= outcomes.keys()


def test_some_of_the_log_dirs_of_a_node_are_not_judged() -> None:
    found = would_start(LocalFileSystem(), [str(root) for root in judged_roots()[STATES[0]][:2]])
    assert (found.starts, found.reason) == (None, "node 1 has 3 directories, 2 named here: name all of its log.dirs")


def test_kafka_rebuilds_all_indexes_of_a_segment_without_offset_index(tmp_path: Path) -> None:
    """So fsck has no error for it."""
    copy_tree(judged_roots()[STATES[0]][0].parent, tmp_path / "roots")
    roots = [tmp_path / "roots" / name for name in FOLDERS]
    (directory,) = [root / "payments-1" for root in roots if (root / "payments-1").exists()]
    first = directory / f"{0:020}.log"
    indexes = {path: path.read_bytes() for path in directory.glob(f"{0:020}.*index")}
    assert indexes.keys() == {first.with_suffix(suffix) for suffix in (".index", ".timeindex", ".txnindex")}
    for path in indexes:
        path.unlink()
    report = check([str(root) for root in roots])
    assert {one.code for one in report.findings if one.file.startswith(str(directory))} == {
        "IDX-MISSING", "TIX-MISSING", "TXN-MISSING",
    }  # fmt: skip
    assert not [one for one in report.findings if one.severity is Severity.ERROR]
    with StartJudge() as judge:
        assert judge.start(roots, is_dynamic=False).error is None
    assert {path: path.read_bytes() for path in indexes} == indexes


@pytest.mark.parametrize("state", ["static-clean", "static-killed"])
def test_a_marker_that_cannot_be_read_keeps_kafka_from_starting_until_it_is_repaired(
    state: str, tmp_path: Path
) -> None:
    copy_tree(judged_roots()[state][0].parent, tmp_path / "roots")
    roots = [tmp_path / "roots" / name for name in FOLDERS]
    (directory,) = [root / "payments-1" for root in roots if (root / "payments-1").exists()]
    log = max(directory.glob("*.log"))  # of a broker that was killed it is recovered, else only replayed
    data = log.read_bytes()
    *_, last = [batch for batch in read_batches(data) if batch.is_control]
    assert isinstance(last, RecordBatch)
    marker = bytes(last.buffer)
    start = data.rindex(marker)
    bad = sealed(marker, {len(marker) - 9: 9})  # a record of an unknown type
    log.chmod(0o644)
    log.write_bytes(data[:start] + bad + data[start + len(marker) :])
    if state.endswith("clean"):
        for snapshot in directory.glob("*.snapshot"):
            snapshot.chmod(0o644)
            snapshot.write_bytes(b"none")
    names = [str(root) for root in roots]
    work = tmp_path / "tried"
    copy_tree(roots[0].parent, work)
    with StartJudge() as judge:
        ours, kafka = (
            would_start(LocalFileSystem(), names),
            judge.start([work / name for name in FOLDERS], is_dynamic=False),
        )
        assert not ours.starts
        assert agree(ours, kafka), f"{told(kafka)}\n{told_verdict(ours)}"
        assert "LOG-RECORDS" in check(names).codes()
        assert repair(names).is_clean
        ours = would_start(LocalFileSystem(), names)
        kafka = judge.start(roots, is_dynamic=False)
    assert ours.starts
    assert agree(ours, kafka), f"{told(kafka)}\n{told_verdict(ours)}"


def test_a_metadata_log_dir_outside_of_log_dirs_may_lie_on_a_mount_of_its_own(tmp_path: Path) -> None:
    roots, metadata = [tmp_path / "first", tmp_path / "second"], tmp_path / "metadata"
    for directory in (*roots, metadata):
        directory.mkdir()
    (metadata / "lost+found").mkdir()
    broker = Broker.format(roots[0], {"metadata.log.dir": metadata}, more_roots=roots[1:])
    with broker.running():
        clients.create_topic(broker, "orders", 2)
    names = [str(each) for each in (*roots, metadata)]
    report = check(names)
    assert report.is_clean, [(one.code, one.file) for one in report.findings]
    (verdict,) = report.verdicts
    assert (verdict.is_whole, verdict.topics["orders"]) == (True, {0: (0, 0), 1: (0, 0)}), verdict
    (roots[1] / "lost+found").mkdir()
    assert would_start(LocalFileSystem(), names).starts is False
    assert broker.refuses_to_start()


def test_log_dirs_that_are_missing_empty_or_files_are_judged_as_by_kafka(tmp_path: Path) -> None:
    with StartJudge() as judge:
        for kind, starts in (("missing", False), ("empty", False), ("file", True)):
            work = tmp_path / kind
            copy_tree(judged_roots()["static-clean"][0].parent, work)
            roots = [work / name for name in FOLDERS]
            roots[1].rename(tmp_path / f"{kind}-before")
            if kind == "empty":
                roots[1].mkdir()
            elif kind == "file":
                roots[1].write_text("x")
            (ours,) = verdicts([str(root) for root in roots])
            kafka = judge.start(roots, is_dynamic=False)
            assert ours.starts is starts
            assert agree(ours, kafka), f"{kind}: {told(kafka)}\n{told_verdict(ours)}"
