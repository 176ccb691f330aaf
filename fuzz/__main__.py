"""All targets, one after the other: `python -m fuzz --seconds 60`."""

from __future__ import annotations

import argparse
import sys

from fuzz import batch, datagrams, filters, frames_v1, frames_v2, links, mechanisms, topics, zmtp
from fuzz.driver import run

TARGETS = {
    "frames_v1": frames_v1,
    "frames_v2": frames_v2,
    "batch": batch,
    "links": links,
    "zmtp": zmtp,
    "mechanisms": mechanisms,
    "datagrams": datagrams,
    "topics": topics,
    "filters": filters,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="fuzz", description="feed the decoders garbage")
    parser.add_argument("--runs", type=int, default=1 << 62, help="inputs to try per target")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to try, all targets together")
    parser.add_argument("--seed", type=int, default=1, help="where chance begins")
    options = parser.parse_args()
    for name, module in TARGETS.items():
        seconds = options.seconds / len(TARGETS)
        done = run(name, module.target, module.SEEDS, options.runs, seconds, options.seed)
        sys.stdout.write(f"{name}: {done} inputs, none broke it\n")


if __name__ == "__main__":
    main()
