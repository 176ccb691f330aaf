"""`veredus node`: commands for the node that uses a directory of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from veredus.cli.terminal import note


@click.group()
def node() -> None:
    """Make a node that runs on this machine read its changed settings."""


@node.command("reload")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
def reload(directory: Path) -> None:
    """Make the node that uses DIRECTORY read its settings, certificates and revocation lists again, like SIGHUP.

    The node ends connections that are no longer authenticated, and sessions that are no longer allowed. Its log lists
    the changes.
    """
    import os
    import signal

    from veredus.runtime.directory import running_node

    process = running_node(directory)
    os.kill(process, signal.SIGHUP)
    note(f"process {process} reads its settings again: its log lists the changes")
