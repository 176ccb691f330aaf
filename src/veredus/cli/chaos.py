"""`veredus chaos`: real processes, sockets, files and clocks that fail on purpose, and then the audit."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from veredus.cli.exits import Ended, Exit
from veredus.cli.terminal import Naming, note, output_option, write_one
from veredus.kernel.errors import Misuse, Refused
from veredus.kernel.extras import NEEDS_SPARK

if TYPE_CHECKING:
    from veredus.chaos.campaign import Judged
    from veredus.chaos.plan import Plan

ALL = "all"


@click.command()
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The seed of the first plan.")
@click.option(
    "--runs", type=click.IntRange(1), default=1, show_default=True, help="The number of runs, with consecutive seeds."
)
@click.option("--seconds", type=int, default=60, show_default=True, help="Seconds of faults in each run.")
@click.option(
    "--faults", default=ALL, show_default=True, help="Kinds of faults: kill,pause,proxy,netem,full,unsynced,..."
)
@click.option("--sources", type=int, default=3, show_default=True)
@click.option("--subscribers", type=int, default=3, show_default=True)
@click.option("--sinks", type=int, default=1, show_default=True)
@click.option("--pages", type=int, default=2, show_default=True, help="Clients of ZEPS 1 by raw sockets.")
@click.option("--topics", type=int, default=2, show_default=True, help="Clients of the topic service by raw sockets.")
@click.option(
    "--directory", cls=Naming, type=click.Path(path_type=Path), help="The parent directory of the runs' directories."
)
@click.option("--keep", is_flag=True, help="Keep the directory of a successful run, too.")
@click.option("--plan", "is_only_planned", is_flag=True, help="Print the plan only.")
@click.option("--master", default="local[2]", show_default=True, help="The Spark master of the audit.")
@output_option
def chaos(
    seed: int,
    runs: int,
    seconds: int,
    faults: str,
    sources: int,
    subscribers: int,
    sinks: int,
    pages: int,
    topics: int,
    directory: Path | None,
    keep: bool,
    is_only_planned: bool,
    master: str,
    output: str,
) -> None:
    """Run a node, sources, subscribers and sinks through faults, then verify that nothing was lost or duplicated.

    A seed always gives the same plan of faults; timing still differs between runs. The plan is printed first and kept
    with the run. The directory of a failed run is kept, with its logs and its recordings. The exit code is 9 if a
    guarantee was broken or a process is stuck, and 1 if a claim could not be decided.
    """
    from veredus.chaos.plan import FAULTS, draw, faults_of

    chosen = FAULTS if faults == ALL else faults_of(faults)
    counts = (sources, subscribers, sinks, pages, topics)
    plans = [draw(number, seconds, chosen, *counts) for number in range(seed, seed + runs)]
    if is_only_planned:
        for plan in plans:
            say_plan(plan, click.echo)
        return
    _need_the_audit()
    _enter_namespaces(chosen)
    root = directory or Path(tempfile.mkdtemp(prefix="veredus-chaos-"))
    _run(plans, root, keep, master, output)


def say_plan(plan: Plan, say: Callable[[str], object]) -> None:
    """Say who takes part and what will happen."""
    say(f"seed {plan.seed}, {plan.seconds} s, {len(plan.strikes)} faults")
    for member in plan.members:
        say(f"  {member}")
    for strike in plan.strikes:
        say(f"  {strike}")


def _need_the_audit() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise Refused("no-spark", f"chaos ends with the audit, which {NEEDS_SPARK}")


def _enter_namespaces(faults: tuple[str, ...]) -> None:
    """Go on in namespaces of our own: a bad network is nobody else's there, and no mount outlives the run."""
    from veredus.chaos import netem

    if netem.has_entered():
        return
    kinds = ["mount"] if "full" in faults and netem.may_mount() else []
    reason = netem.why_not() if "netem" in faults else ""
    if reason:
        note(f"netem is not used ({reason}): the proxy injects the faults of the network")
    elif "netem" in faults:
        kinds.append("net")
    if kinds:
        netem.enter(["-m", "veredus", *sys.argv[1:]], kinds)


def _run(plans: list[Plan], root: Path, keep: bool, master: str, output: str) -> None:
    from veredus.chaos.campaign import Judge, run_and_judge

    worst = Exit.OK
    with Judge(master) as judge:
        for plan in plans:
            say_plan(plan, note)
            directory = root / f"seed-{plan.seed}"
            if directory.exists() and any(directory.iterdir()):
                raise Misuse("not-empty", f"{directory} is not empty: give a new --directory for the run")
            try:
                judged = run_and_judge(plan, directory, judge, _line)
            except BaseException:
                note(f"kept: {directory}")
                raise
            write_one(judged.summary(), output)
            worst = max(worst, _exit_of(judged))
            if worst is Exit.OK and not keep:
                shutil.rmtree(directory)
            else:
                note(f"kept: {directory}")
    if worst is Exit.OK and not keep and not any(root.iterdir()):
        root.rmdir()
    if worst is not Exit.OK:
        raise Ended(worst)


def _exit_of(judged: Judged) -> Exit:
    for line in judged.broken:
        note(f"broken: {line}")
    for line in judged.unproved:
        note(f"not proved: {line}")
    if judged.broken:
        return Exit.VIOLATED
    return Exit.ERROR if judged.unproved else Exit.OK


def _line(text: str) -> None:
    """Progress: one line that is written over on a terminal, one below the other elsewhere."""
    if not sys.stderr.isatty():
        note(f"  {text}")
        return
    width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
    click.echo(f"\r\033[K{text[:width]}", err=True, nl=False)
