"""The blocks of the pages that people read: what is typed there, and what is shown to come back.

In a `console` block a line that begins with `$ ` is typed, and what follows is its output; a line `…` stands for any
lines. What differs from run to run (tokens, ids, times, credit) is masked on both sides, as is the width of columns.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ELLIPSIS = "…"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MASKS = (
    (re.compile(r"veredus_[0-9a-f]{8}_[\w-]{43}"), "TOKEN"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"^[0-9a-f]{8}(?= )", re.MULTILINE), "ID"),
    (re.compile(r"(?<!\S)[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}$", re.MULTILINE), "KEY"),
    (re.compile(r"^credit +-?\d+$", re.MULTILINE), "credit NUMBER"),
    (re.compile(r" +"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
)


class Exchange(NamedTuple):
    """A command, and what the page shows that it says."""

    command: str
    shown: str


def blocks_in(page: str, language: str) -> list[str]:
    """The page's blocks in this language, in order."""
    return [text for found, text in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if found == language]


def exchanges_in(block: str) -> list[Exchange]:
    """What a `console` block types and shows."""
    exchanges: list[Exchange] = []
    for is_typed, lines in groupby(block.splitlines(), key=lambda line: line.startswith("$ ")):
        if is_typed:
            exchanges += [Exchange(line.removeprefix("$ "), "") for line in lines]
        else:
            exchanges[-1] = exchanges[-1]._replace(shown="\n".join(lines))
    return exchanges


def masked(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return text.strip()


def is_as_shown(said: str, shown: str) -> bool:
    """Whether the output is what the page shows, as far as it shows it."""
    parts = [re.escape(part.strip("\n")) for part in re.split(rf"^{ELLIPSIS}$", masked(shown), flags=re.MULTILINE)]
    return re.fullmatch(r"\n?(?:.*\n)*?".join(parts), masked(said)) is not None
