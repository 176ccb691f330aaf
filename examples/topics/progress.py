"""How far the clients are, read from the ends of their accounts while these grow, and shown."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from accounts import GOT, PUT, SUBSCRIBED
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

SAY_SECONDS = 10.0
"""How often it is said where there is no terminal for bars."""


class Progress:
    """Owns the bars, and how far the accounts were read."""

    def __init__(self, console: Console, accounts: list[Path], expected: dict[str, int]) -> None:
        """`expected`: by kind of line, how many there will be at the end."""
        self._console, self._expected = console, expected
        self._read = dict.fromkeys(accounts, 0)
        self.counts: Counter[str] = Counter()
        """By the first word of lines, how many there are."""
        columns = (TextColumn("{task.description:>12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Bars(*columns, console=console, disable=not console.is_terminal)
        self._tasks: dict[str, TaskID] = {}
        self._said_at = time.monotonic()

    def __enter__(self) -> Self:
        self._tasks = {kind: self._bars.add_task(kind, total=total) for kind, total in self._expected.items()}
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def is_complete(self, kind: str) -> bool:
        """Whether there are as many lines of this kind as there will be."""
        self.look()
        return self.counts[kind] >= self._expected[kind]

    def look(self) -> None:
        """Read on, and show it."""
        for path, offset in self._read.items():
            if path.exists():
                with path.open("rb") as file:
                    file.seek(offset)
                    lines = file.read().splitlines(keepends=True)
                self.counts.update(line.split(b" ", 1)[0].strip().decode() for line in lines)
                self._read[path] = offset + sum(map(len, lines))
        for kind, task in self._tasks.items():
            self._bars.update(task, completed=self.counts[kind])
        if not self._console.is_terminal and time.monotonic() - self._said_at >= SAY_SECONDS:
            self._said_at = time.monotonic()
            self.tell("")

    def tell(self, what: str) -> None:
        """A line, with how far it is."""
        far = ", ".join(f"{kind} {self.counts[kind]:,}" for kind in (SUBSCRIBED, PUT, GOT))
        self._console.print(f"{what:32} [dim]{far}[/dim]", highlight=False)
