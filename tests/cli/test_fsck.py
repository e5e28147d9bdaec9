"""`tidelog fsck`: what it shows, what it changes, and how it ends."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.terminal import in_terminal
from tests.fsck.roots_on_disk import a_root, contents, flip, segment
from tests.golden.corpus import case
from tidelog.cli.main import cli
from tidelog.log.files import join
from tidelog.log.locks import lock_path

SETTINGS = ("--set", "index.interval.bytes=150", "--set", "segment.index.bytes=1200")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_root(tmp_path)


def fsck(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["fsck", *map(str, arguments)])


def test_a_sound_root_ends_with_0_and_one_line_of_counts(root: Path) -> None:
    done = fsck(root, "--deep")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == "4 partitions, 17 segments, 95 batches, 11 kB: nothing wrong"


def test_findings_end_with_1_and_are_a_table_of_severity_code_place_and_words(root: Path) -> None:
    flip(segment(root), 70)
    done = fsck(root)
    assert done.exit_code == 1
    (line,) = [line for line in done.stdout.splitlines() if "LOG-CRC" in line]
    assert line.split()[:4] == ["error", "LOG-CRC", f"orders-0/{segment(root).name}", "at"]
    assert "1 error, 0 warnings" in done.stdout


def test_findings_stand_under_their_log_directory_and_errors_come_first(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(root, other)
    flip(segment(root), 70)
    (root / "orders-0" / "a-file").write_text("mine")
    lines = fsck(tmp_path).stdout.splitlines()
    at = lines.index(f"Findings in {root}")
    found = [line.split()[:2] for line in lines[at + 2 :] if line.split()[0] in ("error", "warning", "info")]
    assert found[:2] == [["error", "LOG-CRC"], ["warning", "PAR-FOREIGN"]]
    severities = [one["severity"][0] for one in json.loads(fsck(tmp_path, "--json").stdout)["findings"]]
    assert severities == sorted(severities, key="ewi".index)


def test_in_a_narrow_terminal_the_message_stands_below_its_finding_and_is_not_cut(root: Path) -> None:
    flip(segment(root), 70)
    found = json.loads(fsck(root, "--json").stdout)["findings"]
    (message,) = [one["message"] for one in found if one["code"] == "LOG-CRC"]
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", in_terminal("fsck", str(root), columns=80).text)
    lines = text.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("error     LOG-CRC  ")]
    assert f"orders-0/{segment(root).name} at " in lines[at]
    assert "…" not in lines[at]
    assert lines[at + 1].startswith("    batch at offset ")
    assert message.startswith(lines[at + 1].strip())
    wide = in_terminal("fsck", str(root), columns=200).text
    assert any("LOG-CRC" in line and message in line for line in wide.splitlines())


def test_findings_below_a_severity_are_not_printed_and_count_all_the_same(root: Path) -> None:
    (root / "orders-0" / "a-file").write_text("mine")
    done = fsck(root, "--min-severity", "error")
    assert (done.exit_code, "PAR-FOREIGN" in done.stdout) == (1, False)
    assert "0 errors, 1 warning" in done.stdout
    assert "PAR-FOREIGN" in fsck(root, "--min-severity", "warning").stdout
    assert json.loads(fsck(root, "--min-severity", "error", "--json").stdout)["findings"] == []


def test_a_dry_run_beside_a_broker_says_that_a_repair_would_refuse(root: Path) -> None:
    flip(segment(root), 70)
    (root / ".lock").touch()
    assert "would refuse" not in fsck(root, "--repair", "--dry-run").stdout
    script = (
        "import sys; from tidelog.log.locks import lock_path as lock; held = lock(sys.argv[1]); print('held'); input()"
    )
    command = [sys.executable, "-uc", script, str(root / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "held\n"
        done = fsck(root, "--repair", "--dry-run")
        assert f"{root}: a broker or another tidelog has it open, and a repair would refuse it" in done.stdout
        assert json.loads(fsck(root, "--repair", "--dry-run", "--json").stdout)["in_use"] == [str(root)]
        broker.communicate("\n")


def test_programs_get_one_object(root: Path) -> None:
    flip(segment(root), 70)
    done = fsck(root, "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["clean"], told["errors"]) == (1, False, 1)
    assert told["findings"][-1].keys() >= {"code", "severity", "file", "position", "size", "offsets", "remedy"}


def test_a_dry_run_tells_the_plan_and_changes_nothing(root: Path) -> None:
    flip(segment(root), 70)
    before = contents(root.parent)
    done = fsck(root, "--repair", "--dry-run")
    assert done.exit_code == 1
    assert "bytes 0 to" in done.stdout
    assert "00000000000000000000.log: rewritten from its sound batches" in done.stdout
    assert "plan" in json.loads(fsck(root, "--repair", "--dry-run", "--json").stdout)
    assert contents(root.parent) == before


def test_a_repair_ends_with_0_and_names_the_quarantine(root: Path) -> None:
    flip(segment(root), 70)
    done = fsck(root, "--repair", *SETTINGS)
    assert done.exit_code == 0, done.output
    assert f"quarantine: {root}.tidelog/" in done.stdout
    assert done.stdout.splitlines()[-1] == "checked again: nothing wrong"
    assert fsck(root, "--deep").exit_code == 0


def test_a_repair_of_several_directories_counts_its_pieces_once(root: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(root, tmp_path / "other"))
    for one in (root, other):
        flip(segment(one), 70)
    lines = [line for line in fsck("--repair", root, other).stdout.splitlines() if line.startswith("quarantine:")]
    assert ["piece" in line for line in lines] == [False, True]
    assert lines[-1].endswith(" in all)")


def test_a_repair_tells_programs_what_was_done(root: Path, tmp_path: Path) -> None:
    (root / "orders-0" / "notes.txt").write_text("mine")
    done = fsck(root, "--repair", "--json", "--quarantine", tmp_path / "aside", *SETTINGS)
    told = json.loads(done.stdout)
    assert (done.exit_code, told["after"]["clean"], told["pieces"], told["failures"]) == (0, True, 1, [])
    assert told["quarantine"][0].startswith(str(tmp_path / "aside"))


def test_what_is_left_to_people_ends_with_1_and_says_what_to_try(root: Path) -> None:
    (root / "keys-0" / "partition.metadata").unlink()
    done = fsck(root, "--repair", *SETTINGS)
    assert done.exit_code == 1
    assert "no other partition of the topic here names the id" in done.stdout
    assert "restore partition.metadata from a replica" in done.stdout


def test_what_a_repair_leaves_says_why_and_what_to_do_and_not_that_a_repair_does_it(tmp_path: Path) -> None:
    root = Path(shutil.copytree(case("kafka-4.3/9-metadata") / "image", tmp_path / "root"))
    metadata = next((root / "__cluster_metadata-0").glob("*.log"))
    flip(metadata, metadata.stat().st_size // 2)
    (root / "views-0" / "link").symlink_to(tmp_path)
    assert "\nLOG-CRC: a repair leaves it as it is, since a metadata log without" in fsck(root).stdout
    done = fsck(root, "--repair")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    left = lines[lines.index("Left to you") : -1]
    (damaged,) = [line for line in left if line.startswith(f"{metadata}: ")]
    assert "a repair leaves it as it is, since a metadata log without some of its records is another cluster" in damaged
    (link,) = [line for line in left if line.startswith(f"{root}/views-0/link: ")]
    assert link.endswith("no regular file but a link or the like: move it away yourself")
    assert "tidelog fsck --repair" not in "".join(left)
    assert lines[-1] == "checked again: 1 error, 12 warnings, all of them left to you"


def test_an_empty_foreign_directory_is_removed_and_no_quarantine_is_named(root: Path) -> None:
    (root / "foo" / "bar").mkdir(parents=True)
    done = fsck(root, "--repair")
    assert f"{root}/foo: removed, since it holds no file (ROOT-FOREIGN)" in done.stdout
    assert "quarantine" not in done.stdout


def test_a_repair_says_which_offsets_are_gone(root: Path) -> None:
    flip(segment(root), 70)
    done = fsck(root, "--repair", "--dry-run")
    (line,) = [line for line in done.stdout.splitlines() if " to the quarantine (LOG-CRC)" in line]
    assert re.search(r"; offsets? \d+( to \d+)? (is|are) gone$", line), line


def test_a_segment_in_doubt_ends_a_repair_with_1_and_the_next_check_with_0(root: Path) -> None:
    for suffix in (".index", ".timeindex"):
        flip(segment(root, 3, suffix), 7)
    done = fsck(root, "--repair", *SETTINGS)
    assert "(SEG-DOUBT)" in done.stdout
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (
        1,
        "checked again: nothing wrong, but for what is left to you",
    )
    done = fsck(root)
    assert done.exit_code == 0, done.output
    assert "was in doubt when it was repaired on " in done.stdout
    assert fsck(root, "--repair", *SETTINGS).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dry-run",), "--dry-run goes with --repair"),
        (("--set", "index.interval.bytes=1"), "--set goes with --repair"),
        (("--repair", "--set", "nonsense"), "is not NAME=VALUE"),
    ],
)
def test_wrong_usage_is_one_sentence(root: Path, arguments: tuple[str, ...], words: str) -> None:
    done = fsck(root, *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_a_place_without_logs_and_a_root_in_use_are_one_line(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = fsck(tmp_path / "empty")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    lock = lock_path(join(str(root), ".lock"))
    try:
        done = fsck(root, "--repair")
    finally:
        lock.release()
    assert done.exit_code == 3
    assert done.stderr == f"tidelog: a broker or another tidelog has {root} open: stop it first\n"


def test_what_people_have_to_do_themselves_stands_below_the_findings(root: Path) -> None:
    (root / "keys-0" / "00000000000000000000.log").unlink()
    os.mkfifo(root / "keys-0" / "00000000000000000000.log")
    done = fsck(root)
    assert done.exit_code == 1
    assert "FILE-READ: check its permissions and the disk; move away what is not a regular file\n" in done.stdout


def test_a_directory_that_load_made_is_fine(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"key": "a", "value": "x"}\n')
    loaded = CliRunner().invoke(
        cli, ["load", str(tmp_path / "in.jsonl"), "--to", str(tmp_path / "root"), "--topic", "orders"]
    )
    assert loaded.exit_code == 0, loaded.output
    for path in (tmp_path / "root", tmp_path / "root" / "orders-0"):
        assert fsck(path).exit_code == 0, fsck(path).output


def test_a_repair_needs_no_configs_to_leave_sound_indexes_alone(root: Path) -> None:
    flip(segment(root), 70)
    sound = [path for path in root.rglob("*.index") if path != segment(root, 0, ".index")]
    before = [path.read_bytes() for path in sound]
    done = fsck(root, "--repair")
    assert done.exit_code == 0, done.output
    assert [path.read_bytes() for path in sound] == before
    assert f"{segment(root, 0, '.index')}: rebuilt from the log (LOG-CRC)" in done.stdout


def test_the_first_line_says_whether_kafka_would_start(root: Path) -> None:
    assert fsck(root).stdout.splitlines()[0] == "Would Kafka 4.3 start? unknown: no metadata log here"


def test_would_start_is_json_and_ends_with_0_only_for_everything(tmp_path: Path) -> None:
    image = Path(shutil.copytree(case("kafka-4.3/9-metadata") / "image", tmp_path / "image"))
    done = fsck(image, "--would-start")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["would_start"], told["with_everything"]) == (1, True, False)
    assert told["topics"]["orders"]["0"]["log_start"] == 5
    assert "__consumer_offsets-0" in told["created_empty"]
    (image / "__cluster_metadata-0" / "quorum-state").write_text("")
    done = fsck(image, "--would-start")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["would_start"], told["topics"]) == (1, False, {})
    assert "quorum-state" in told["reason"]


def test_would_start_goes_alone(root: Path) -> None:
    assert fsck(root, "--would-start", "--repair").exit_code == 2


def test_the_properties_of_a_broker_name_the_directories_of_fsck_and_recover(root: Path, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={root}\n")
    assert fsck("--config", properties).stdout == fsck(root).stdout
    done = CliRunner().invoke(cli, ["recover", "--config", str(properties)])
    assert (done.exit_code, done.stdout) == (0, f"{root}: nothing to recover\n")
    for command in ("fsck", "recover"):
        both = CliRunner().invoke(cli, [command, str(root), "--config", str(properties)])
        assert (both.exit_code, "both name log directories" in both.stderr) == (2, True)
        none = CliRunner().invoke(cli, [command])
        assert (none.exit_code, "no log directory is named" in none.stderr) == (2, True)


def test_a_repair_in_an_object_store_is_one_sentence_of_wrong_usage() -> None:
    done = fsck("--repair", "s3://bucket/logs")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "s3://bucket/logs" in done.stderr
    assert "is no directory" not in done.stderr
