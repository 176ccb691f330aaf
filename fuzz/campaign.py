"""Hours of garbage, with a ledger: how long each target was tried by which code, and what broke it.

    the target that was tried least ──► a minute of it in a process of its own ──► the ledger ──► the next target

`python -m fuzz.campaign --hours 1` goes on until each target has had so much processor time in all. What is interrupted
loses at most the minutes that were under way.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import TypeAlias

import msgspec

from fuzz.__main__ import TARGETS
from fuzz.driver import run
from veredus.sim.ledger import code_digest, put_between, replace_file

ROOT = Path(__file__).parent.parent
LEDGER, PAGE = ROOT / "docs" / "fuzz-ledger.json", ROOT / "docs" / "proof.md"
BEGIN, END = "<!-- fuzz -->", "<!-- end: fuzz -->"
TRY_S = 60.0
Try: TypeAlias = Future[tuple[int, float]]


class Tried(msgspec.Struct):
    """How long one state of the code had garbage for one target."""

    target: str
    code: str
    """Digest of the engines."""
    cpu_s: float = 0.0
    input_count: int = 0
    find_count: int = 0


def read_ledger(path: Path) -> list[Tried]:
    """What was tried so far; nothing where there is no ledger yet. Raises `OSError`, `msgspec.DecodeError`."""
    return msgspec.json.decode(path.read_bytes(), type=list[Tried]) if path.exists() else []


def write_ledger(path: Path, ledger: Iterable[Tried]) -> None:
    """Replace the file, whole or not at all. Raises `OSError`."""
    rows = sorted(ledger, key=lambda tried: (tried.target, tried.code))
    replace_file(path, msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")


def as_markdown(ledger: Iterable[Tried]) -> str:
    """What each target was given, in all states of the code together."""
    lines = ["| decoder | inputs | processor time | states of the code | broke it |", "|---|--:|--:|--:|--:|"]
    for name in TARGETS:
        rows = [tried for tried in ledger if tried.target == name]
        inputs, minutes = sum(tried.input_count for tried in rows), sum(tried.cpu_s for tried in rows) / 60
        finds = sum(tried.find_count for tried in rows)
        lines.append(f"| `{name}` | {inputs:,} | {minutes:,.0f} min | {len(rows)} | {finds} |")
    return "\n".join(lines) + "\n"


def go_on(
    path: Path, cpu_s: float, process_count: int, say: Callable[[str], object], try_s: float = TRY_S
) -> list[Tried]:
    """Try the targets until each has had `cpu_s` of processor time in all, in any state of the code.

    Raises `OSError`, `msgspec.DecodeError`.
    """
    ledger, code = read_ledger(path), code_digest()
    write_ledger(path, ledger)
    busy: dict[Try, str] = {}
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(process_count, mp_context=spawning, max_tasks_per_child=1) as pool:
        while True:
            had = {name: sum(row.cpu_s for row in ledger if row.target == name) for name in TARGETS}
            say(", ".join(f"{name} {s / 60:.0f} min" for name, s in had.items()))
            wanted = sorted((s, name) for name, s in had.items() if s < cpu_s and name not in busy.values())
            for _, name in wanted[: process_count - len(busy)]:
                busy[pool.submit(try_once, name, random.SystemRandom().getrandbits(40), try_s)] = name
            if not busy:
                return ledger
            for done in wait(busy, return_when=FIRST_COMPLETED).done:
                take(ledger, busy.pop(done), code, done)
            write_ledger(path, ledger)


def take(ledger: list[Tried], target: str, code: str, done: Try) -> None:
    """Add what came of one try."""
    rows = [tried for tried in ledger if (tried.target, tried.code) == (target, code)]
    if not rows:
        rows = [Tried(target, code)]
        ledger += rows
    if done.exception() is not None:
        rows[0].find_count += 1
        return
    input_count, cpu_s = done.result()
    rows[0].input_count += input_count
    rows[0].cpu_s += cpu_s


def try_once(name: str, seed: int, seconds: float) -> tuple[int, float]:
    """Inputs and seconds of processor time of one try, in a process of its own. Raises what broke the target."""
    module, began_s = TARGETS[name], time.process_time()
    return run(name, module.target, module.SEEDS, 1 << 62, seconds, seed), time.process_time() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="fuzz.campaign", description="feed the decoders garbage, and keep a ledger")
    parser.add_argument("--hours", type=float, default=1.0, help="processor time that each target has had at the end")
    parser.add_argument("--processes", type=int, default=2, help="how many targets to try at the same time")
    parser.add_argument("--ledger", type=Path, default=LEDGER, help="where it is kept what was tried")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page that shows the ledger")
    options = parser.parse_args()
    try:
        go_on(options.ledger, options.hours * 3600, options.processes, lambda text: sys.stdout.write(f"{text}\n"))
    except KeyboardInterrupt:
        sys.stdout.write("interrupted\n")
    finally:
        put_between(options.page, BEGIN, END, as_markdown(read_ledger(options.ledger)))


if __name__ == "__main__":
    main()
