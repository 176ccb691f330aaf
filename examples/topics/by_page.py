"""A client that knows the specification alone, over REQ sockets of its own: half of the clients of a run are like this.

It keeps nothing beside its account, which is what the page has in its directory: the id that it was given last is in
its last line of a topic, and the counter of a put is the place of its flight, which grows and is the same where it is
tried again. What the page leaves open is done as its readers would: an answer is waited for half a second, a question
asked four times on a new socket each, and then of the next proxy.
Source: seed 000, sections 3 to 5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic
from types import TracebackType
from typing import NamedTuple, Self

import zmq
import zmq.asyncio
from accounts import index_of

from veredus.kernel.errors import Refused, Unavailable
from veredus.sim import topics_page_codec as page

ANSWER_MS, TRIES_COUNT = 500, 4
POLL_SECONDS = 0.25


class Received(NamedTuple):
    """A message, and its id."""

    id: str
    body: bytes


class PageClient:
    """As much of `AsyncClient` as a run uses."""

    def __init__(self, client_id: str, *, proxies: Sequence[str], last_ids: Mapping[str, str]) -> None:
        """`last_ids`: by topic, the message that it was given last."""
        self._id = client_id
        self._proxies = list(proxies)
        self._last_ids = dict(last_ids)
        self._context = zmq.asyncio.Context.instance()

    async def __aenter__(self) -> Self:
        """Nothing has to be opened."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open."""

    async def subscribe(self, topic: str) -> None:
        """SUBSCRIBE until it is done, or raise."""
        await self._ask(page.subscribe(self._id, topic), page.OK, page.ALREADY)

    async def put(self, topic: str, body: bytes) -> None:
        """PUT a flight under its place."""
        await self._ask(page.put(self._id, topic, index_of(body), body), page.OK)

    async def get(self, topic: str, *, wait_s: float) -> Received | None:
        """GET behind the last one; None where nothing comes for so long."""
        until = monotonic() + wait_s
        while True:
            said = await self._ask(page.get(self._id, topic, self._last_ids.get(topic, "-1")), page.OK, page.NONE)
            if said.status == page.OK:
                self._last_ids[topic] = said.message_id
                return Received(said.message_id, said.body)
            if monotonic() > until:
                return None
            await asyncio.sleep(POLL_SECONDS)

    async def _ask(self, octets: bytes, *wanted: str) -> page.Said:
        """The answer, if it is one of those. Raises `Unavailable` or `Refused` as the answer says."""
        proxy = self._proxies[0]
        for _ in range(TRIES_COUNT):
            with self._context.socket(zmq.REQ) as req:
                req.linger = 0
                req.connect(f"tcp://{proxy}")
                await req.send(octets)
                if await req.poll(ANSWER_MS):
                    said = page.heard(await req.recv())
                    break
        else:
            if proxy == self._proxies[0]:
                # Others that wait for the same one have not given it up yet.
                self._proxies.append(self._proxies.pop(0))
            raise Unavailable("no-proxy", f"{proxy} did not answer {TRIES_COUNT} times")
        if said.status in wanted:
            return said
        if said.status in (page.UNAVAILABLE, page.NO_SERVER, "INTERNAL_ERROR"):
            raise Unavailable("server-unavailable", said.body.decode())
        code = "not-subscribed" if said.status == page.NOT_SUBSCRIBED else "refused"
        raise Refused(code, f"{said.status}: {said.body.decode()}")
