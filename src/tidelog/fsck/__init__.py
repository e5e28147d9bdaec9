"""Checking, mending and comparing log directories that no broker writes to.

    from tidelog.fsck import check, repair

    report = check("kafka-logs", deep=True)
    if not report.is_clean:
        repair("kafka-logs")

What stands here is loaded when it is first used: the kernels come with it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.fsck.checker import check as check
    from tidelog.fsck.checker import verdicts as verdicts
    from tidelog.fsck.findings import CODES as CODES
    from tidelog.fsck.findings import Finding as Finding
    from tidelog.fsck.findings import Report as Report
    from tidelog.fsck.findings import Severity as Severity
    from tidelog.fsck.mending import RepairResult as RepairResult
    from tidelog.fsck.mending import apply as apply
    from tidelog.fsck.mending import repair as repair
    from tidelog.fsck.plan import RepairPlan as RepairPlan
    from tidelog.fsck.plan import plan_repair as plan_repair
    from tidelog.fsck.verdict import Verdict as Verdict

_PLACES = {
    "checker": ("check", "verdicts"),
    "findings": ("CODES", "Finding", "Report", "Severity"),
    "plan": ("RepairPlan", "plan_repair"),
    "verdict": ("Verdict",),
    "mending": ("RepairResult", "apply", "repair"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "CODES",
    "Finding",
    "RepairPlan",
    "RepairResult",
    "Report",
    "Severity",
    "Verdict",
    "apply",
    "check",
    "plan_repair",
    "repair",
    "verdicts",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
