"""Fuzzing at full size: `make campaign`, or `python -m tests.campaign --cases 5000000 --seed 1 --jobs 2`.

Cases are run in blocks, each by a process of its own: a kernel that touches memory it may not touch ends that process,
and the block is named. What failed can be seen again with the line that is printed.

    hostile    damaged batches read both ways (tests/property/hostile.py)
    arrays     Arrow arrays whose buffers are wrong, handed to kernels (tests/property/hostile_arrays.py)
    tables     damaged CSV, JSON Lines, Parquet and Arrow files under a memory limit (tests/tables/fuzz_tables.py)
    small-files  snapshots, checkpoints, indexes and other small files of a log directory damaged with their checksums
               right, under a memory limit (tests/property/fuzz_small_files.py)
    codecs     damaged compressed streams decoded both ways (tests/kernels/fuzz_codecs.py)
    crashes    the power cut at every call of random workloads over a log (tests/property/crashes.py)
    disorder   the same on a disk that keeps no order among directory changes
    compaction the same at every call of rounds of compaction, the disk that refuses one, and rounds that are given up
               (tests/property/crash_compaction.py)
    manager    the power cut, and the process killed, at random calls of a LogManager that cleans, deletes, truncates
               and moves its logs and flushes nothing by itself (tests/property/manager_crashes.py)
    refusals   any call refused (no descriptor, an I/O error, a full disk), then a retry on the live log, then fsck
               (tests/property/refusals.py)
    manager-refusals  the same for a LogManager on two log directories (tests/property/manager_refusals.py)
    limits     the same on the local disk: a process out of descriptors, a file system that is full
               (tests/property/real_limits.py)
    fsck       files of a root damaged in every way, the check and the repair judged (tests/fsck/campaign.py)
    pages      pages exchanged, written over or zeroed, lengths and bytes damaged; the repair judged by a search
               of every position (tests/fsck/pages.py)
    planted    links, pipes, devices and directories at every path of a log directory, then a command on it: what lies
               outside stays as it is (tests/property/planted.py)
    starts     directories of a real broker damaged, and what Kafka 4.3 then starts with; left out, and said so, where
               Apache Kafka's jars are not in the cache (tests/compat/start_campaign.py)
    node-starts  the same for nodes that are only a broker, or only a controller (tests/compat/node_starts.py)
    journals   hostile journals of unfinished writes, read and recovered (tests/spark/hostile_journals.py)
    killed-writes  Kafka started after a kill at every step of a commit of Spark's and of a load
               (tests/compat/killed_writes.py)
    crashed    checks of what kills and losses of power leave of sound logs (tests/fsck/crashed.py)
    live       checks of a root that another process works on without a rest (tests/fsck/live.py)
    live-kafka the same beside brokers of Apache Kafka that are killed and truncate what their followers did not have;
               left out, and said so, where its jars are not in the cache (tests/compat/live_kafka.py)
    recorded   the power cut in runs of real processes whose calls strace has recorded; left out, and said so, where
               nothing can be traced (tests/property/recorded_calls.py)
    kills      real kill -9 of processes that append, compact, truncate, roll, delete and move (tests/property/kills.py)
    kills-kafka  the same, and a broker of Apache Kafka serves what each kill has left as we do; left out, and said so,
               where its jars are not in the cache (tests/compat/killed_processes.py)
    usage      commands typed at random: one line and an exit code, no traceback (tests/cli/wrong_usage.py)
    damage     every bit of a small log flipped, every file of it cut at every byte (tests/property/damage.py)

The last has as many cases as it has, and no chance in it: its seed is the number of the first case.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from importlib import import_module
from typing import NamedTuple

import click

KINDS = {
    "hostile": "tests.property.hostile:run",
    "arrays": "tests.property.hostile_arrays:run",
    "tables": "tests.tables.fuzz_tables:run",
    "small-files": "tests.property.fuzz_small_files:run",
    "codecs": "tests.kernels.fuzz_codecs:run",
    "crashes": "tests.property.crashes:run",
    "disorder": "tests.property.crashes:run_in_disorder",
    "compaction": "tests.property.crash_compaction:run",
    "manager": "tests.property.manager_crashes:run",
    "kills": "tests.property.kills:run",
    "kills-kafka": "tests.compat.killed_processes:run",
    "recorded": "tests.property.recorded_calls:run",
    "refusals": "tests.property.refusals:run",
    "manager-refusals": "tests.property.manager_refusals:run",
    "limits": "tests.property.real_limits:run",
    "fsck": "tests.fsck.campaign:run",
    "pages": "tests.fsck.pages:run",
    "planted": "tests.property.planted:run",
    "starts": "tests.compat.start_campaign:run",
    "node-starts": "tests.compat.node_starts:run",
    "journals": "tests.spark.hostile_journals:run",
    "killed-writes": "tests.compat.killed_writes:run",
    "live": "tests.fsck.live:run",
    "live-kafka": "tests.compat.live_kafka:run",
    "usage": "tests.cli.wrong_usage:run",
    "crashed": "tests.fsck.crashed:run",
    "damage": "tests.property.damage:run",
}
BLOCK = 25_000
CRASH_BLOCK = 1_000
CODEC_SHARE = 10  # one case of codecs for so many of hostile: a case there is a run of streams
TABLE_SHARE = 50  # one damaged table, and one damaged array, for so many batches
DISORDER_SHARE = 5  # one cut in disorder for so many in order
FSCK_SHARE = 4  # one damaged root for so many cuts
FSCK_BLOCK = 250
REFUSAL_SHARE = 4  # one refused call for so many cuts
LIVE_SHARE, LIVE_BLOCK = 48, 50  # one check of a live root for so many cuts
PAGES_SHARE = 8  # one log with damaged pages for so many cuts
MANAGER_REFUSAL_SHARE = 8  # and one of a LogManager for so many
KILL_SHARE = 48  # one kill of a process for so many cuts of the power
KILL_BLOCK = 100
RECORDED_SHARE = 20  # one loss of power in a recorded run for so many in runs that are not
MANAGER_SHARE = 5  # one cut of a manager for so many of one log
START_SHARE = 80  # one start of a real broker for so many cuts
START_BLOCK = 100
NODE_START_SHARE = 200  # and one of a node that is only a broker, or only a controller, for so many
KILLED_WRITES = 200  # there are fewer steps
JOURNAL_SHARE, JOURNAL_BLOCK = 2, 1_000  # one hostile journal for so many cuts
SMALL_FILE_SHARE = 2  # one directory with a damaged small file for so many cuts
USAGE_SHARE = 6  # one command typed at random for so many cuts
LIMIT_SHARE = 40  # and one real shortage
PLANTED_SHARE = 20  # one planted link, pipe or device for so many cuts
COMPACTION_SHARE = 5  # one cut of a round of compaction for so many of other workloads


class Block(NamedTuple):
    """Cases that one process runs."""

    kind: str
    seed: int
    cases: int

    @property
    def command(self) -> list[str]:
        return ["-m", "tests.campaign", "--only", self.kind, "--seed", str(self.seed), "--cases", str(self.cases)]


class Failure(Exception):
    """A block found a disagreement, or did not survive."""


def blocks(cases: int, cuts: int, seed: int) -> Iterator[Block]:
    """The blocks of a campaign; every one has a seed of its own."""
    why_not_traced = import_module("tests.property.recorded_calls").why_not_here()
    if why_not_traced is not None:
        click.echo(f"without cases of kind recorded: {why_not_traced}", err=True)
    for kind, share, size in (
        ("crashes", cuts, CRASH_BLOCK),
        ("disorder", cuts // DISORDER_SHARE, CRASH_BLOCK),
        ("compaction", cuts // COMPACTION_SHARE, CRASH_BLOCK),
        ("manager", cuts // MANAGER_SHARE, CRASH_BLOCK),
        ("kills", cuts // KILL_SHARE, KILL_BLOCK),
        ("recorded", 0 if why_not_traced else cuts // RECORDED_SHARE, CRASH_BLOCK),
        ("refusals", cuts // REFUSAL_SHARE, CRASH_BLOCK),
        ("manager-refusals", cuts // MANAGER_REFUSAL_SHARE, CRASH_BLOCK),
        ("limits", cuts // LIMIT_SHARE, CRASH_BLOCK),
        ("usage", cuts // USAGE_SHARE, CRASH_BLOCK),
        ("hostile", cases, BLOCK),
        ("codecs", cases // CODEC_SHARE, BLOCK),
        ("arrays", cases // TABLE_SHARE, BLOCK),
        ("tables", cases // TABLE_SHARE, BLOCK),
        ("small-files", cuts // SMALL_FILE_SHARE, CRASH_BLOCK),
    ):
        for number, start in enumerate(range(0, share, size)):
            yield Block(kind, seed * 1_000_000 + number, min(size, share - start))
    for start in range(0, cuts // FSCK_SHARE, FSCK_BLOCK):
        yield Block("fsck", seed * 1_000_000 + start, min(FSCK_BLOCK, cuts // FSCK_SHARE - start))
    for start in range(0, cuts // PLANTED_SHARE, FSCK_BLOCK):
        yield Block("planted", seed * 1_000_000 + start, min(FSCK_BLOCK, cuts // PLANTED_SHARE - start))
    for start in range(0, cuts // PAGES_SHARE, FSCK_BLOCK):
        yield Block("pages", seed * 1_000_000 + start, min(FSCK_BLOCK, cuts // PAGES_SHARE - start))
    reason = import_module("tests.compat.kafka_tools").missing()
    if reason is not None:
        kinds = "starts, node-starts, killed-writes, kills-kafka and live-kafka"
        click.echo(f"without cases of the kinds {kinds}: {reason}", err=True)
    for start in range(0, cuts // START_SHARE if reason is None else 0, START_BLOCK):
        yield Block("starts", seed * 1_000_000 + start, min(START_BLOCK, cuts // START_SHARE - start))
    if reason is None:
        yield Block("node-starts", seed * 1_000_000, cuts // NODE_START_SHARE)
        yield Block("killed-writes", seed, KILLED_WRITES)
    for number, start in enumerate(range(0, cuts // KILL_SHARE if reason is None else 0, KILL_BLOCK)):
        yield Block("kills-kafka", seed * 1_000_000 + number, min(KILL_BLOCK, cuts // KILL_SHARE - start))
    for number in range(cuts // JOURNAL_SHARE // JOURNAL_BLOCK):
        yield Block("journals", seed * 1_000_000 + number, JOURNAL_BLOCK)
    for start in range(0, cuts // PAGES_SHARE, FSCK_BLOCK):
        yield Block("crashed", seed * 1_000_000 + start, min(FSCK_BLOCK, cuts // PAGES_SHARE - start))
    for start in range(0, cuts // LIVE_SHARE, LIVE_BLOCK):
        yield Block("live", seed * 1_000_000 + start, min(LIVE_BLOCK, cuts // LIVE_SHARE - start))
    if reason is None:
        yield Block("live-kafka", seed, cuts // LIVE_SHARE)
    damages = len(import_module("tests.property.damage").all_damage())
    for start in range(0, damages, CRASH_BLOCK):
        yield Block("damage", start, min(CRASH_BLOCK, damages - start))


def run_here(block: Block) -> Counter[str]:
    """Run a block in this process."""
    module, _, function = KINDS[block.kind].partition(":")
    found = getattr(import_module(module), function)(block.seed, block.cases)
    return found if isinstance(found, Counter) else Counter({block.kind: block.cases})


def run_apart(block: Block) -> Counter[str]:
    """Run a block in a process of its own."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", *block.command], capture_output=True, text=True)
    if done.returncode:
        how = f"died of signal {-done.returncode}" if done.returncode < 0 else "failed"
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-30:])
        raise Failure(f"{block.kind}, seed {block.seed}: {how}\n{tail}\nagain: python {' '.join(block.command)}")
    return Counter({name: int(count) for name, count in (line.split() for line in done.stdout.splitlines())})


