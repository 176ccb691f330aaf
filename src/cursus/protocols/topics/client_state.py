"""What a client remembers of one topic, so that it can be killed at any point and run again: no loss, no double.

    put:  begin_put ──save──► ask ──► end_put ──save──► report ──► end_report ──save
    get:  asked_get ──► ask ──► end_get ──save──► hand over ──► end_hand_over ──save

Each `save` means: nothing goes on before the state is durable. A put is asked with the same counter until it is known
to have been taken, and is remembered until its caller was told: whoever follows a killed process and puts the same body
goes on with that put, and any other put comes behind it. A message that came is kept with its body until it was handed
over; whoever was killed in between hands it over again, with the same id. (Killed between the report and its save, a
client cannot know that it had reported: the same body put next counts as that put.)
Source: seed 000, sections 4 and 5.1; beyond it, the body of either is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cursus.kernel.errors import Refused

from .messages import NO_MESSAGE_ID, Get, Put, Status, StatusWord

_DIGITS_MAX = 19


@dataclass(frozen=True, slots=True)
class Putting:
    """A put whose caller was not told that it was taken."""

    counter: int
    body: bytes
    is_taken: bool = False
    is_in_doubt: bool = False
    """Whether its caller was told that nobody knows. Who was told may put something else, and leave it in doubt."""


@dataclass(frozen=True, slots=True)
class Got:
    """A message that came and was not handed over, as far as is known."""

    message_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class ClientState:
    """Of one topic."""

    last_get_id: str = NO_MESSAGE_ID
    last_put_counter: int = 0
    putting: Putting | None = None
    got: Got | None = None


def unfinished_put(state: ClientState, body: bytes) -> Putting | None:
    """The put that must be finished before `body` is put: one that is under way, with another body."""
    putting = state.putting
    if putting is None or putting.is_taken or putting.is_in_doubt or putting.body == body:
        return None
    return putting


def begin_put(state: ClientState, body: bytes) -> ClientState:
    """`body` is being put: as before if the last put had the same body and its caller was not told, and else anew.

    Whatever `unfinished_put` names must have been finished before; what `is_taken` already need not be asked.
    """
    putting = state.putting
    if putting is not None and putting.body == body:
        return replace(state, putting=replace(putting, is_in_doubt=False))
    counter = state.last_put_counter + 1
    return replace(state, last_put_counter=counter, putting=Putting(counter, body))


def asked_put(state: ClientState, client: str, topic: str) -> Put:
    """What is asked for the put that is under way."""
    assert state.putting is not None
    return Put(client, topic, state.putting.counter, state.putting.body)


def end_put(state: ClientState, status: Status | None) -> ClientState:
    """The put was taken, or was not and never will be, or its outcome is not known: nobody answered (None), or not so.

    A client that lost its directory begins with counters that it has used: it goes on above the one that it is told.
    """
    assert state.putting is not None
    last = status.message_id if status is not None and status.status == StatusWord.REFUSED else ""
    if last.isascii() and last.isdigit() and len(last) < _DIGITS_MAX:
        return replace(state, putting=None, last_put_counter=max(state.last_put_counter, int(last)))
    is_taken = status is not None and status.status == StatusWord.OK
    return replace(state, putting=replace(state.putting, is_taken=is_taken, is_in_doubt=not is_taken))


def end_report(state: ClientState) -> ClientState:
    """The caller was told that the put was taken."""
    return replace(state, putting=None)


def asked_get(state: ClientState, client: str, topic: str) -> Get:
    """What is asked where no message waits to be handed over."""
    return Get(client, topic, state.last_get_id)


def end_get(state: ClientState, status: Status) -> ClientState:
    """A message came. Raises `Refused("bad-answer")` for one without an id, or with that of the one before."""
    if not status.message_id or status.message_id in (state.last_get_id, NO_MESSAGE_ID):
        said = f"{status.sender} answers a GET behind {state.last_get_id} with the message id {status.message_id!r}"
        raise Refused("bad-answer", f"{said}: nothing was taken over", server=status.sender)
    return replace(state, last_get_id=status.message_id, got=Got(status.message_id, status.body))


def end_hand_over(state: ClientState) -> ClientState:
    """The message was handed over."""
    return replace(state, got=None)


def end_unsubscribe(state: ClientState) -> ClientState:
    """Nothing of the topic is received any more, also not what came before."""
    return replace(state, last_get_id=NO_MESSAGE_ID, got=None)
