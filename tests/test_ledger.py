"""The ledger is honest: claims name real rows, and the page in docs/ says what the tests say."""

import pytest

from tests import ledger
from tests.ledger import Claim

CHECKLIST = ledger.read_checklist()


def test_the_checklist_holds_every_row_once_under_a_known_prefix() -> None:
    lines = ledger.CHECKLIST.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(CHECKLIST) == 713
    assert {id_[:3] for id_ in CHECKLIST} == set(ledger.SUBJECTS)
    assert all(sentence.strip() for sentence in CHECKLIST.values())


def test_every_id_named_by_a_test_is_in_the_checklist() -> None:
    assert ledger.unknown_ids(ledger.collect_claims(), CHECKLIST) == []


def test_the_page_in_docs_is_up_to_date() -> None:
    page = ledger.PAGE.read_text(encoding="utf-8")
    rendered = ledger.render(CHECKLIST, ledger.collect_claims(), ledger.read_reasons())
    assert page == rendered, "the claims changed: run `make docs`"


# What is built so far. Of the others nothing is said yet.
DONE = {"REC", "VAL", "SEG", "IDX", "LOC", "LOG", "LDR", "PSM", "LEC", "CKP", "CFG", "MGR", "CLN", "DMP"}


def test_of_what_is_built_every_row_is_shown_or_absent_for_a_reason() -> None:
    shown, reasons = {claim.id for claim in ledger.collect_claims()}, ledger.read_reasons()
    rows = [id_ for id_ in CHECKLIST if id_[:3] in DONE]
    assert [id_ for id_ in rows if id_ not in shown and not reasons.get(id_, "").strip()] == []


def test_a_reason_is_given_only_for_rows_that_no_test_shows() -> None:
    shown, reasons = {claim.id for claim in ledger.collect_claims()}, ledger.read_reasons()
    assert sorted(shown.intersection(reasons)) == []
    assert [id_ for id_ in reasons if id_ not in CHECKLIST] == []


def test_claims_are_found_on_functions_classes_modules_and_parameters() -> None:
    source = """
pytestmark = behaviour("REC-001")

@behaviour("REC-002", "REC-003")
def test_one(): ...

@pytest.mark.behaviour("REC-004")
class TestTwo:
    @behaviour("REC-005")
    async def test_three(self): ...

@pytest.mark.parametrize("x", [pytest.param(1, marks=behaviour("REC-006"))])
def test_four(x): ...
"""
    assert sorted(ledger.claims_in(source, "t.py")) == [
        Claim("REC-001", "t.py"),
        Claim("REC-002", "t.py::test_one"),
        Claim("REC-003", "t.py::test_one"),
        Claim("REC-004", "t.py::TestTwo"),
        Claim("REC-005", "t.py::TestTwo::test_three"),
        Claim("REC-006", "t.py::test_four"),
    ]


def test_an_id_that_is_computed_is_refused_because_the_ledger_could_not_read_it() -> None:
    with pytest.raises(ValueError, match=r"t\.py:2: behaviour ids must be literal strings"):
        list(ledger.claims_in("\n@behaviour(*IDS)\ndef test(): ...", "t.py"))


def test_a_bar_in_a_sentence_does_not_end_the_cell_of_the_page() -> None:
    page = ledger.render({"REC-001": "a | b"}, [Claim("REC-001", "t.py::test_one")], {})
    assert "| REC-001 | a \\| b | `t.py::test_one` |" in page


def test_an_absent_row_tells_its_reason() -> None:
    page = ledger.render({"REC-001": "one", "REC-002": "two"}, [], {"REC-001": "not yet"})
    assert "| REC-001 | one | absent: not yet |" in page
    assert "| REC-002 | two | - |" in page


def test_the_counts_tell_a_behaviour_shown_twice_only_once() -> None:
    checklist = {"REC-001": "one", "REC-002": "two"}
    claims = [Claim("REC-001", "t.py::test_one"), Claim("REC-001", "t.py::test_two")]
    assert ledger.summary(checklist, claims)[0] == ("REC", "Record batches and records", 2, 1)
