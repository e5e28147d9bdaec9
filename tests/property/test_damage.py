"""Damaged files: right answers, named errors, or harm that Kafka's format cannot see and that is listed.

A sample; `make campaign` judges every bit and every byte.
"""

import random
from collections import defaultdict

import pytest

from tests.property.damage import (
    CLEAN,
    CUT,
    FLUSHED,
    HARM,
    MODES,
    PAGE,
    RECOVERED,
    RIGHT,
    SEEN,
    Damage,
    Tally,
    Unexcused,
    all_damage,
    is_excused,
    judge,
    judged,
    run,
    sound_answers,
)
from tests.property.damage_image import LOG_END, SCRIPT, Refused
from tidelog.log import Isolation

FIRST_LOG, SECOND_LOG, LAST_LOG = (f"{base:020}.log" for base in (0, 5, 11))
SEEDS = range(8)
OF_EACH = 6  # cases per kind of file and mode, and seed
BESIDES = 120  # more, of all


def sample(seed: int) -> list[Damage]:
    """Cases of every kind of file in every mode."""
    rng = random.Random(seed)
    by_kind: defaultdict[tuple[str, str], list[Damage]] = defaultdict(list)
    for damage in all_damage():
        by_kind[damage.mode, damage.kind].append(damage)
    of_each = [damage for cases in by_kind.values() for damage in rng.sample(cases, OF_EACH)]
    return of_each + rng.sample(all_damage(), BESIDES)


def listed_harm() -> set[tuple[str, ...]]:
    """File and field of every row of the page that tells of harm."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("| File | Field |")
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line]
    return {(row[0], row[1]) for row in rows}


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_is_seen_or_harmless_or_listed(seed: int) -> None:
    listed = listed_harm()
    tally = Tally()
    for damage in sample(seed):
        verdict = judged(damage)
        tally.add(damage, verdict)
        assert verdict.outcome != HARM or (damage.kind, damage.field) in listed, str(damage)
    outcomes = {outcome for _, _, outcome in tally.counts}
    assert outcomes == {RIGHT, CUT, SEEN, HARM}


@pytest.mark.parametrize("mode", MODES)
def test_the_sound_log_answers_everything(mode: str) -> None:
    answers = sound_answers(mode, len(SCRIPT))
    assert answers["log end",] == LOG_END
    assert answers["read on", Isolation.LOG_END] == (len(SCRIPT), LOG_END)
    assert answers["committed", 0] == [0, 1, 2, 5, 6, 7, 8, 10, 13, 14]  # without 3 and 9, aborted, and the markers
    refused = {question for question, answer in answers.items() if isinstance(answer, Refused)}
    assert refused == {
        *(("read", isolation, LOG_END + 1) for isolation in Isolation),
        ("batch epoch", LOG_END + 1),
        ("committed", LOG_END + 1),
    }


def test_recovery_cuts_a_batch_whose_checksum_is_wrong() -> None:
    assert judge(Damage(RECOVERED, SECOND_LOG, 70, 3)).outcome == CUT


def test_a_damaged_batch_below_the_recovery_point_is_seen_by_whoever_reads_it() -> None:
    verdict = judge(Damage(FLUSHED, FIRST_LOG, 70, 3))
    assert verdict.outcome == SEEN
    assert "read: CorruptRecordError" in verdict.questions


def test_records_behind_a_torn_end_are_not_left_out_in_silence() -> None:
    """Kafka goes on in the next segment; a reader here is told."""
    verdict = judge(Damage(CLEAN, FIRST_LOG, 300, None))
    assert "read" not in verdict.questions


@pytest.mark.parametrize("mode", MODES)
def test_nothing_can_see_a_leader_epoch_that_was_changed(mode: str) -> None:
    verdict = judge(Damage(mode, LAST_LOG, 12, 5))
    assert verdict.outcome == HARM
    assert "batch epoch" in verdict.questions


@pytest.mark.parametrize("name", [f"{base:020}.{kind}" for base in (0, 5, 11) for kind in ("index", "timeindex")])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_wrong_index_after_a_clean_stop_changes_no_answer_and_no_log_end(name: str, bit: int) -> None:
    for position in range(8):
        assert judge(Damage(CLEAN, name, position, bit)).outcome == RIGHT


def test_harm_that_could_have_been_seen_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.property.damage.is_excused", lambda damage: False)
    with pytest.raises(Unexcused, match="batch epoch"):
        judged(Damage(RECOVERED, LAST_LOG, 12, 5))


def test_harm_is_excused_only_where_the_format_has_nothing_to_see_it_by() -> None:
    assert is_excused(Damage(RECOVERED, FIRST_LOG, 0, 1))  # base offset
    assert not is_excused(Damage(RECOVERED, FIRST_LOG, 11, 1))  # length: the checksum is of other bytes then
    assert not is_excused(Damage(FLUSHED, LAST_LOG, 40, 1))  # recovered, as the recovery point lies in it
    assert is_excused(Damage(FLUSHED, FIRST_LOG, 40, 1))
    assert not is_excused(Damage(CLEAN, "00000000000000000000.index", 0, 1))


def test_a_campaign_runs_cases_by_their_numbers() -> None:
    assert run(20_000, 10).total() == 10
    assert set(run(0, 30)) <= {"damage-right", "damage-seen", "damage-harm"}
