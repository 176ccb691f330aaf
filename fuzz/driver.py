"""Runs a target over inputs bent from good ones: by itself, or under atheris where that is installed (`--atheris`).

A run is repeatable from its seed; what breaks a target is written to a file named by its hash, beside the seed.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

Target = Callable[[bytes], None]
INTERESTING = (0, 1, 2, 7, 8, 16, 32, 64, 127, 128, 255, 256, 65_535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
SIZE_MAX = 1 << 16


def bent(dice: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One good input after some harm: flipped, cut, doubled, spliced, with lengths that lie."""
    data = bytearray(dice.choice(seeds))
    for _ in range(dice.choice((1, 1, 2, 4, 8))):
        place = dice.randrange(len(data) + 1)
        match dice.randrange(7):
            case 0 if data:
                data[place % len(data)] ^= 1 << dice.randrange(8)
            case 1 if data:
                data[place % len(data)] = dice.randrange(256)
            case 2:
                del data[place : place + dice.choice((1, 2, 8, 64))]
            case 3:
                data[place:place] = dice.randbytes(dice.choice((1, 2, 8, 64)))
            case 4:
                size, order = dice.choice((1, 2, 4, 8)), dice.choice(("little", "big"))
                number = dice.choice(INTERESTING) % (1 << 8 * size)
                data[place : place + size] = number.to_bytes(size, order)  # type: ignore[arg-type]
            case 5:
                data[place:place] = data[: dice.randrange(256)]
            case _:
                data = data[:place] + dice.choice(seeds)[place:]
    return bytes(data[:SIZE_MAX])


def run(name: str, target: Target, seeds: Sequence[bytes], runs: int, seconds: float, seed: int) -> int:
    """Bend and try until `runs` inputs were tried or `seconds` have passed; the number of inputs. Raises what broke."""
    for data in seeds:
        target(data)
    dice = random.Random(seed)
    end = time.monotonic() + seconds
    done = 0
    while done < runs and (done % 64 or time.monotonic() < end):
        data = bent(dice, seeds)
        try:
            target(data)
        except BaseException:
            path = Path(f"crash-{name}-{hashlib.sha256(data).hexdigest()[:16]}")
            path.write_bytes(data)
            sys.stderr.write(f"{name}: seed {seed}, input {done} broke it; see {path}\n")
            raise
        done += 1
    return done


def main(name: str, target: Target, seeds: Sequence[bytes]) -> None:
    """The command line of one target."""
    parser = argparse.ArgumentParser(description=f"feed {name} garbage")
    parser.add_argument("--runs", type=int, default=1 << 62, help="inputs to try")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to try")
    parser.add_argument("--seed", type=int, default=1, help="where chance begins")
    parser.add_argument("--atheris", action="store_true", help="let libFuzzer guide the search")
    parser.add_argument("files", nargs="*", type=Path, help="try these inputs instead")
    options = parser.parse_args()
    if options.files:
        for path in options.files:
            target(path.read_bytes())
    elif options.atheris:
        import atheris  # type: ignore[import-not-found]

        atheris.instrument_all()
        atheris.Setup([sys.argv[0]], target)
        atheris.Fuzz()
    else:
        done = run(name, target, seeds, options.runs, options.seconds, options.seed)
        sys.stdout.write(f"{name}: {done} inputs, none broke it\n")
