"""`tidelog fsck`: check every file of log directories, and repair what is damaged."""

from typing import TYPE_CHECKING, Any, NoReturn

import click

from tidelog.cli.interrupted import log_directories, settle_writes
from tidelog.cli.local_paths import LOCAL_PATH
from tidelog.cli.log_dirs import config_option, is_empty, node_directories
from tidelog.cli.output import count, interruptible, print_json, progress, say, size, table, tell

if TYPE_CHECKING:
    from tidelog.fsck import Finding, RepairResult, Report

__all__ = ["end_with", "fsck"]

_FINDINGS = 1
_REPAIR = "tidelog fsck --repair"  # a remedy that begins with it needs no other step


@click.command()
@click.argument("directories", metavar="DIR...", nargs=-1)
@config_option
@click.option("--deep", is_flag=True, help="Check every record, and replay producer state. Implied by --repair.")
@click.option("--repair", is_flag=True, help="Repair what can be repaired. The quarantine keeps what is removed.")
@click.option("--dry-run", is_flag=True, help="With --repair: print what would be done, change nothing.")
@click.option(
    "--quarantine",
    type=LOCAL_PATH,
    metavar="DIR",
    help="Where a repair keeps what it removes; by default DIR.tidelog, next to DIR.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="With --repair: a topic config for rebuilt indexes (index.interval.bytes=…), instead of the one found.",
)  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Threads; by default one per processor.")
@click.option(
    "--min-severity", type=click.Choice(["error", "warning", "info"]), default="info", show_default=True,
    help="Print findings of this severity and worse. Counts and exit code include all findings.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--would-start", is_flag=True,
    help="Print as JSON whether Kafka 4.3 would start on DIR..., all log.dirs of a node, and what it would serve.",
)  # fmt: skip
def fsck(
    directories: tuple[str, ...],
    config: str | None,
    deep: bool,
    repair: bool,
    dry_run: bool,
    quarantine: str | None,
    settings: tuple[str, ...],
    jobs: int | None,
    min_severity: str,
    as_json: bool,
    would_start: bool,
) -> None:
    """Check every file at or below DIR: log directories, partition directories, trees, or a backup at s3://bucket/path.

    The first line says whether Kafka 4.3 would start, and with how many topics: name all log.dirs of a node.

    Without --repair nothing is written or locked: a broker may be running. Each finding has a stable code
    (docs/fsck.md) and a severity. An error: readers get wrong data, or Kafka does not start. A warning: Kafka repairs
    it by itself, or it may be intended. Info needs no action.

    Stop the broker before --repair. It first takes back an interrupted load and finishes an interrupted Spark write, as
    `tidelog recover` does. Then it cuts out the bytes of damaged batches, keeps every readable batch after them, and
    rebuilds damaged indexes and snapshots from the log. Sound indexes stay as they are. The quarantine keeps everything
    that is removed, with a manifest. Run it as the broker's user, or as root: new files get the owner of the old ones.

    Exit codes: 0 nothing wrong, or everything repaired; 1 findings, or something that a repair leaves to you. With
    --would-start: 0 Kafka would start and serve everything; 1 otherwise.
    """
    directories, are_log_dirs = node_directories(directories, config, with_lost=not repair), config is not None
    if would_start:
        if repair or deep or settings or quarantine is not None:
            raise click.UsageError("--would-start checks and repairs nothing: give it without other options")
        _judge_start(directories, are_log_dirs=are_log_dirs)
    if dry_run and not repair:
        raise click.UsageError("--dry-run goes with --repair: without it nothing is changed anyway")
    if settings and not repair:
        raise click.UsageError("--set goes with --repair: a check takes indexes of any spacing")
    if repair:
        _repair(directories, quarantine, _configs(settings), jobs, min_severity, as_json, dry_run)
        return
    from tidelog.fsck import check

    with interruptible() as ensure_wanted, progress("checking", ensure_wanted) as show:
        report = check(
            directories, deep=deep, progress=show(", ".join(directories)), jobs=jobs, quarantine=quarantine,
            are_log_dirs=are_log_dirs,
        )  # fmt: skip
    end_with(report, directories, min_severity=min_severity, as_json=as_json)


def _judge_start(directories: tuple[str, ...], *, are_log_dirs: bool) -> NoReturn:
    from tidelog.fsck import verdicts

    found = verdicts(directories, are_log_dirs=are_log_dirs)
    print_json(found[0].to_dict() if len(found) == 1 else [verdict.to_dict() for verdict in found])
    raise click.exceptions.Exit(0 if found and all(verdict.is_whole for verdict in found) else _FINDINGS)


def _configs(settings: tuple[str, ...]) -> dict[str, str]:
    """The configs that were given, by Kafka's names; an unknown one is rejected."""
    from tidelog.log.config import LogConfig

    pairs = {}
    for setting in settings:
        name, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not name:
            raise click.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint="--set")
        pairs[name] = value
    LogConfig.from_properties(pairs)
    return pairs


def _repair(
    directories: tuple[str, ...],
    quarantine: str | None,
    config: dict[str, str],
    jobs: int | None,
    min_severity: str,
    as_json: bool,
    dry_run: bool,
) -> None:
    from tidelog.fsck import repair
    from tidelog.view.addresses import ensure_no_address

    ensure_no_address(directories, "a repair")
    if not dry_run:
        settle_writes(log_directories(directories))
    with progress("checking") as show:
        result = repair(
            directories, dry_run=dry_run, quarantine=quarantine, config=config, progress=show(", ".join(directories)),
            jobs=jobs,
        )  # fmt: skip
    if as_json:
        print_json(_planned_json(result, min_severity) if dry_run else _as_json(result, min_severity))
    else:
        _show(result.before, min_severity)
        (_show_planned if dry_run else _show_repaired)(result)
    for failure in result.failures:
        tell(failure)
    is_fine = result.before.is_clean and not result.failures if dry_run else result.is_settled
    raise click.exceptions.Exit(0 if is_fine else _FINDINGS)


