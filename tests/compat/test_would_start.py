"""Would Kafka start on damaged directories, and with what: a sample of the campaign, before a real broker."""

from pathlib import Path

import pytest

from tests.compat.judged_roots import FOLDERS, STATES, copy_tree, judged_roots
from tests.compat.start_campaign import agree, judge_case, told, told_verdict
from tests.compat.start_judge import StartJudge
from tidelog.fsck.would_start import would_start
from tidelog.log.local_files import LocalFileSystem

SAMPLE = (1031, 1047, 1049, 1055, 1071, 2034, 2117, 3000)


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


def test_some_of_the_log_dirs_of_a_node_are_not_judged() -> None:
    found = would_start(LocalFileSystem(), [str(root) for root in judged_roots()[STATES[0]][:2]])
    assert (found.starts, found.reason) == (None, "node 1 has 3 directories, 2 named here: name all of its log.dirs")
