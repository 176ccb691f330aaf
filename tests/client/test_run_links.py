"""A sink's run whose link is lost while something is asked of it."""

import asyncio
from typing import Any

from tests.client.line import Line
from veredus.client.sinks import RunChannel
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.client_exchange import MessageRequested, TellMessage, TellOpened


async def _commit_between_links() -> None:
    line: Any = Line()
    run = RunChannel(line, "sink", 0, b"i" * 16)
    run.begin()
    run.take(TellOpened(1, m.RunOpened(1, -1, b"")))
    run.lose()
    run.begin()
    commit = asyncio.ensure_future(run.commit(0, (7,)))
    await asyncio.sleep(0)
    assert line.said == [], "nothing may be said on a channel that is not granted yet"
    run.take(TellOpened(1, m.RunOpened(1, -1, b"")))
    (said,) = line.said
    assert said == MessageRequested(1, m.Commit(1, "sink", 1, 0, (7,)))
    run.take(TellMessage(1, m.Committed(1, 0, False, ())))
    assert (await commit).commit_id == 0


def test_a_commit_that_is_asked_for_while_a_new_link_is_not_granted_yet_is_sent_when_it_is() -> None:
    asyncio.run(_commit_between_links())