def run_all(todo: list[Block], jobs: int) -> Counter[str]:
    """Run blocks side by side; the first failure ends the campaign."""
    outcomes: Counter[str] = Counter()
    total, finished, started = sum(block.cases for block in todo), 0, time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        pending: dict[Future[Counter[str]], Block] = {pool.submit(run_apart, block): block for block in todo}
        try:
            while pending:
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    outcomes += future.result()
                    finished += pending.pop(future).cases
                if sys.stderr.isatty():
                    rate = finished / (time.monotonic() - started)
                    left = (total - finished) / rate / 60
                    click.echo(
                        f"\r{finished:,} of {total:,} cases, {rate:,.0f}/s, {left:.0f} min left ", err=True, nl=False
                    )
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if sys.stderr.isatty():
                click.echo(err=True)
    return outcomes


@click.command()
@click.option("--cases", default=5_000_000, show_default=True, help="Damaged batches; streams come on top.")
@click.option("--cuts", default=24_000, show_default=True, help="Cuts of the power; those in disorder come on top.")
@click.option("--seed", default=1, show_default=True)
@click.option("--jobs", default=2, show_default=True, help="Processes at a time.")
@click.option("--only", type=click.Choice(list(KINDS)), help="Run one kind, in this process, with the seed as it is.")
def main(cases: int, cuts: int, seed: int, jobs: int, only: str | None) -> None:
    """Judge millions of damaged batches and streams, and thousands of crashes."""
    if only is not None:
        try:
            outcomes = run_here(Block(only, seed, cases))
        except AssertionError as disagreement:
            click.echo(disagreement, err=True)
            raise SystemExit(1) from None
        for name, count in outcomes.items():
            click.echo(f"{name} {count}")
        return
    started = time.monotonic()
    todo = list(blocks(cases, cuts, seed))
    try:
        outcomes = run_all(todo, jobs)
    except Failure as failure:
        click.echo(failure, err=True)
        raise SystemExit(1) from None
    seconds = time.monotonic() - started
    words = ", ".join(f"{count:,} {name}" for name, count in outcomes.most_common())
    click.echo(f"{sum(block.cases for block in todo):,} cases in {seconds:,.0f} s, no disagreement: {words}")


if __name__ == "__main__":
    main()
