"""What a client remembers of one topic, so that it can be killed at any point and run again: no loss, no double.

    wish: begin_wish ──save, ask──► end_wish, which begins anew above a number that the client had forgotten
    put:  begin_put ──save, ask──► end_put ──save──► report ──► end_report ──save
    get:  asked_get ──► ask ──► end_get ──save──► hand over ──► end_hand_over ──save
                             └► end_missed, where what would have come is no longer available

Each `save` means: nothing goes on before the state is durable; a put may be asked meanwhile. A put is asked with the
same counter until it is known to have been taken, and is remembered until its caller was told: whoever follows a killed
process and puts the same body goes on with that put, and any other put comes behind it. A message that came is kept
with its body until it was handed over; whoever was killed in between hands it over again, with the same id. What puts
or gets many messages at once does so with a body that `many.pack` has made of them. The report is saved first, and then
made: a put that was acknowledged is never taken for the next one of the same body. Who is killed between the two cannot
know that it was about to be told: it puts the body once more, unless both have the same key. A key names one body: with
another one, nothing is put, for the first may be anywhere, and servers tell puts by counter and body.
Source: seed 000, sections 4 and 5.1; beyond it, the body of either is kept.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from veredus.kernel.errors import PeerFault, Refused

from .many import SEQUENCE_SIZE, count_of, sequences_in, unpack
from .messages import Get, GetMany, Put, PutMany, Status, StatusWord, Subscribe, Unsubscribe
from .words import NO_MESSAGE_ID

_DIGITS_MAX = 19
_DIGEST_SIZE = 16
_AnyPut: TypeAlias = Put | PutMany


class Putting(msgspec.Struct, frozen=True):
    """A put whose caller was not told that it was taken."""

    counter: int
    body: bytes
    is_taken: bool = False
    is_in_doubt: bool = False
    """Whether its caller was told that nobody knows. Who was told may put something else, and leave it in doubt."""
    is_many: bool = False
    """Whether the body is many messages, the first of which has the counter."""
    key: bytes = b""
    """By which its caller knows it again; b"" where it is known by its body."""


class Got(msgspec.Struct, frozen=True):
    """A message that came and was not handed over, as far as is known; or many, of which some may have been."""

    message_id: str
    body: bytes
    is_many: bool = False
    done_count: int = 0
    """How many of them were handed over."""


class ClientState(msgspec.Struct, frozen=True):
    """Of one topic."""

    last_get_id: str = NO_MESSAGE_ID
    last_put_counter: int = 0
    putting: Putting | None = None
    got: Got | None = None
    last_put_key: bytes = b""
    """The key of the last put of which the caller was told."""
    last_wish: int = 0
    """The number of the last SUBSCRIBE or UNSUBSCRIBE; 0 for none yet."""
    last_leaving: int = 0
    """The number of the last UNSUBSCRIBE; 0 for none yet."""
    last_put_digest: bytes = b""
    """What tells the body of the put with `last_put_key` from others; b"" where that is not known."""


def begin_wish(state: ClientState, is_leaving: bool, wall_us: int) -> ClientState:
    """The client is about to ask for a subscription, or for its end, under a number that it never had before.

    Numbers begin with the time (µs), so that they grow also for a client that lost its directory.
    """
    wish = max(state.last_wish + 1, wall_us)
    return replace(state, last_wish=wish, last_leaving=wish if is_leaving else state.last_leaving)


def asked_wish(state: ClientState, client: str, topic: str, is_leaving: bool) -> Subscribe | Unsubscribe:
    """What is asked for the wish that was begun."""
    if is_leaving:
        return Unsubscribe(client, topic, state.last_wish)
    return Subscribe(client, topic, state.last_wish, state.last_leaving)


def end_wish(state: ClientState, status: Status) -> ClientState | None:
    """The state in which the wish is to be begun once more, since it was none of the newest; None where it is over."""
    last = _last_counter(status)
    return None if last is None else replace(state, last_wish=max(state.last_wish, last))


def told_put(state: ClientState, client: str, topic: str, body: bytes, is_many: bool, key: bytes) -> _AnyPut | None:
    """The put with this key, where the caller was told already that it was taken, and has forgotten that; else None.

    It is asked once more, under its counter: a server that was put back to a copy has lost it.
    """
    if not key or state.putting is not None or state.last_put_key != key:
        return None
    counter = state.last_put_counter + 1 - (count_of(body) if is_many else 1)
    return (PutMany if is_many else Put)(client, topic, counter, body)


def is_told_put_there(asked: _AnyPut, status: Status) -> bool:
    """Whether what `told_put` gave is there by this answer: also where another was put behind it."""
    last = _last_counter(status)
    return status.status == StatusWord.OK or (last is not None and last >= asked.counter)


def is_key_used(state: ClientState, body: bytes, is_many: bool, key: bytes) -> bool:
    """Whether the last put had this key and another body: `body` is no retry of it then, and no put of its own."""
    if not key:
        return False
    putting = state.putting
    if putting is not None:
        return putting.key == key and not _is_same(putting, body, is_many, key)
    return state.last_put_key == key and state.last_put_digest not in (b"", _digest_of(body, is_many))


def unfinished_put(state: ClientState, body: bytes, is_many: bool = False, key: bytes = b"") -> Putting | None:
    """The put that must be finished before `body` is put: one that is under way, with another body."""
    putting = state.putting
    if putting is None or putting.is_taken or putting.is_in_doubt or _is_same(putting, body, is_many, key):
        return None
    return putting


def begin_put(
    state: ClientState, body: bytes, is_many: bool = False, key: bytes = b"", wall_us: int = 0
) -> ClientState:
    """`body` is being put: as before if the last put had the same key, or without one the same body, and its caller was
    not told; and else anew. The first counter of all is the time, so that a client that lost its directory does not use
    one again.

    Whatever `unfinished_put` names must have been finished before; what `is_taken` already need not be asked.
    """
    putting = state.putting
    if putting is not None and _is_same(putting, body, is_many, key):
        return replace(state, putting=replace(putting, is_in_doubt=False))
    last = state.last_put_counter or max(0, wall_us - 1)
    count = count_of(body) if is_many else 1
    return replace(state, last_put_counter=last + count, putting=Putting(last + 1, body, is_many=is_many, key=key))


def _is_same(putting: Putting, body: bytes, is_many: bool, key: bytes) -> bool:
    return putting.key == key and putting.body == body and putting.is_many == is_many


def asked_put(state: ClientState, client: str, topic: str) -> _AnyPut:
    """What is asked for the put that is under way."""
    putting = state.putting
    assert putting is not None
    return (PutMany if putting.is_many else Put)(client, topic, putting.counter, putting.body)


def is_anothers(state: ClientState, status: Status) -> bool:
    """Whether the put was not taken and never will be, since another put has its counter.

    Had it been taken, the last counter would be its own with its own body, or above. What took the counter is a put
    that was under way when a process ended, which nobody remembers.
    """
    putting = state.putting
    assert putting is not None
    last = _last_counter(status)
    return last is not None and putting.counter <= last <= state.last_put_counter


def _last_counter(status: Status | None) -> int | None:
    """The counter above which a refused put may be put anew; None where that is not said."""
    said = status.message_id if status is not None and status.status == StatusWord.REFUSED else ""
    return int(said) if said.isascii() and said.isdigit() and len(said) < _DIGITS_MAX else None


def end_put(state: ClientState, status: Status | None) -> ClientState:
    """The put was taken, or was not and never will be, or its outcome is not known: nobody answered (None), or not so.

    A client that lost its directory begins with counters that it has used: it goes on above the one that it is told.
    """
    assert state.putting is not None
    last = _last_counter(status)
    if last is not None:
        return replace(state, putting=None, last_put_counter=max(state.last_put_counter, last))
    is_taken = status is not None and status.status == StatusWord.OK
    return replace(state, putting=replace(state.putting, is_taken=is_taken, is_in_doubt=not is_taken))


def end_report(state: ClientState) -> ClientState:
    """The caller was told that the put was taken, or is about to be."""
    putting = state.putting
    if putting is None:
        return state
    digest = _digest_of(putting.body, putting.is_many) if putting.key else b""
    return replace(state, putting=None, last_put_key=putting.key, last_put_digest=digest)


def _digest_of(body: bytes, is_many: bool) -> bytes:
    return blake2b(body, digest_size=_DIGEST_SIZE, person=b"many" if is_many else b"one").digest()


def asked_get(state: ClientState, client: str, topic: str, count_max: int = 0) -> Get | GetMany:
    """What is asked where no message waits to be handed over: for the next one, or for up to `count_max`."""
    last_id = state.last_get_id
    return GetMany(client, topic, last_id, count_max) if count_max else Get(client, topic, last_id)


def end_get(state: ClientState, status: Status, is_many: bool = False) -> ClientState:
    """A message came, or many. Raises `Refused("bad-answer")` for one without an id, or with that of the one before."""
    if not status.message_id or status.message_id in (state.last_get_id, NO_MESSAGE_ID):
        said = f"{status.sender} answers a GET after {state.last_get_id} with the message id {status.message_id!r}"
        raise Refused("bad-answer", f"{said}: the answer was ignored", server=status.sender)
    if is_many:
        try:
            count_of(status.body, SEQUENCE_SIZE)
        except PeerFault as fault:
            said = f"{status.sender} answers GET_MANY with an invalid body ({fault.message}): the answer was ignored"
            raise Refused("bad-answer", said, server=status.sender) from None
    return replace(state, last_get_id=status.message_id, got=Got(status.message_id, status.body, is_many))


def missed_id(status: Status) -> str:
    """The id under which an answer to a GET tells of what is no longer available; "" where it tells of nothing."""
    is_told = status.status == StatusWord.INTERNAL_ERROR and status.message_id != NO_MESSAGE_ID
    return status.message_id if is_told else ""


def end_missed(state: ClientState, message_id: str) -> ClientState:
    """The caller has heard what is no longer available: to name the id under which it was told says so.

    Whoever is killed before it has heard is told once more.
    """
    return replace(state, last_get_id=message_id)


def messages_in(got: Got) -> tuple[list[str], list[bytes]]:
    """The ids and the bodies of all that came, handed over or not."""
    if not got.is_many:
        return [got.message_id], [got.body]
    shown, _, _ = got.message_id.partition("-")
    return [f"{shown}-{sequence}" for sequence in sequences_in(got.body)], unpack(got.body)


def end_hand_over(state: ClientState, done_count: int = 1) -> ClientState:
    """So many of the messages that came were handed over, in all."""
    got = state.got
    assert got is not None
    is_over = not got.is_many or done_count >= count_of(got.body, SEQUENCE_SIZE)
    return replace(state, got=None if is_over else replace(got, done_count=done_count))


def forget_last(state: ClientState) -> ClientState:
    """The server that gave the last message is lost for good: no other one can tell what its id means.

    Whoever gets behind `NO_MESSAGE_ID` is given what waits, and loses nothing of it.
    """
    return replace(state, last_get_id=NO_MESSAGE_ID)


def end_unsubscribe(state: ClientState) -> ClientState:
    """Nothing of the topic is received any more, also not what came before."""
    return replace(state, last_get_id=NO_MESSAGE_ID, got=None)
