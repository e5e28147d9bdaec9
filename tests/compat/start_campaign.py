"""Would Kafka start on damaged directories, and with what: our verdict beside what Apache Kafka 4.3 does.

A case is a state of directories (judged_roots.py), damaged by a seeded choice (start_damages.py; one in three by name:
record_damages.py, file_damages.py, order_damages.py), judged by us, and given to a broker. Both must say the same:
whether it starts, with which topics, and where each partition begins and ends. Needs Apache Kafka's jars (`make compat`
fetches them) and Java.

    python -m tests.campaign --only starts --seed 7 --cases 1        one case again
"""

import os
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import click

from tests.compat.file_damages import FILE_DAMAGES
from tests.compat.judged_roots import FOLDERS, STATES, copy_tree, judged_roots
from tests.compat.kafka_tools import missing
from tests.compat.order_damages import ORDER_DAMAGES
from tests.compat.record_damages import RECORD_DAMAGES
from tests.compat.start_damages import damage
from tests.compat.start_judge import Judged, Late, StartJudge
from tidelog.fsck.verdict import Verdict
from tidelog.fsck.would_start import would_start
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import TopicPartition

ATTEMPTS = 3
NAMED = 1 / 3  # of the cases
# Kafka neither serves nor gives up, so there is nothing to compare.
HANGS = {
    "a topic again with another name",
    "broker config min.insync.replicas=x of ''",
    "empty 00000000000000000700.log in __cluster_metadata-0",
    "empty 00000000000000000700.log.swap in __cluster_metadata-0",
    "last segment of the metadata named '9223372036854775806'",
    "last segment of the metadata named '9223372036854775807'",
}
DAMAGES = {
    name: damage for name, damage in {**RECORD_DAMAGES, **FILE_DAMAGES, **ORDER_DAMAGES}.items() if name not in HANGS
}


class Case(NamedTuple):
    """What was done to which directories."""

    number: int
    state: str
    words: str

    def __str__(self) -> str:
        return f"case {self.number}, {self.state}: {self.words}"


def run(seed: int, cases: int) -> Counter[str]:
    """Judge cases with the numbers from `seed` on. All are looked at before the disagreements are told."""
    reason = missing()
    if reason is not None:
        raise AssertionError(f"cases of kind starts are judged by Apache Kafka: {reason}")
    outcomes: Counter[str] = Counter()
    disagreements = []
    with StartJudge() as judge:
        for number in range(seed, seed + cases):
            outcome, words = judge_case(judge, number)
            outcomes[f"starts-{outcome}"] += 1
            if outcome == "disagreement":
                again = f"again: python -m tests.campaign --only starts --seed {number} --cases 1"
                disagreements.append(f"{words}\n{again}")
                if "TIDELOG_TELL" in os.environ:
                    click.echo(disagreements[-1])
    if disagreements:
        raise AssertionError("\n".join([*disagreements, f"{len(disagreements)} of {cases} cases: {dict(outcomes)}"]))
    return outcomes


def judge_case(judge: StartJudge, number: int) -> tuple[str, str]:
    """In a word how a case went, and in a sentence what both said."""
    for _ in range(ATTEMPTS - 1):
        try:
            return _judge_case(judge, number)
        except Late:
            continue
    return _judge_case(judge, number)


def _judge_case(judge: StartJudge, number: int) -> tuple[str, str]:
    chooser = random.Random(f"named {number}")
    name = chooser.choice(sorted(DAMAGES)) if chooser.random() < NAMED else None
    return judge_damage(judge, number, STATES[number % len(STATES)], name)


def judge_damage(judge: StartJudge, number: int, state: str, name: str | None) -> tuple[str, str]:
    """Judge one damage, of that name or of any kind, done to a state."""
    rng = random.Random(number)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        work = Path(folder) / "roots"
        copy_tree(judged_roots()[state][0].parent, work)
        roots = [work / name for name in FOLDERS]
        words = damage(roots, rng) if name is None else name
        if name is not None:
            DAMAGES[name](roots, rng)
        case = Case(number, state, words)
        ours = would_start(LocalFileSystem(), [str(root) for root in roots])
        kafka = judge.start(roots, is_dynamic=state.startswith("dynamic"))
    words = f"{case}\n  Kafka: {told(kafka)}\n  ours:  {told_verdict(ours)}"
    if ours.starts is None:
        return "unknown", words
    if not agree(ours, kafka):
        return "disagreement", words
    return "refused" if not ours.starts else "whole" if ours.is_whole else "partial", words


def agree(ours: Verdict, kafka: Judged) -> bool:
    """Whether two verdicts say the same. What is uncertain may be served or not."""
    if ours.starts != (kafka.error is None):
        return False
    if not ours.starts:
        return True
    if ours.topics.keys() != kafka.topics.keys():
        return False
    return all(
        served == _plain(ours.topics[topic].get(number))
        or (served is None and TopicPartition(topic, number) in ours.uncertain)
        for topic, partitions in kafka.topics.items()
        for number, served in partitions.items()
    )


def _plain(offsets: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if offsets is None else (offsets[0], offsets[1])


def told(judged: Judged) -> str:
    """What Kafka did, in a line."""
    return f"no, {judged.error[:300]}" if judged.error is not None else f"yes, {_topics(judged.topics)}"


def told_verdict(verdict: Verdict) -> str:
    """What we say, in a line."""
    return f"no, {verdict.reason_path}: {verdict.reason}" if not verdict.starts else f"yes, {_topics(verdict.topics)}"


def _topics(topics: object) -> str:
    assert isinstance(topics, dict)
    return ", ".join(
        f"{topic}-{number} {'-' if at is None else f'{at[0]}..{at[1]}'}"
        for topic, parts in sorted(topics.items())
        for number, at in sorted(parts.items())
    )
