"""Who waits for the check of a token is answered, and the next one is checked, whatever fails meanwhile."""

from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from veredus.runtime import checks as module
from veredus.runtime.askers import Askers, Known
from veredus.runtime.security import TokenFile, add_token


class _Loop:
    """Hands over what comes from threads, after it has lacked the memory to do so."""

    def __init__(self) -> None:
        self.handed: SimpleQueue[tuple[Any, tuple[Any, ...]]] = SimpleQueue()
        self.lacks = 2

    def call_soon_threadsafe(self, then: Any, *arguments: Any) -> None:
        if self.lacks:
            self.lacks -= 1
            raise MemoryError
        self.handed.put((then, arguments))


def test_an_answer_for_which_there_was_no_memory_comes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_AGAIN_S", 0.01)
    token, _ = add_token(tmp_path / "tokens", "desk")
    loop = _Loop()
    askers = Askers(loop, lambda: tokens)  # type: ignore[arg-type]
    tokens = TokenFile(tmp_path / "tokens")
    answers: list[Known] = []
    askers.ask(token, "here", answers.append, lambda: True)
    then, arguments = loop.handed.get(timeout=20)
    then(*arguments)
    askers.close()
    assert answers == [Known("desk")]