# -- what is shown -----------------------------------------------------------------------------------------------


def end_with(report: "Report", directories: tuple[str, ...], *, min_severity: str = "info", as_json: bool) -> NoReturn:
    """Print what a check has found, and exit with 1 if anything is wrong."""
    if as_json:
        print_json(_report_json(report, min_severity))
    else:
        _show(report, min_severity)
        _show_next_steps(report)
        there = [each for each in directories if each.rstrip("/") not in report.lost and not is_empty(each)]
        if there and not report.is_clean:
            is_unfinished = any(one.code == "ROOT-LOAD" and one.severity.value == "error" for one in report.findings)
            then = "after that, " if is_unfinished else ""  # a plan is made of logs in which no write is unfinished
            say(f"{then}`tidelog fsck {' '.join(there)} --repair --dry-run` prints what can be repaired")
    raise click.exceptions.Exit(0 if report.is_clean else _FINDINGS)


def _show(report: "Report", min_severity: str) -> None:
    for verdict in report.verdicts:
        place = f"{verdict.roots[0]}: " if len(report.verdicts) > 1 else ""
        say(f"{place}{verdict}")
    shown = [finding for finding in report.findings if finding.severity.is_at_least(min_severity)]
    for root in dict.fromkeys(finding.root for finding in shown):  # errors come first, and so do their directories
        rows = [(one.severity.value, one.code, _where(one), one.message) for one in shown if one.root == root]
        title = "Findings" if root is None else f"Findings in {root}"
        table(("severity", "code", "where", "what"), rows, title, cut=("where",), below="what")
    counts = report.counts
    say(
        f"{count(counts['partitions'], 'partition')}, {count(counts['segments'], 'segment')}, "
        f"{count(counts['batches'], 'batch')}, {size(report.bytes)}: {_verdict(report)}"
    )


def _show_next_steps(report: "Report") -> None:
    """Print what a repair does not do, once per code."""
    steps = dict.fromkeys((one.code, one.remedy) for one in report.findings if one.severity.value != "info")
    for code, remedy in steps:
        if not remedy.startswith(_REPAIR):
            say(f"{code}: {remedy}")


def _verdict(report: "Report") -> str:
    if report.is_clean:
        return "nothing wrong"
    severities = report.to_dict()
    return f"{count(severities['errors'], 'error')}, {count(severities['warnings'], 'warning')}"


def _where(finding: "Finding") -> str:
    if finding.file == finding.root:
        return "."
    inside = finding.file.removeprefix(f"{finding.root}/") if finding.root is not None else finding.file
    if finding.position is None:
        return inside
    return f"{inside} at {finding.position}" + ("" if finding.size is None else f"+{finding.size}")


def _show_planned(result: "RepairResult") -> None:
    for root in result.in_use:
        say(f"{root}: a broker or another tidelog has it open, and a repair would refuse it: stop it first", bold=True)
    say("What a repair would do" if result.done else "A repair would change nothing", bold=True)
    for line in result.done:
        say(line)
    _show_left(result.left)
    if result.done:
        say(
            f"afterwards: {_verdict(result.after)}; {count(result.pieces, 'piece')}, {size(result.bytes)} in quarantine"
        )


def _show_repaired(result: "RepairResult") -> None:
    if result.done:
        say("Repaired", bold=True)
    for line in result.done:
        say(line)
    *others, last = result.quarantine or [""]
    for path in others:
        say(f"quarantine: {path}")
    if last:
        in_all = " in all" if others else ""
        say(f"quarantine: {last} ({count(result.pieces, 'piece')}, {size(result.bytes)}{in_all})")
    _show_left(result.left)
    if result.done:
        say(f"checked again: {_verdict(result.after)}{_left_of(result)}")


def _left_of(result: "RepairResult") -> str:
    """How many of the findings after a repair are left to the user."""
    if not result.left:
        return ""
    if result.after.is_clean:
        return ", but for what is left to you"
    left = {(one.code, one.file, one.position) for one in result.left}
    found = [one for one in result.after.findings if one.severity.value != "info"]
    count_left = sum((one.code, one.file, one.position) in left for one in found)
    return ", all of them left to you" if count_left == len(found) else f", {count_left} of them left to you"


def _show_left(left: "list[Finding]") -> None:
    if left:
        say("Left to you", bold=True)
    for finding in left:
        say(f"{finding.file}: {finding.message} ({finding.code}); {finding.remedy}")


def _report_json(report: "Report", min_severity: str) -> dict[str, Any]:
    shown = [one.to_dict() for one in report.findings if one.severity.is_at_least(min_severity)]
    return report.to_dict() | {"findings": shown}


def _planned_json(result: "RepairResult", min_severity: str) -> dict[str, object]:
    return _report_json(result.before, min_severity) | {
        "plan": result.done,
        "in_use": result.in_use,
        "left": [finding.to_dict() for finding in result.left],
        "failures": result.failures,
    }


def _as_json(result: "RepairResult", min_severity: str) -> dict[str, object]:
    return {
        "before": _report_json(result.before, min_severity),
        "after": _report_json(result.after, min_severity),
        "done": result.done,
        "left": [finding.to_dict() for finding in result.left],
        "failures": result.failures,
        "quarantine": result.quarantine,
        "pieces": result.pieces,
        "bytes": result.bytes,
    }
