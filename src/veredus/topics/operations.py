"""What a client does, one operation at a time on each topic, side by side on different ones.

    put:  begin_put ──save, synced──┬──► end_put ──► end_report ──save──► the caller is told
                    └──ask──────────┘
    get:  asked_get ──► ask ──► end_get ──save, synced──► the caller has it ──► end_hand_over ──save

What must be durable, and when:

- *begin_put before the caller is told*, while it is asked: the body must not be forgotten once somebody may rely on it.
  Whoever is killed before it was written, and puts something else, is told that its counter is another body's: that
  was the put of which nobody was told anything. It begins anew, above. A put with a key is asked when this is durable:
  whoever follows must know which body the key names, or could put another one beside it.
- *end_put* is not saved at all. Whoever is killed before its caller was told asks again with the same counter and body,
  which the server knows; what its answer says beyond that, `is_taken`, only spares that question while the process
  lives. That nobody knows what became of a put is written without a sync.
- *end_report before the caller is told*, and not synced: what was acknowledged is never taken for the next put of the
  same body. A process that is killed between the two was about to be told: it puts the body twice if it tries again,
  unless it gives its puts keys. If a power failure takes what was written, the next put of the same body counts as
  this one.
- *end_get before handing over*, id and body: the next GET names the id, and the server lets go of the message.
- *end_missed* once the caller has the error that says what is gone, with the next operation on the topic, or when the
  client closes: by that error or not. Whoever left or was killed before it had the error is told once more.
- *end_hand_over* when the next operation on the topic begins, which says that the caller is done with the message, or
  when it says so, or when the client closes. Whoever is killed before gets the same message again.

An operation that has begun is brought to its end, also where its caller waits no longer: then it was told nothing.
Source: seed 000, sections 2 and 4; veredus.protocols.topics.client_state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from time import time_ns
from typing import Any, NamedTuple, TypeAlias, TypeVar

from veredus.kernel.errors import UNSTORED, Misuse, Refused, Unavailable, VeredusError
from veredus.kernel.names import KEY_SIZE_MAX
from veredus.kernel.octets import Octets
from veredus.protocols.topics.client_state import (
    ClientState,
    Got,
    asked_get,
    asked_put,
    asked_wish,
    begin_put,
    begin_wish,
    end_get,
    end_hand_over,
    end_missed,
    end_put,
    end_report,
    end_unsubscribe,
    end_wish,
    forget_last,
    is_anothers,
    is_key_used,
    is_told_put_there,
    messages_in,
    missed_id,
    told_put,
    unfinished_put,
)
from veredus.protocols.topics.messages import (
    Get,
    GetMany,
    Put,
    PutMany,
    Status,
    StatusWord,
    Subscribe,
    Unsubscribe,
    encode_message,
)

from .arguments import check_named, octets_of
from .home import Home

_GONE = "messages-gone"
_NOT_STORED = tuple(f"[{code}]" for code in UNSTORED - {"journal-failed"})
"""How the words of a server end that has stored nothing. A journal that has failed may hold what it was given, and find
it at its next start.
"""

T = TypeVar("T")
_Question: TypeAlias = Get | GetMany | Put | PutMany | Subscribe | Unsubscribe


class Message(NamedTuple):
    """What was put, as a subscriber gets it; `id` is its own within the topic."""

    topic: str
    id: str
    body: bytes


@dataclass(slots=True)
class _Place:
    """A topic, as far as this process has to do with it.

    What its caller has is marked here, at any time, and saved with the next state of the topic: the caller is told
    without the lock.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the operation on the topic, until the state that it leaves is there."""
    messages: list[Message] = field(default_factory=list)
    """What came under the id in `messages_of`."""
    messages_of: str = ""
    given_count: int = 0
    """How many of what came the caller has, in all."""
    missed_id: str = ""
    """Under which id the caller was told of what is gone, until that is saved."""
    marked: tuple[int, str] = (0, "")
    """Which of the two marks are in the state that the present operation saves: only these are forgotten by it."""


class Operations:
    """Owns what one client has in hand; opened, used and closed on one loop, while its home is open."""

    def __init__(self, client_id: str, home: Home) -> None:
        """Nothing is opened yet. Raises `Misuse("bad-word")` for an id that no header can carry."""
        check_named("id", client_id)
        self._id = client_id
        self._home = home
        self.is_open = False
        self._places: dict[str, _Place] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def open(self) -> None:
        """Its home is open."""
        self.is_open = True

    async def close(self, is_done: bool = True) -> None:
        """Bring all to its end; `is_done`: whether the callers are done with the messages that they got."""
        self.is_open = False
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        for topic, place in self._places.items():
            if not is_done:
                place.given_count = 0
            # Where this cannot be written, it is as if the process had been killed here.
            with suppress(Unavailable):
                async with place.lock:
                    await self._save_marks(topic)

    # ── what the caller was told ─────────────────────────────────────────────────────────────────────────────────────

    async def told(self, topic: str) -> None:
        """The caller of the last put on the topic is about to know that it was taken: that is written down first.

        A caller that does not wait so long is told nothing: its put is still the one to be tried again.
        """
        lock = self._place(topic).lock
        await lock.acquire()
        is_left = False
        try:
            state = self._state(topic)
            if state.putting is None or not state.putting.is_taken:
                return
            saved = self._saved(topic, end_report(state), is_synced=False)

            def untell(_: asyncio.Future[None]) -> None:
                self._home.states.hold(self._id, topic, state)
                lock.release()

            try:
                with suppress(Unavailable):
                    await asyncio.shield(saved)
            except asyncio.CancelledError:
                # What follows on the topic begins with what is held then, and would be undone by it otherwise.
                is_left = True
                saved.add_done_callback(untell)
                raise
        finally:
            if not is_left:
                lock.release()

    def given(self, topic: str, count: int = 1) -> None:
        """The caller has what it took, so many; the next operation on the topic says that it is done with it."""
        got = self._state(topic).got
        if got is not None:
            self._place(topic).given_count = got.done_count + count

    def heard(self, topic: str, error: VeredusError | None) -> None:
        """The caller has the error that `take` raised, or not after all (None); it is not told again what is gone."""
        if error is None:
            self._place(topic).missed_id = ""
        elif error.code == _GONE:
            self._place(topic).missed_id = str(error.details["message_id"])

    def _marked(self, topic: str) -> ClientState:
        """The topic's state, with what its caller was told and given by now."""
        state, place = self._state(topic), self._place(topic)
        place.marked = (place.given_count, place.missed_id)
        if place.missed_id:
            state = end_missed(state, place.missed_id)
        if state.got is not None and place.given_count > state.got.done_count:
            state = end_hand_over(state, place.given_count)
        return state

    async def _save(self, topic: str, state: ClientState, is_synced: bool = True) -> None:
        await self._saved(topic, state, is_synced)
        self._forget_marks(topic)

    def _forget_marks(self, topic: str) -> None:
        """Those that were `marked` are saved, but none that was made since."""
        place = self._place(topic)
        given_count, missed_id = place.marked
        if place.given_count == given_count:
            place.given_count = 0
        if place.missed_id == missed_id:
            place.missed_id = ""
        place.marked = (0, "")

    async def _save_marks(self, topic: str) -> None:
        state = self._marked(topic)
        if state != self._state(topic):
            await self._save(topic, state, is_synced=False)

    # ── operations ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(self, topic: str) -> None:
        """Be subscribed to the topic. Raises `Refused` or `Unavailable`; then it is not known whether one is."""
        check_named("topic", topic)
        await self._run(self._subscribe(topic))

    async def unsubscribe(self, topic: str) -> None:
        """Be subscribed to the topic no longer. Raises `Refused` or `Unavailable`; then it is not known."""
        check_named("topic", topic)
        await self._run(self._unsubscribe(topic))

    async def put(self, topic: str, body: bytes, is_many: bool = False, key: Octets | str = b"") -> None:
        """Put a message, or what `many.pack` made of many; `told` is to be called next.

        Raises `Misuse` (`too-large`, `bad-argument`), `Refused` or `Unavailable`.
        """
        check_named("topic", topic)
        size_max = self._home.settings.body_size_max
        if len(body) > size_max:
            raise Misuse("too-large", f"the body has {len(body)} bytes, and the limit is {size_max}: put it in parts")
        name = octets_of(key, "key")
        if len(name) > KEY_SIZE_MAX:
            raise Misuse("too-large", f"the key has {len(name)} bytes, and the limit is {KEY_SIZE_MAX}")
        await self._run(self._put(topic, body, is_many, name))

    async def take(self, topic: str, count_max: int = 0) -> list[Message]:
        """The next message, or up to `count_max`, if there are any; `given` is to be called next, or `heard`.

        Raises `Refused` or `Unavailable`.
        """
        check_named("topic", topic)
        return await self._run(self._take(topic, count_max))

    async def done(self, message: object) -> None:
        """The caller is done with a message that it has, and with those that it got before.

        Raises `Unavailable` where that cannot be written.
        """
        if not isinstance(message, Message):
            said = f"done takes a message that get returned, not {message!r:.60}"
            raise Misuse("bad-argument", said, argument="message")
        await self._run(self._done(message))

    async def _done(self, message: Message) -> None:
        async with self._place(message.topic).lock:
            state = self._state(message.topic)
            if state.got is None:
                return
            ids = [one.id for one in self._messages(message.topic, state.got)]
            done_count = ids.index(message.id) + 1 if message.id in ids else 0
            if done_count > state.got.done_count:
                await self._saved(message.topic, end_hand_over(state, done_count), is_synced=False)

    async def _subscribe(self, topic: str) -> None:
        async with self._place(topic).lock:
            status = await self._wish(topic, is_leaving=False)
            if status.status not in (StatusWord.OK, StatusWord.ALREADY_SUBSCRIBED):
                raise self._error(status, "SUBSCRIBE", topic)

    async def _unsubscribe(self, topic: str) -> None:
        async with self._place(topic).lock:
            status = await self._wish(topic, is_leaving=True)
            # Not subscribed any more is what a second try is told where the first one's answer was lost.
            if status.status not in (StatusWord.OK, StatusWord.NOT_SUBSCRIBED):
                raise self._error(status, "UNSUBSCRIBE", topic)
            await self._save_if_changed(topic, end_unsubscribe(self._state(topic)))

    async def _wish(self, topic: str, is_leaving: bool) -> Status:
        """Ask under a new number; once more above the one that is named, if this client has forgotten that."""
        status = await self._ask_wish(topic, self._marked(topic), is_leaving)
        known = end_wish(self._state(topic), status)
        return status if known is None else await self._ask_wish(topic, known, is_leaving)

    async def _ask_wish(self, topic: str, known: ClientState, is_leaving: bool) -> Status:
        state = begin_wish(known, is_leaving, time_ns() // 1000)
        question = asked_wish(state, self._id, topic, is_leaving)
        return await self._ask_saved(topic, state, question, is_synced=False)

    async def forget_last(self, topic: str) -> None:
        """Forget which message came last. Raises `Unavailable` where that cannot be written."""
        check_named("topic", topic)
        await self._run(self._forget_last(topic))

    async def _forget_last(self, topic: str) -> None:
        async with self._place(topic).lock:
            await self._save(topic, forget_last(self._marked(topic)))

    async def _save_if_changed(self, topic: str, state: ClientState) -> None:
        if state != self._state(topic):
            await self._save(topic, state)

    async def _take(self, topic: str, count_max: int) -> list[Message]:
        async with self._place(topic).lock:
            state = self._marked(topic)
            if state.got is not None:
                await self._save_marks(topic)
            else:
                status = await self._ask_saved(topic, state, asked_get(state, self._id, topic, count_max), False)
                if status.status == StatusWord.NO_MESSAGES:
                    return []
                if status.status != StatusWord.OK:
                    raise self._error(status, "GET", topic)
                state = end_get(state, status, count_max > 0)
                await self._save(topic, state)
            assert state.got is not None
            first = state.got.done_count
            return self._messages(topic, state.got)[first : first + max(1, count_max)]

    def _messages(self, topic: str, got: Got) -> list[Message]:
        """All that came, handed over or not."""
        place = self._place(topic)
        if place.messages_of != got.message_id:
            place.messages = list(map(Message, repeat(topic), *messages_in(got)))
            place.messages_of = got.message_id
        return place.messages

    async def _put(self, topic: str, body: bytes, is_many: bool, key: bytes) -> None:
        async with self._place(topic).lock:
            state = self._marked(topic)
            if is_key_used(state, body, is_many, key):
                raise await self._key_used(topic, state)
            told = told_put(state, self._id, topic, body, is_many, key)
            if told is not None:
                status = await self._ask(encode_message(told))
                if is_told_put_there(told, status):
                    return
                raise self._error(status, "PUT", topic)
            if unfinished_put(state, body, is_many, key) is not None:
                state = await self._finished(topic, state)
            is_first = state.last_put_counter == 0
            state = begin_put(state, body, is_many, key, time_ns() // 1000)
            assert state.putting is not None
            if is_first or key:
                # A process that follows must have the same counter, which is this moment, and the body of the key.
                await self._save_if_changed(topic, state)
            if state.putting.is_taken:
                await self._save_if_changed(topic, state)
                return
            error: VeredusError
            try:
                status = await self._ask_saved(topic, state, asked_put(state, self._id, topic))
                if is_anothers(state, status):
                    state = begin_put(end_put(state, status), body, is_many, key)
                    status = await self._ask_saved(topic, state, asked_put(state, self._id, topic))
            except Unavailable as unavailable:
                state, error = end_put(state, None), unavailable
            else:
                state = end_put(state, status)
                if status.status == StatusWord.OK:
                    self._home.states.hold(self._id, topic, state)
                    return
                error = self._error(status, "PUT", topic)
            with suppress(Unavailable):
                await self._save(topic, state, is_synced=False)
            raise _in_doubt(error)

    async def _ask_saved(self, topic: str, state: ClientState, question: _Question, is_synced: bool = True) -> Status:
        """Ask while the state is being saved; the answer when it is."""
        if state == self._state(topic):
            return await self._ask(encode_message(question))
        saved = self._saved(topic, state, is_synced)
        try:
            return await self._ask(encode_message(question))
        finally:
            await saved
            self._forget_marks(topic)

    async def _finished(self, topic: str, state: ClientState) -> ClientState:
        """The state with the put finished that a killed process left. Raises `Unavailable` where nobody knows."""
        try:
            status = await self._ask(encode_message(asked_put(state, self._id, topic)))
            ended = end_put(state, status)
            if status.status == StatusWord.OK:
                # Nobody is left who could be told.
                return end_report(ended)
            error = self._error(status, "PUT", topic)
            if isinstance(error, Refused):
                return ended
            raise error
        except Unavailable as error:
            said = "an earlier put was not finished when its process ended, and must be finished first"
            raise Unavailable(error.code, f"{said}: {error.message}", **error.details) from None

    async def _key_used(self, topic: str, state: ClientState) -> Misuse:
        """What to raise where the last put has this key and another body; if that is in doubt, it is finished first.

        Raises `Refused` or `Unavailable` where it cannot be finished, and `Unavailable` where that cannot be written.
        """
        said = f"the last put on {topic} has this key and another body"
        if state.putting is not None:
            try:
                status = await self._ask(encode_message(asked_put(state, self._id, topic)))
                if status.status != StatusWord.OK:
                    raise self._error(status, "PUT", topic)
            except VeredusError as error:
                message = f"{said}, and that one must be finished first: {error.message}. Try again, with its body"
                raise type(error)(error.code, message, **error.details) from None
            await self._save(topic, end_report(end_put(state, status)), is_synced=False)
        advice = "If you meant to try again, it is done; for another message, use a new key"
        return Misuse("key-used", f"{said}, and that was put: this body was not. {advice}", topic=topic)

    # ── small things ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _place(self, topic: str) -> _Place:
        place = self._places.get(topic)
        if place is None:
            place = self._places[topic] = _Place()
        return place

    def _state(self, topic: str) -> ClientState:
        return self._home.states.of(self._id, topic)

    def _saved(self, topic: str, state: ClientState, is_synced: bool = True) -> asyncio.Future[None]:
        """Done when it is remembered for good."""
        return self._home.states.save(self._id, topic, state, is_synced)

    async def _ask(self, data: bytes) -> Status:
        return await self._home.questions.ask(data)

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Bring `work` to its end, whether the caller waits for it or not."""
        try:
            if not self.is_open:
                raise Misuse("not-open", f"client {self._id} is not open: use it in a `with` or `async with` block")
            self._home.check_loop()
        except Misuse:
            work.close()
            raise
        return await asyncio.shield(self._spawn(work))

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            # A caller who was cancelled waits for it no more: asyncio would print what it raised.
            task.exception()

    def _error(self, status: Status, asked: str, topic: str) -> VeredusError:
        """What an answer means that is none of those that were hoped for."""
        text = status.body.decode(errors="backslashreplace")
        said = f"{status.sender} answers {asked} {topic} with {status.status}" + (f": {text}" if text else "")
        match status.status:
            case StatusWord.NOT_SUBSCRIBED if asked != "PUT":
                said = f"client {self._id} is not subscribed to {topic}: subscribe first"
                return Refused("not-subscribed", said, topic=topic)
            case StatusWord.SERVER_UNAVAILABLE:
                return Unavailable("server-unavailable", said, topic=topic)
            case StatusWord.PROXY_DOES_NOT_KNOW_ANY_SERVER:
                return Unavailable("no-server", said, topic=topic)
            case StatusWord.INTERNAL_ERROR if text.endswith(_NOT_STORED):
                return Unavailable("not-stored", f"{said}: it was not stored, and may be tried again", topic=topic)
            case StatusWord.INTERNAL_ERROR if missed_id(status):
                return Unavailable(_GONE, said, topic=topic, message_id=status.message_id)
            case StatusWord.INTERNAL_ERROR:
                return Unavailable("server-failed", said, topic=topic)
            case StatusWord.REFUSED | StatusWord.BAD_MESSAGE:
                return Refused("refused", said, topic=topic)
            case _ if asked == "PUT":
                # It may be there all the same.
                return Unavailable("bad-answer", said, topic=topic)
            case _:
                return Refused("bad-answer", said, topic=topic)


def _in_doubt(error: VeredusError) -> VeredusError:
    # A proxy without a server passed nothing on.
    if isinstance(error, Unavailable) and error.code not in ("no-server", "not-stored"):
        said = f"{error.message} (it is not known whether the message was put; retrying is idempotent)"
        return Unavailable(error.code, said, **error.details)
    return error
