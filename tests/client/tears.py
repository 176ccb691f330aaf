"""Exceptions where a signal's handler can raise them: at each place of some code, one after the other.

CPython looks for signals as a function begins, as a loop goes back, and behind a call into C; nowhere else. Behind a
call of a function in Python it does not, nor behind `list.append` and `len`, which it specializes.
"""

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_LOOKING = frozenset(("RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX"))
_SPECIALIZED = frozenset(("append", "len"))


class Torn(BaseException):
    """What the signal's handler raises, if nothing else is asked for."""


@cache
def _places_of(code: CodeType) -> dict[int, bool]:
    """The offset of each instruction, and whether a signal may be noticed right before it."""
    places: dict[int, bool] = {}
    gone_back_to: list[int] = []
    is_noticed, called = False, ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "CACHE":
            continue
        places[instruction.offset] = is_noticed
        if instruction.opname in ("LOAD_METHOD", "LOAD_GLOBAL", "LOAD_ATTR"):
            called = str(instruction.argval)
        is_noticed = instruction.opname in _LOOKING and not (instruction.opname == "CALL" and called in _SPECIALIZED)
        if instruction.opname == "JUMP_BACKWARD":
            gone_back_to.append(instruction.argval)
    return places | dict.fromkeys(gone_back_to, True)


class Tear:
    """Raises `error` once, at place number `at` of what it traces, counted from 1; counts the places meanwhile."""

    def __init__(self, files: frozenset[str], at: int, error: BaseException) -> None:
        self.count = 0
        self.where = ""
        self._files = files
        self._at = at
        self.error = error
        self._called: set[FrameType] = set()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any] | None:
        if Path(frame.f_code.co_filename).name not in self._files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._within

    def _within(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any] | None:
        if event == "return" and frame.f_back is not None:
            self._called.add(frame.f_back)
        elif event == "opcode":
            is_behind_python = frame in self._called
            self._called.discard(frame)
            if _places_of(frame.f_code)[frame.f_lasti] and not is_behind_python:
                self.count += 1
                if self.count == self._at:
                    self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                    sys.settrace(None)
                    raise self.error
        return self._within


@contextmanager
def torn(files: frozenset[str], at: int, error: BaseException | None = None) -> Iterator[Tear]:
    """What is called in the block, out of `files`, is torn at its place number `at`; the block ends there."""
    tear, before = Tear(files, at, error or Torn()), sys.gettrace()
    # Python 3.12 traces opcodes only where some frame wanted it when tracing began.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(tear)
    try:
        yield tear
    except BaseException as raised:
        if raised is not tear.error:
            raise
    finally:
        sys.settrace(before)
