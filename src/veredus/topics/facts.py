"""What the journal of topic clients holds: a fact for each state that was saved, and all states in a checkpoint.

    a fact                       msgpack: (key, state), or (key, how many of the messages got are handed over)
    the state of a checkpoint    msgpack: {key: state}

A key is a client's id, a space, and a topic: no id has a space. A fact holds all of a topic's state, so the last one of
a topic counts; but for that of a client that hands over, one by one, what it got at once, which would be written as
often.

Nothing else in a journal says what it holds, so each kind is known by the form of its facts: those of a node's streams
are maps with a `type`, and their checkpoints have a `version`, which is no key.
Source: seed 000, section 5.1; docs/reference/journal-format.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from veredus.kernel.errors import Refused
from veredus.kernel.octets import Octets
from veredus.protocols.topics.client_state import ClientState, end_hand_over

Snapshot: TypeAlias = dict[str, ClientState]
"""All states, by key."""
_encode = msgspec.msgpack.Encoder().encode
_decode_fact = msgspec.msgpack.Decoder(tuple[str, ClientState | int]).decode
_decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode
_NEW = ClientState()


class Fact(NamedTuple):
    """What changed: a state as a whole, or how many of the messages got are handed over."""

    key: str
    change: ClientState | int


def key_of(client: str, topic: str) -> str:
    """The key of a client's topic."""
    return f"{client} {topic}"


def names_in(key: str) -> tuple[str, str]:
    """The client and the topic of a key."""
    client, _, topic = key.partition(" ")
    return client, topic


def encode_fact(key: str, before: ClientState, state: ClientState) -> bytes:
    """What has to be written for `state` to follow from the one before."""
    return _encode(Fact(key, _change(before, state)))


def _change(before: ClientState, state: ClientState) -> ClientState | int:
    got, was = state.got, before.got
    if got is None or was is None or got.done_count <= was.done_count:
        return state
    return got.done_count if state == replace(before, got=replace(was, done_count=got.done_count)) else state


def decode_fact(payload: Octets) -> Fact:
    """A fact that is one of these. Raises `Refused`: `wrong-journal`, `newer-format`."""
    try:
        return Fact(*_decode_fact(payload))
    except msgspec.DecodeError as error:
        raise _refused(is_fact(payload), "a fact", error) from None


def apply_fact(states: Snapshot, fact: Fact) -> None:
    """Let the states be as the fact says."""
    key, change = fact
    if isinstance(change, int):
        before = states.get(key, _NEW)
        if before.got is None:
            # Damage took the fact with what was got.
            return
        change = end_hand_over(before, change)
    remember(states, key, change)


def remember(states: Snapshot, key: str, state: ClientState) -> None:
    """Let a state be this; what is as new takes no place."""
    if state == _NEW:
        states.pop(key, None)
    else:
        states[key] = state


def encode_snapshot(states: Snapshot) -> bytes:
    """All states, for a checkpoint."""
    return _encode(states)


def decode_snapshot(data: Octets) -> Snapshot:
    """All states of a checkpoint. Raises `Refused`: `wrong-journal`, `newer-format`."""
    try:
        return _decode_snapshot(data)
    except msgspec.DecodeError as error:
        raise _refused(is_snapshot(data), "the snapshot", error) from None


def is_fact(payload: Octets) -> bool:
    """Whether a fact is one of clients, in this version or a later one, and not one of streams."""
    return isinstance(_taken_apart(payload), list)


def is_snapshot(data: Octets) -> bool:
    """Whether a checkpoint is one of clients, in this version or a later one, and not one of streams."""
    taken = _taken_apart(data)
    return isinstance(taken, dict) and "version" not in taken


def _taken_apart(data: Octets) -> Any:
    try:
        return msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return None


def _refused(is_of_clients: bool, what: str, error: msgspec.DecodeError) -> Refused:
    if is_of_clients:
        message = f"{what} in the journal is unknown to this version of Veredus ({error}): use a newer one"
        return Refused("newer-format", message)
    message = f"the journal does not hold what clients of topics remember: {what} in it is one of streams of a node"
    return Refused("wrong-journal", f"{message}; name another directory")
