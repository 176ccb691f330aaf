"""Whose questions are taken from their connections now: who has its share on its way is not read from meanwhile.

So what it asks beyond that waits in its own system and in the sockets between, and whoever asks little goes on.
"""

from __future__ import annotations

import asyncio

from veredus.node.handed_on import HandedOn

from .zmtp_links import MESSAGES_PER_TURN, MessageLink, Payer


class AskingRoom:
    """Owns the room for questions on one owner's links; used on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, at_once_max: int) -> None:
        """For about `at_once_max` questions that are not answered yet; 0 for no bound."""
        self._loop = loop
        self._handed_on: HandedOn[Payer, MessageLink] | None = HandedOn(at_once_max) if at_once_max else None
        self._is_due = False

    def room_for(self, payer: Payer, link: MessageLink) -> int:
        """How many questions of the link may be taken; for none it is read on from when there is room."""
        if self._handed_on is None:
            return MESSAGES_PER_TURN
        room = self._handed_on.room(payer, link)
        if not room:
            self._handed_on.wait(payer, link)
        return room

    def take(self, payer: Payer, link: MessageLink) -> None:
        """A question of the link was taken."""
        if self._handed_on is not None:
            self._handed_on.take(payer, link)

    def answer(self, payer: Payer, link: MessageLink) -> None:
        """It was answered."""
        if self._handed_on is not None and self._handed_on.answer(payer, link):
            self._look_soon()

    def forget(self, link: MessageLink) -> None:
        """The link is gone."""
        if self._handed_on is not None:
            self._handed_on.forget(link)

    def _look_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_due = False
        assert self._handed_on is not None
        for link in self._handed_on.ready():
            link.read_on()
            # Perhaps more are ready than are looked at at once.
            self._look_soon()
