"""Types what a page shows into a shell, and compares what comes back."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.processes import ended
from tests.transcripts.pages import exchanges_in, is_as_shown


def typed(command: str, directory: Path, **variables: str) -> str:
    """What a command says on standard output when it is typed into a shell in `directory`."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = ended(["bash", "-euc", command], cwd=directory, env={**os.environ, "PATH": path, **variables})
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def check_block(block: str, directory: Path, **variables: str) -> None:
    """Type what a console block types, and compare."""
    exchanges = exchanges_in(block)
    assert exchanges
    for exchange in exchanges:
        said = typed(exchange.command, directory, **variables)
        assert is_as_shown(said, exchange.shown), f"$ {exchange.command}\n{said}\n  is not what the page shows"
