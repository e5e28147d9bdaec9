"""Kafka started after a kill in a write never serves a part of it. The campaign `killed-writes` kills at every step."""

from pathlib import Path

from tests.compat.killed_writes import judge, template_in


def test_kafka_serves_all_or_nothing_of_a_write_that_was_killed(tmp_path: Path) -> None:
    template = template_in(tmp_path)
    commit, load = template.calls["commit"], template.calls["load"]
    assert {judge(template, tmp_path, "commit", call) for call in (3, commit)} == {"commit-nothing", "commit-all"}
    for call in (commit * 4 // 10, commit * 7 // 10):
        assert judge(template, tmp_path, "commit", call) == "commit-refused-then-all"
    assert judge(template, tmp_path, "load", load * 6 // 10) == "load-refused-then-nothing"
