"""One who takes part in a run, in a process of its own that may be killed at any instruction.

python -m veredus.chaos.worker DIRECTORY MEMBER ADDRESS

MEMBER is a `veredus.chaos.plan.Member` as JSON. It ends with 0 once it was told that no more is wanted and all it had
is done with, and with the exit code for a fenced one when another life has taken its name.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
from pathlib import Path

import msgspec

import veredus
from veredus.recording import Recording

from .by_page import run_page_source, run_page_subscriber
from .either import connected
from .layout import Layout
from .leash import end_with_parent
from .plan import PROXY, Member
from .publishing import run_sink, run_source
from .subscribing import run_subscriber
from .topics_by_page import run_topic_source, run_topic_subscriber

EXIT_FENCED = 4
TOPICS_PERIOD = "500ms"
"""How often a server says which topics it has: short, so that a proxy that begins again knows them soon."""
_BY_PAGE = {
    "page-source": run_page_source,
    "page-subscriber": run_page_subscriber,
    "topic-source": run_topic_source,
    "topic-subscriber": run_topic_subscriber,
}
_WORKS = {"source": run_source, "subscriber": run_subscriber, "sink": run_sink}


async def live(layout: Layout, member: Member, address: str) -> None:
    """One life of a member, to its end."""
    with Recording(layout.recordings, member.name) as recording:
        if member.role in _BY_PAGE:
            _BY_PAGE[member.role](layout, member, address, recording)
            return
        async with connected(member, address) as node:
            await _WORKS[member.role](layout, member, node, recording)


def _serve_as_proxy(layout: Layout, member: Member, address: str) -> None:
    # It has nothing to write down but that it began.
    Recording(layout.recordings, member.name).close()
    listen = address.rpartition("/")[2]
    sys.argv = ["veredus", "proxy", "--listen", listen, "--set", f"topics.period={TOPICS_PERIOD}"]
    runpy.run_module("veredus", run_name="__main__")


def main() -> None:
    """Live, and end as the module says."""
    directory, text, address = sys.argv[1:]
    end_with_parent()
    layout, member = Layout(Path(directory)), msgspec.json.decode(text.encode(), type=Member)
    if member.role == PROXY:
        _serve_as_proxy(layout, member, address)
        return
    try:
        asyncio.run(live(layout, member, address))
    except veredus.Fenced as fenced:
        sys.stderr.write(f"fenced: {fenced.message}\n")
        # The library of threads may still hold on to a link: nothing of that is wanted.
        os._exit(EXIT_FENCED)


if __name__ == "__main__":
    main()
