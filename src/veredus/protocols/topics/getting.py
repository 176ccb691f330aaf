"""The way out: each subscriber of a topic is a durable subscription of its stream, and GET settles one by one.

    LOOKING ── there ──► ATTACHING ── GrantSubscription ──► ATTACHED ── Fence, Refuse, quiet for long ──► gone
        └── not there: NOT_SUBSCRIBED, or with SUBSCRIBE attached from the head on

A message's id is its sequence and the life of the stream that it belongs to. GET names the last one that its client
has: that is settled, durably, and then the next one is answered, which stays the next one until a GET names it. What is
settled already was answered and the answer lost, so the next one is answered as well; any other id was never given. Ids
of a stream that was merged into this one are known by where the subscription stood there (its *origins*).

What is no longer available is told under an id like that of many messages, until it is named, or was told often.

GET_MANY is answered with several at once, under an id that names the first and the last: whoever names it has received
all that was unsettled from the one to the other. That the first is the next one says that they were given.

Invariants
    (1) Each question is answered exactly once.
    (2) What waits to be handed out lies in the order in which it was pushed; everything before it is done with.
    (3) One question of a client's is worked on at a time.
    (4) What waits for all is summed; above `HELD_SIZE_MAX` it waits for those alone who ask.
Source: seed 000, sections 2.1 to 2.3, 3.1.1 to 3.1.3 and 4; docs/decisions/0012.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

from veredus.delivery.settlement import Range
from veredus.kernel.engine import Now
from veredus.streams import exchange as x
from veredus.streams.facts import Lost
from veredus.streams.lives import Lives
from veredus.streams.lost import but_for
from veredus.streams.ranges import is_in, joined, without

from .getter import CREDIT_SIZE, Asking, Getter, Held, Question
from .ids import SUBSCRIPTION, gap_id, is_of_page, read_id, shown_of, unknown_id
from .losing import named_in
from .many import COUNT_MAX, LENGTH_SIZE, SEQUENCE_SIZE, Many
from .messages import Get, GetMany, StatusWord, Subscribe, Unsubscribe
from .pushed import Gap, Message, messages_in
from .putting import answer_for
from .transfer import page_numbers
from .words import NO_MESSAGE_ID

MANY_CREDIT_SIZE = 2 << 20
"""The same for one that gets many at once, as long as there are no more than `WIDE_MAX` of those."""
WIDE_MAX = 128
_ADMIN, _LOOK, _TELL = 1, 2, 3


class GetEnded(NamedTuple):
    """What became of what `peer` asked for; with a message, its id and body."""

    peer: int
    status: StatusWord
    text: str = ""
    message_id: str = ""
    body: bytes | Many = b""


Effect: TypeAlias = (
    GetEnded | x.SubscribeRequested | x.CreditGranted | x.SettleRequested | x.AdminRequested | x.SessionClosed
)
Answer: TypeAlias = (
    x.GrantSubscription | x.Push | x.PushProgress | x.PushGap | x.ConfirmSettled | x.AnswerAdmin | x.Refuse | x.Fence
)


class Gets:
    """Owns the clients that subscribe and get, and what was pushed for them and not handed out for good."""

    def __init__(
        self,
        open_session: Callable[[], int],
        new_incarnation: Callable[[], bytes],
        getters_max: int,
        answer_size_max: int,
    ) -> None:
        """Nobody has asked yet. `open_session` gives sessions of the streams floor that nobody has."""
        self._open_session = open_session
        self._new_incarnation = new_incarnation
        self._getters_max = getters_max
        self._answer_size_max = answer_size_max
        """Of many messages together; a single one may be larger."""
        self._wide_count = 0
        self._held = Held()
        self._getters: dict[tuple[str, str, str], Getter] = {}
        """By topic, client and principal; who asked last stands last."""
        self.by_session: dict[int, Getter] = {}
        """Who has which session that is open."""
        self._effects: list[Effect] = []
        self._now = Now(0, 0)

    def ask(self, peer: int, question: Question, principal: str, now: Now) -> Sequence[Effect]:
        """A client subscribes, unsubscribes or gets, as `principal`."""
        effects: list[Effect] = []
        self._effects, self._now = effects, now
        key = (question.topic, question.sender, principal)
        getter = self._getters.pop(key, None)
        if getter is None:
            getter = Getter(self._open_session(), question.topic, question.sender, principal)
            self.by_session[getter.session] = getter
            self._make_room()
        self._getters[key] = getter
        getter.asked.append(Asking(peer, question))
        if len(getter.asked) == 1:
            self._go_through(getter)
        self._count(getter)
        return effects

    def handle(self, event: Answer, now: Now) -> Sequence[Effect]:
        """The streams floor says something to one of the sessions."""
        effects: list[Effect] = []
        self._effects, self._now = effects, now
        getter = self.by_session.get(event.session)
        if getter is not None:
            match event:
                case x.AnswerAdmin():
                    self._administered(getter, event)
                case x.GrantSubscription():
                    self._granted(getter, event)
                case x.Push():
                    self._pushed(getter, event)
                case x.PushProgress(_, position):
                    getter.position = max(getter.position, position)
                    self._go_on(getter)
                case x.PushGap(_, first, following, code):
                    # Its flow may not have passed yet what was settled to a session before.
                    gone = without(((first, following - 1),), getter.done)
                    getter.messages.extend(Gap(*bounds, code) for bounds in gone)
                    getter.position = max(getter.position, following)
                    self._go_on(getter)
                case x.ConfirmSettled():
                    self._settled(getter, event)
                case x.Refuse():
                    self._refused(getter, event)
                case x.Fence(_, _, message):
                    self._end(getter, StatusWord.SERVER_UNAVAILABLE, f"{message}: retry")
            self._count(getter)
        return effects

    def forget(self, topic: str) -> list[int]:
        """Let go whoever got from a topic, of which nothing is asked; the sessions that are to be closed."""
        gone = [getter for getter in self._getters.values() if getter.topic == topic]
        for getter in gone:
            assert not getter.asked
            self._forget(getter)
        return [getter.session for getter in gone]

    def check(self) -> None:
        """The invariants of the module hold."""
        for getter in self._getters.values():
            sequences = [message.sequence for message in getter.messages]
            assert all(sequence < getter.position for sequence in sequences), "(2)"
            assert len(dict.fromkeys(sequences)) == len(sequences), "(2)"
        assert self._held.size == sum(getter.held_size for getter in self._getters.values()), "(4)"

    # ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _go_through(self, getter: Getter) -> None:
        """Work on the first question; where it is answered at once, on the next one too, however many they are."""
        if getter.is_beginning:
            return
        getter.is_beginning, begun = True, None
        while getter.asked and getter.asked[0] is not begun:
            begun = getter.asked[0]
            self._begin(getter, begun.question)
        getter.is_beginning = False

    def _begin(self, getter: Getter, question: Question) -> None:
        # What was so when the last one was answered says nothing of what was put since, and waits to be pushed.
        getter.has_caught_up = False
        if isinstance(question, Unsubscribe):
            getter.is_removing = True
            self._administer(getter, "subscription.remove", wish=question.wish)
        elif isinstance(question, Subscribe):
            # One that is there is asked for anew: a merge compares when that was with when it was left elsewhere.
            getter.is_removing = question.left > 0
            getter.names_gaps |= question.wish > 0
            self._administer(getter, "subscription.renew", wish=question.wish, left=question.left)
        elif getter.grant is None:
            self._administer(getter, "subscription.show")
        else:
            self._get(getter, question)

    def _administer(self, getter: Getter, verb: str, request: int = _ADMIN, **more: object) -> None:
        arguments = {"stream": getter.topic, "subscriber": getter.client, "name": SUBSCRIPTION, **more}
        self._effects.append(x.AdminRequested(getter.session, request, getter.principal, verb, arguments))

    def _administered(self, getter: Getter, said: x.AnswerAdmin) -> None:
        result = said.result
        assert isinstance(result, dict)
        if said.request == _LOOK:
            self._looked(getter, result["floor"], result["lag"], result["settled"])
            return
        if said.request == _TELL:
            getter.is_telling = False
            self._go_on(getter)
            return
        question, getter.is_removing = getter.asked[0].question, False
        if isinstance(question, Subscribe) and result["renewed"]:
            self._answer(getter, StatusWord.ALREADY_SUBSCRIBED)
        elif isinstance(question, Subscribe):
            self._close(getter)
            self._attach(getter, question.wish)
        elif isinstance(question, Unsubscribe):
            self._close(getter)
            self._answer(getter, StatusWord.OK)
        else:
            getter.origins = {}
            for origin in result["origins"]:
                getter.origins.setdefault(shown_of(origin.incarnation), []).append(origin)
            getter.done, getter.lost = ((0, result["floor"]), *result["settled"]), list(result["lost"])
            getter.names_gaps = result["wish"] > 0
            self._attach(getter)

    def _refused(self, getter: Getter, said: x.Refuse) -> None:
        is_answer = said.request == _ADMIN
        getter.is_removing &= not is_answer
        is_unknown = is_answer and said.code in ("unknown-subscription", "unknown-stream")
        if is_unknown and isinstance(getter.asked[0].question, Subscribe):
            self._attach(getter, getter.asked[0].question.wish)
        elif is_answer and said.code == "outdated-wish":
            self._answer(getter, StatusWord.REFUSED, said.message, str(said.details["last"]))
        elif is_unknown:
            advice = "" if isinstance(getter.asked[0].question, Unsubscribe) else ": subscribe first"
            text = f"{getter.client} is not subscribed to {getter.topic}{advice}"
            self._answer(getter, StatusWord.NOT_SUBSCRIBED, text)
        elif not getter.is_removing:
            # While the subscription is being removed its owner, too, is told that it is gone.
            if not said.is_final:
                self._effects.append(x.SessionClosed(getter.session))
            advice = "; if the answer is NOT_SUBSCRIBED then, subscribe first"
            self._end(getter, *answer_for(said.code, said.message, advice))

    def _answer(
        self, getter: Getter, status: StatusWord, text: str = "", message_id: str = "", body: bytes | Many = b""
    ) -> None:
        """Answer the first question, and work on the next one."""
        self._effects.append(GetEnded(getter.asked.popleft().peer, status, text, message_id, body))
        self._go_through(getter)

    # ── the subscription ─────────────────────────────────────────────────────────────────────────────────────────────

    def _attach(self, getter: Getter, wish: int = 0) -> None:
        """Be the subscription's owner, whoever was it before; without one it begins behind what is there."""
        self._effects.append(
            x.SubscribeRequested(
                getter.session, getter.principal, getter.topic, getter.client, SUBSCRIPTION,
                start=x.Start(x.StartKind.HEAD), mode=x.SettleMode.INDIVIDUAL, incarnation=self._new_incarnation(),
                credit=getter.credit_size, wish=wish, is_woven=True,
            )
        )  # fmt: skip

    def _granted(self, getter: Getter, grant: x.GrantSubscription) -> None:
        getter.grant, getter.position, getter.credit = grant, grant.position, getter.credit_size
        getter.lives = Lives.of(grant.stream_incarnation, grant.terms)
        getter.has_caught_up, getter.freed_size = grant.position > grant.head, 0
        getter.messages.clear()
        if not getter.asked:
            return
        question = getter.asked[0].question
        if isinstance(question, Subscribe):
            self._answer(getter, StatusWord.OK)
        elif isinstance(question, Get | GetMany):
            self._get(getter, question)

    def _close(self, getter: Getter) -> None:
        """Leave the session, and begin another one with the next question."""
        self._effects.append(x.SessionClosed(getter.session))
        del self.by_session[getter.session]
        getter.session, getter.grant, getter.settling = self._open_session(), None, ()
        getter.lost, getter.is_telling = [], False
        getter.messages.clear()
        self.by_session[getter.session] = getter

    def _end(self, getter: Getter, status: StatusWord, text: str) -> None:
        """Whoever waits is told; whoever asks next begins anew."""
        self._forget(getter)
        self._effects.extend(GetEnded(asked.peer, status, text) for asked in getter.asked)
        getter.asked.clear()

    def _forget(self, getter: Getter) -> None:
        self.by_session.pop(getter.session, None)
        if self._getters.pop(getter.key, None) is not None and getter.credit_size > CREDIT_SIZE:
            self._wide_count -= 1
        getter.grant = None
        self._count(getter)

    def _count(self, getter: Getter) -> None:
        self._held.count(getter)
        while self._held.is_too_much and self._let_go_idle(self._held.getters):
            pass

    def _make_room(self) -> None:
        """Let go whoever asked the longest ago and waits for nothing."""
        if len(self._getters) >= self._getters_max:
            self._let_go_idle(self._getters.values())

    def _let_go_idle(self, getters: Iterable[Getter]) -> bool:
        """Let go the first that waits for nothing; whether there was one."""
        idle = next((getter for getter in getters if not getter.asked), None)
        if idle is not None:
            self._forget(idle)
            self._effects.append(x.SessionClosed(idle.session))
        return idle is not None

    # ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _pushed(self, getter: Getter, push: x.Push) -> None:
        for sequence, body, number in messages_in(push.buffers):
            freed_size = push.size + x.PUSH_OVERHEAD if sequence == push.last_sequence else 0
            getter.messages.append(Message(sequence, body, freed_size, number))
        getter.position = max(getter.position, push.last_sequence + 1)
        getter.credit -= push.size + x.PUSH_OVERHEAD
        if getter.credit <= 0:
            getter.has_caught_up = False
        self._go_on(getter)

    def _get(self, getter: Getter, question: Get | GetMany) -> None:
        """Settle what the question names, if it is the next one, and answer with what is behind it."""
        if isinstance(question, GetMany) and getter.credit_size == CREDIT_SIZE and self._wide_count < WIDE_MAX:
            self._wide_count += 1
            getter.credit_size = MANY_CREDIT_SIZE
            self._free(getter, MANY_CREDIT_SIZE - CREDIT_SIZE)
        named_id = read_id(question.last_id)
        told = named_in(getter.lost, named_id, getter.origins.get(named_id.incarnation, ())) if named_id else None
        if told is not None:
            getter.is_telling = True
            self._tell(getter, told)
            return
        if not getter.messages and not getter.has_caught_up:
            self._administer(getter, "subscription.show", _LOOK)
            return
        named = self._named(getter, question.last_id)
        if named is None:
            word, said = unknown_id(question.last_id, getter.topic, getter.client, getter.lives)
            # Under the id a proxy sees that it is not known here.
            self._answer(getter, word, said, question.last_id if word == StatusWord.SERVER_UNAVAILABLE else "")
        elif named:
            getter.settling = named
            self._effects.append(x.SettleRequested(getter.session, named))
        else:
            self._hand_out(getter)

    def _tell(self, getter: Getter, told: Lost) -> None:
        """It knows what was gone before a merge."""
        getter.lost = list(but_for(getter.lost, (told,)))
        more = {"incarnation": told.incarnation, "first": told.first, "last": told.last}
        self._administer(getter, "subscription.advance", _TELL, **more)

    def _looked(self, getter: Getter, floor: int, lag: int, settled: Sequence[Range]) -> None:
        """Where nothing is left to be pushed nobody waits; else it comes, or what became of it.

        What is settled before it is examined is passed over without a word.
        """
        if not without(((floor + 1, floor + lag),) if lag else (), settled):
            getter.position = max(getter.position, floor + lag + 1)
            getter.has_caught_up = True
            self._go_on(getter)

    def _named(self, getter: Getter, message_id: str) -> tuple[Range, ...] | None:
        """What naming an id settles, None for one that was never given."""
        if message_id == NO_MESSAGE_ID:
            return ()
        named = read_id(message_id)
        if named is None:
            return self._named_of_page(getter, message_id, is_its_form=True)
        shown, first, last = named
        assert getter.grant is not None
        is_own = shown == shown_of(getter.lives.at(first))
        if is_own:
            # What came behind it at the end of an earlier life is lost, and was not this.
            last = min(last, getter.lives.last_with(first))
        if is_own and getter.messages and first == getter.next_sequence:
            if not first <= last <= max(getter.position - 1, getter.grant.head):
                return None
            return ((first, last),)
        origins = getter.origins.get(shown, ())
        places = joined(place for one in origins if one.next_sequence == first for place in one.places_to(last))
        if places:
            return without(places, getter.done)
        if is_own and (first < getter.next_sequence or is_in(first, getter.done)):
            return ()
        if not origins and shown in getter.former:
            # It was given to an earlier subscription, of which the client was not told that it has left, or of a
            # stream of this name that was removed: nothing of that is owed.
            return ()
        if any(origin.is_done(first) for origin in origins):
            return ()
        # A server of ours that is not merged may have given it, if no message from the page has it.
        return None if is_own or origins else self._named_of_page(getter, message_id, is_its_form=False)

    def _named_of_page(self, getter: Getter, message_id: str, *, is_its_form: bool) -> tuple[Range, ...] | None:
        """As `_named`, of what a server from the page gave, wherever it waits. `is_its_form`: nobody else can have."""
        held = [one for shown, known in getter.origins.items() if is_of_page(shown) for one in known]
        for number in page_numbers(message_id):
            for one in held:
                if one.next_sequence == number:
                    return without(one.places_to(number), getter.done)
            for message in getter.messages:
                if isinstance(message, Message) and message.page_number == number:
                    return ((message.sequence, message.sequence),)
        return () if is_its_form and (held or any(map(is_of_page, getter.former))) else None

    def _hand_out(self, getter: Getter) -> None:
        message = getter.messages[0] if getter.messages else None
        if getter.lost:
            lost = getter.lost[0]
            named = gap_id(lost.incarnation, lost.first, lost.last)
            if getter.tell_gap(named, self._now.monotonic_ns):
                self._tell(getter, lost)
            self._answer_gap(getter, lost.first, lost.last, "gone before servers merged", named)
        elif message is None and not getter.has_caught_up:
            self._administer(getter, "subscription.show", _LOOK)
        elif message is None:
            self._answer(getter, StatusWord.NO_MESSAGES)
        elif isinstance(message, Gap):
            named = gap_id(getter.lives.at(message.sequence), message.sequence, message.last)
            if getter.tell_gap(named, self._now.monotonic_ns):
                getter.messages.popleft()
                self._effects.append(x.SettleRequested(getter.session, ((message.sequence, message.last),)))
            self._answer_gap(getter, message.sequence, message.last, message.code, named)
        else:
            question = getter.asked[0].question
            shown = shown_of(getter.lives.at(message.sequence))
            if isinstance(question, GetMany):
                given = self._next_of(getter, question.count_max)
                first, last = given[0].sequence, given[-1].sequence
                many = Many([one.body for one in given], [one.sequence for one in given])
                self._answer(getter, StatusWord.OK, message_id=f"{shown}-{first}..{last}", body=many)
            else:
                self._answer(getter, StatusWord.OK, message_id=f"{shown}-{message.sequence}", body=message.body)

    def _answer_gap(self, getter: Getter, first: int, last: int, code: str, named: str) -> None:
        lost = f"messages {first} to {last} of {getter.topic} are no longer available ({code})"
        self._answer(getter, StatusWord.INTERNAL_ERROR, f"{lost}: retry the GET for the next message", named)

    def _next_of(self, getter: Getter, count: int) -> list[Message]:
        """Up to so many messages that come next, as many as one answer takes, and at least one.

        Their sequences have no hole, and one life: an id names all from the first to the last, and what lies in a hole
        may come later.
        """
        given: list[Message] = []
        left, last = self._answer_size_max, getter.lives.last_with(getter.messages[0].sequence)
        for message in islice(getter.messages, min(count, COUNT_MAX)):
            if isinstance(message, Gap) or (given and message.sequence != given[-1].sequence + 1):
                break
            if message.sequence > last:
                break
            left -= len(message.body) + LENGTH_SIZE + SEQUENCE_SIZE
            if left < 0 and given:
                break
            given.append(message)
        return given

    def _settled(self, getter: Getter, said: x.ConfirmSettled) -> None:
        settling = getter.settling
        if not settling or without(settling, ((0, said.floor), *said.ranges)):
            return
        getter.settling, getter.done = (), joined((*getter.done, (0, said.floor), *said.ranges))
        # By an id of another stream what comes later may be named, or what was not pushed yet: it will not be.
        is_one = settling[0][0] == settling[-1][1]
        kept: list[Message | Gap] = []
        while getter.messages:
            message = getter.messages.popleft()
            if isinstance(message, Gap):
                kept += [Gap(first, last, message.code) for first, last in without((message[:2],), settling)]
            elif not is_in(message.sequence, settling):
                kept.append(message)
            else:
                getter.freed_size += message.freed_size
                if is_one:
                    break
        getter.messages.extendleft(reversed(kept))
        if getter.freed_size and (getter.freed_size >= getter.credit_size // 2 or not getter.messages):
            size, getter.freed_size = getter.freed_size, 0
            self._free(getter, size)
        self._hand_out(getter)

    def _free(self, getter: Getter, size: int) -> None:
        """Let so much more be pushed."""
        getter.credit += size
        self._effects.append(x.CreditGranted(getter.session, size))

    def _go_on(self, getter: Getter) -> None:
        """Something came for which the first question may have waited."""
        question = getter.asked[0].question if getter.asked else None
        if (
            getter.grant is not None
            and isinstance(question, Get | GetMany)
            and not (getter.settling or getter.is_telling)
        ):
            self._get(getter, question)
