"""`veredus node`: commands for the node that uses a directory of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from veredus.cli.terminal import CommandGroup, note


@click.group(cls=CommandGroup)
def node() -> None:
    """Make a node that runs on this machine read its changed settings."""


@node.command("reload", short_help="Read settings and certificates again.")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
def reload(directory: Path) -> None:
    """Make the node that uses DIRECTORY read its settings, certificates and revocation lists again, like SIGHUP.

    The node ends connections that are no longer authenticated, and sessions that are no longer allowed. If the settings
    are not valid, the command says why and nothing changes.

    It is for the node's own user, and for root.
    """
    import os
    import signal
    import time

    from veredus.runtime.reloads import wait_outcome
    from veredus.runtime.running import running_node

    process = running_node(directory)
    asked_ns = time.monotonic_ns()
    os.kill(process, signal.SIGHUP)
    outcome = wait_outcome(directory, process, asked_ns)
    note(f"process {process} has read its settings again; applied: {', '.join(outcome.applied) or 'no change'}")
    if outcome.waiting:
        note(f"these changes need a restart: {', '.join(outcome.waiting)}")
