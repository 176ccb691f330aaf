"""One who takes part in a run, in a process of its own that may be killed at any instruction.

python -m veredus.chaos.worker DIRECTORY MEMBER ADDRESS

MEMBER is a `veredus.chaos.plan.Member` as JSON. It ends with 0 once it was told that no more is wanted and all it had
is done with, and with the exit code for a fenced one when another life has taken its name.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

import veredus
from veredus.recording import Recording

from .by_page import run_page_source, run_page_subscriber
from .either import connected
from .layout import Layout
from .leash import end_with_parent
from .plan import Member
from .publishing import run_sink, run_source
from .subscribing import run_subscriber

EXIT_FENCED = 4
_BY_PAGE = {"page-source": run_page_source, "page-subscriber": run_page_subscriber}
_WORKS = {"source": run_source, "subscriber": run_subscriber, "sink": run_sink}


async def live(layout: Layout, member: Member, address: str) -> None:
    """One life of a member, to its end."""
    with Recording(layout.recordings, member.name) as recording:
        if member.role in _BY_PAGE:
            layout.attached_as(member.name, os.getpid()).touch()
            _BY_PAGE[member.role](layout, member, address, recording)
            return
        async with connected(member, address) as node:
            await _WORKS[member.role](layout, member, node, recording)


def main() -> None:
    """Live, and end as the module says."""
    directory, member, address = sys.argv[1:]
    end_with_parent()
    try:
        asyncio.run(live(Layout(Path(directory)), msgspec.json.decode(member.encode(), type=Member), address))
    except veredus.Fenced as fenced:
        sys.stderr.write(f"fenced: {fenced.message}\n")
        # The library of threads may still hold on to a link: nothing of that is wanted.
        os._exit(EXIT_FENCED)


if __name__ == "__main__":
    main()
