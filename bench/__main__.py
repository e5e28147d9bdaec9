"""`python -m bench [PART ...]`: all parts, or some: decode encode scan log compaction dump fsck manager spark start."""

import sys

from bench import compaction, decode, dump, encode, fsck, log, manager, scan, spark, start
from bench.measure import Report

PARTS = {
    "decode": decode,
    "encode": encode,
    "scan": scan,
    "log": log,
    "compaction": compaction,
    "dump": dump,
    "fsck": fsck,
    "manager": manager,
    "spark": spark,
    "start": start,
}


def main(names: list[str]) -> int:
    """Run the parts; 1 if a goal was missed. Results are written only when everything was measured."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"bench: no part {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    report = Report()
    for name in names or PARTS:
        PARTS[name].run(report)
    if not names:
        report.write()
    return 0 if all(row.holds for row in report.rows) else 1


sys.exit(main(sys.argv[1:]))
