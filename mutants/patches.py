"""The planted bugs: a patch each, with what is broken and which guarantee that breaks in front of the diff."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent
SOURCE = ROOT / "src"
ENGINES = ("kernel", "delivery", "matching", "journal", "streams", "protocols", "node")
_HEAD = re.compile(r"what: (?P<what>\S.*)\nbreaks: (?P<breaks>[1-8])\n\n", re.ASCII)

_TOPICS = "protocols/topics"
_TOUCHED = re.compile(rf"^\+\+\+ b/src/veredus/(?P<floor>{_TOPICS}|[a-z]+)/", re.MULTILINE)


class Mutant(NamedTuple):
    """One planted bug; `breaks` is the number of the guarantee, `diff` what is changed in the sources."""

    name: str
    what: str
    breaks: int
    diff: str

    @property
    def floor(self) -> str:
        """The floor of the engine that it changes; topics are one by themselves."""
        touched = _TOUCHED.search(self.diff)
        return ENGINES[0] if touched is None else touched["floor"]

    @property
    def scene(self) -> str:
        """The scene of the worlds in which it can show itself."""
        return "topics" if self.floor == _TOPICS else "streams"


class PatchRefused(Exception):
    """A patch does not apply, or does not say what it breaks; the message names it."""


def mutant_in(path: Path) -> Mutant:
    """The planted bug in this file. Raises `PatchRefused` where its header is not as it should be."""
    text = path.read_text(encoding="utf-8")
    head = _HEAD.match(text)
    if head is None:
        message = f"{path.name} does not begin with `what: …`, `breaks: 1` to `8` and an empty line: write that on top"
        raise PatchRefused(message)
    return Mutant(path.stem, head["what"], int(head["breaks"]), text[head.end() :])


def all_mutants(names: Sequence[str] = ()) -> list[Mutant]:
    """All planted bugs in the order of their names, or those named. Raises `PatchRefused`."""
    mutants = [mutant_in(path) for path in sorted(HERE.glob("*.patch"))]
    unknown = sorted(set(names) - {mutant.name for mutant in mutants})
    if unknown:
        raise PatchRefused(f"there is no patch {unknown[0]!r} in {HERE.name}/")
    return [mutant for mutant in mutants if mutant.name in names] if names else mutants


@contextmanager
def copied_sources() -> Iterator[Path]:
    """The sources of this moment, elsewhere: others may go on writing here."""
    with TemporaryDirectory(prefix="veredus-mutant-") as top:
        copy = Path(top) / "src"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        yield copy


@contextmanager
def planted(mutant: Mutant, sources: Path) -> Iterator[Path]:
    """A copy of these sources with the bug in it. Raises `PatchRefused` where the patch does not apply."""
    with TemporaryDirectory(prefix="veredus-mutant-") as top:
        copy = Path(top) / "src"
        shutil.copytree(sources, copy)
        apply(mutant, copy)
        yield copy


def apply(mutant: Mutant, sources: Path) -> None:
    """Plant the bug in these sources. Raises `PatchRefused` where its patch does not apply."""
    if not mutant.diff:
        return
    # Within a repository git would pass over what lies outside of its index.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(sources.parent.parent)}
    ended = subprocess.run(
        ["git", "apply", "-"],
        cwd=sources.parent, env=environment, input=mutant.diff, text=True, capture_output=True, check=False,
    )  # fmt: skip
    if ended.returncode:
        raise PatchRefused(f"{mutant.name}.patch does not apply: make it anew against the source\n{ended.stderr}")


def digest_of(sources: Path) -> str:
    """What tells the engines in these sources from others."""
    digest = sha256()
    for path in sorted(path for floor in ENGINES for path in (sources / "veredus" / floor).rglob("*.py")):
        digest.update(f"{path.relative_to(sources)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
