"""`veredus`, and `python -m veredus`: the command line, which an interrupt ends in one way from its first moment on."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

_INTERRUPTED = 130
"""As `veredus.cli.exits.Exit.INTERRUPTED`, which is not imported yet."""


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # as `signal` calls it
    os._exit(_INTERRUPTED)


def _serves(words: list[str]) -> bool:
    """Whether this command reads its settings again at SIGHUP, which ends any other."""
    return words[:1] in (["serve"], ["proxy"]) or (words[:1] == ["topics"] and "serve" in words)


def main() -> None:
    """Run the command line. What is imported for it has nothing to clean up, and no traceback to show."""
    if _serves(sys.argv[1:]):
        from veredus.runtime.early_reloads import remember_reloads

        remember_reloads()
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from veredus.cli import main as run

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
