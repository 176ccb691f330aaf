"""Subscribers of a topic over a real streams floor and log."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.topics.floor import Floor
from tests.streams.rig import incarnation
from tests.streams.sinking import RUN, open_run, open_stage, write
from veredus.kernel.engine import Now
from veredus.protocols.topics.getter import GAP_TOLD_MAX, GAP_TOLD_NS
from veredus.protocols.topics.getting import CREDIT_SIZE, GetEnded, Gets
from veredus.protocols.topics.messages import Get, Subscribe, Unsubscribe
from veredus.streams import exchange as x

ANSWER_SIZE_MAX = 1000
NOW = Now(0, 0)


class Scene(Floor[GetEnded]):
    """A server's way out, and somebody who publishes to the stream `s`."""

    def __init__(self, getters_max: int = 100) -> None:
        super().__init__(GetEnded)
        self.number = 0
        self._getters_max = getters_max
        self.boot()

    def boot(self) -> None:
        self.gets = Gets(self.next_id, lambda: incarnation(self.next_id()), self._getters_max, ANSWER_SIZE_MAX)
        self.join(lambda event: self.gets.handle(event, self.rig.now), self.gets.check)
        self.grant = self.rig.attach(10_000)

    def restart(self) -> None:
        self.rig.restart()
        self.boot()

    def publish(self, count: int = 1) -> None:
        before = len(self.rig.said)
        self.rig.publish(self.grant, self.number + 1, count)
        self.number += count
        self.follow(self.up(before))
        self.sync()

    def ask(self, question: Subscribe | Unsubscribe | Get, peer: int = 1) -> GetEnded | None:
        """Ask, and carry everything out; the answer to this peer."""
        self.follow(self.gets.ask(peer, question, "local", self.rig.now))
        self.sync()
        mine = [end for end in self.ended if end.peer == peer]
        self.ended = [end for end in self.ended if end.peer != peer]
        assert len(mine) <= 1, "answered once"
        return mine[0] if mine else None

    def get(self, last_id: str = "-1", client: str = "alice", peer: int = 1) -> tuple[str, str]:
        """A message's id and its body; or the status and the text."""
        end = self.ask(Get(client, "s", last_id), peer)
        assert end is not None
        if end.status != "OK":
            return end.status.value, end.text
        return end.message_id, end.body.hex()

    def status(self, question: Subscribe | Unsubscribe | Get) -> str:
        end = self.ask(question)
        return "" if end is None else end.status.value


SUBSCRIBE, UNSUBSCRIBE = Subscribe("alice", "s"), Unsubscribe("alice", "s")


def test_only_what_is_put_after_the_subscription_is_received_in_order_and_once() -> None:
    scene = Scene()
    scene.publish(2)
    assert scene.status(SUBSCRIBE) == "OK"
    assert scene.get()[0] == "NO_MESSAGES"
    scene.publish(3)
    last, got = "-1", []
    for _ in range(3):
        last, body = scene.get(last)
        got.append(int(last.partition("-")[2]))
        assert body
    assert got == [3, 4, 5]
    assert scene.get(last)[0] == "NO_MESSAGES"
    scene.publish()
    assert scene.get(last)[0].endswith("-6")


def test_a_message_is_handed_out_again_until_it_is_named_and_never_after() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish(2)
    first = scene.get()
    assert scene.get() == first, "its answer was lost"
    second = scene.get(first[0])
    assert scene.get(first[0]) == second, "this one's was"
    assert scene.get() == second, "whoever lost its directory is given what it did not name"


def test_a_server_that_is_killed_between_two_gets_hands_out_the_same_again() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish(3)
    first = scene.get()
    second = scene.get(first[0])
    scene.restart()
    assert scene.get(first[0]) == second
    third = scene.get(second[0])
    scene.restart()
    assert scene.get(second[0]) == third
    assert scene.get(third[0])[0] == "NO_MESSAGES"


def test_an_id_that_was_never_given_is_not_known_and_changes_nothing() -> None:
    """Of this stream it cannot be; all else may be a message of a server, also of another make, that is not merged."""
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish(2)
    first = scene.get()
    shown, _, sequence = first[0].partition("-")
    for wrong in (
        f"{shown}-2",
        f"{shown}-99",
        f"{shown}-",
        f"{shown}-x",
        f"{'0' * 15}g-1",
        "bob-1",
        "1",
        f"{shown}-{'9' * 30}",
    ):
        ended = scene.ask(Get("alice", "s", wrong))
        assert ended is not None
        assert f"{wrong} is not a message of s that alice received" in ended.text
        if wrong in (f"{shown}-2", f"{shown}-99"):
            assert (ended.status, ended.message_id) == ("REFUSED", "")
            advice = "name the last one, or -1 for none; if the server was put back to an earlier state, forget it"
        else:
            assert (ended.status, ended.message_id) == ("SERVER_UNAVAILABLE", wrong)
            advice = "maybe from another server that also has the topic: retry until both are merged"
        assert advice in ended.text
    assert scene.get() == first
    assert sequence == "1"


def test_who_is_not_subscribed_is_told_to_subscribe() -> None:
    scene = Scene()
    assert scene.get() == ("NOT_SUBSCRIBED", "alice is not subscribed to s: subscribe first")
    assert scene.status(Get("alice", "nowhere", "-1")) == "NOT_SUBSCRIBED"
    assert scene.status(UNSUBSCRIBE) == "NOT_SUBSCRIBED"
    assert "nowhere" not in scene.rig.floor.tables.streams, "asking makes no topic"


def test_a_subscription_that_is_there_goes_on_also_after_a_kill() -> None:
    scene = Scene()
    assert scene.status(SUBSCRIBE) == "OK"
    scene.publish()
    assert scene.status(SUBSCRIBE) == "ALREADY_SUBSCRIBED"
    scene.restart()
    assert scene.status(SUBSCRIBE) == "ALREADY_SUBSCRIBED"
    assert scene.get()[0].endswith("-1")


def test_whoever_unsubscribes_receives_nothing_any_more_not_even_what_came_before() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish(2)
    scene.get()
    assert scene.status(UNSUBSCRIBE) == "OK"
    assert scene.get()[0] == "NOT_SUBSCRIBED"
    assert scene.status(UNSUBSCRIBE) == "NOT_SUBSCRIBED"
    assert scene.status(SUBSCRIBE) == "OK"
    assert scene.get()[0] == "NO_MESSAGES"
    scene.publish()
    assert scene.get()[0].endswith("-3")


def test_subscribing_makes_the_topic() -> None:
    scene = Scene()
    assert scene.status(Subscribe("alice", "new")) == "OK"
    assert "new" in scene.rig.floor.tables.streams


def test_subscribers_do_not_know_one_another() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish()
    scene.status(Subscribe("carol", "s"))
    scene.publish()
    first = scene.get()
    assert scene.get(client="carol")[0].endswith("-2")
    assert scene.get(first[0])[0].endswith("-2")
    assert scene.get(client="carol")[0].endswith("-2")


def test_questions_of_one_client_are_answered_one_after_the_other() -> None:
    scene = Scene()
    questions: list[Subscribe | Unsubscribe | Get] = [SUBSCRIBE, Get("alice", "s", "-1"), UNSUBSCRIBE, SUBSCRIBE]
    for peer, question in enumerate(questions):
        scene.follow(scene.gets.ask(peer, question, "local", scene.rig.now))
    scene.sync()
    assert [(end.peer, end.status.value) for end in scene.ended] == [
        (0, "OK"),
        (1, "NO_MESSAGES"),
        (2, "OK"),
        (3, "OK"),
    ]


def test_a_thousand_questions_that_waited_for_one_are_answered_as_one_is() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish(2)
    first, _ = scene.get()
    again = [
        effect
        for peer in range(1000)
        for effect in scene.gets.ask(peer, Get("alice", "s", first), "local", scene.rig.now)
    ]
    scene.follow(again)
    scene.sync()
    assert [end.peer for end in scene.ended] == list(range(1000))
    assert {end.message_id.partition("-")[2] for end in scene.ended} == {"2"}


def test_nothing_is_ordered_for_a_question_while_another_one_is_worked_on() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish(2)
    first, _ = scene.get()
    scene.follow(scene.gets.ask(1, Get("alice", "s", first), "local", scene.rig.now))
    assert scene.gets.ask(2, Get("alice", "s", first), "local", scene.rig.now) == []
    scene.sync()
    assert [(end.peer, end.message_id.partition("-")[2]) for end in scene.ended] == [(1, "2"), (2, "2")]


def test_credit_for_a_frame_comes_back_when_all_of_it_is_done_with() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish(2)
    (flow,) = scene.rig.floor.flows.values()
    taken = flow.credit
    assert taken < CREDIT_SIZE
    first, _ = scene.get()
    second, _ = scene.get(first)
    assert flow.credit == taken
    scene.get(second)
    assert flow.credit == CREDIT_SIZE


def test_more_than_waits_here_at_once_is_had_as_it_is_named() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    for _ in range(40):
        scene.publish(64)
    last = "-1"
    for sequence in range(1, 40 * 64 + 1):
        last, _ = scene.get(last)
        assert last.endswith(f"-{sequence}")
    assert scene.get(last)[0] == "NO_MESSAGES"


def trim(scene: Scene, floor: int) -> None:
    """What lies below is gone, and a server that is started anew has none of it in hand."""
    scene.rig.do(x.AdminRequested(800, 1, "local", "stream.trim", {"name": "s", "floor": floor}))
    scene.restart()


def missed(scene: Scene, last_id: str = "-1") -> str:
    """The id under which the client is told that something is no longer available."""
    end = scene.ask(Get("alice", "s", last_id))
    assert end is not None
    assert (end.status, "are no longer available (trimmed)" in end.text) == ("INTERNAL_ERROR", True), end
    return end.message_id


def test_what_is_trimmed_is_told_until_it_is_named_and_what_lies_behind_it_can_be_had() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish(4)
    trim(scene, 3)
    assert scene.get() == (
        "INTERNAL_ERROR",
        "messages 1 to 2 of s are no longer available (trimmed): retry the GET for the next message",
    )
    gap = missed(scene)
    assert gap.endswith("-1..2")
    scene.restart()
    assert missed(scene) == gap, "the answers may have been lost"
    third = scene.get(gap)
    assert third[0].endswith("-3")
    assert scene.get(gap) == third
    scene.restart()
    assert scene.get(gap) == third
    assert scene.get(third[0])[0].endswith("-4")


def test_whoever_names_nothing_that_it_missed_is_told_often_and_goes_on() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish(4)
    first = scene.get()
    trim(scene, 4)
    for _ in range(GAP_TOLD_MAX - 1):
        assert [missed(scene, first[0]).partition("-")[2] for _ in range(20)] == ["2..3"] * 20, "copies of one question"
        scene.rig.time_ns += GAP_TOLD_NS
    assert missed(scene, first[0]).partition("-")[2] == "2..3"
    assert scene.get(first[0])[0].endswith("-4")


def test_what_else_is_trimmed_since_something_was_told_is_told_too() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish(6)
    trim(scene, 3)
    gap = missed(scene)
    trim(scene, 5)
    rest = missed(scene, gap)
    assert (gap.partition("-")[2], rest.partition("-")[2]) == ("1..2", "3..4")
    assert scene.get(rest)[0].endswith("-5")


def test_who_got_a_message_that_is_trimmed_since_goes_on_behind_it() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish(4)
    first = scene.get()
    trim(scene, 3)
    gap = missed(scene, first[0])
    assert gap.endswith("-2..2"), "the second one is gone, and that is said"
    third = scene.get(gap)
    assert third[0].endswith("-3")
    assert scene.get(third[0])[0].endswith("-4")


def test_a_subscription_that_somebody_else_took_over_is_taken_back_by_the_next_question() -> None:
    scene = Scene()
    scene.status(SUBSCRIBE)
    scene.publish(2)
    first = scene.get()
    scene.follow([x.SubscribeRequested(900, "local", "s", "alice", "topics", incarnation=incarnation(900), credit=99)])
    scene.sync()
    assert scene.get(first[0])[0].endswith("-2")


def test_a_client_that_was_quiet_the_longest_makes_room_and_loses_nothing() -> None:
    scene = Scene(getters_max=2)
    for client in "abc":
        scene.status(Subscribe(client, "s"))
    scene.publish(2)
    assert len(scene.rig.floor.flows) == 2
    for client in "abcabc":
        assert scene.get(client=client)[0].endswith("-1")


# ── what came with a merge ───────────────────────────────────────────────────────────────────────────────────────────

GIVER = b"giver of" + bytes(8)
GIVEN = f"{GIVER[:8].hex()}-"


def merge(scene: Scene, *counts: int, **move: Any) -> None:
    """Commit batches of so many rows with where alice's subscription stands then, and tell the server."""
    before = len(scene.rig.said)
    run = open_run(scene.rig, who=scene.next_id())
    assert isinstance(run, x.GrantRun)
    stage, first = open_stage(scene.rig, 9000 + scene.next_id(), run.epoch), 1
    for count in counts:
        write(scene.rig, stage, first, count)
        first += count
    move["origins"] = tuple(x.MovedOrigin(*origin) for origin in move.get("origins", ()))
    wanted = {"opened_us": 5, "start": 1, "floor": 0, "kept_from": 1, **move}
    moved = x.CursorMove(stage.stage, "alice", "topics", **wanted)
    commit_id = run.commit_id + 1
    lives = tuple(origin.incarnation for origin in moved.origins)
    known = ((stage.stage, (), lives),)
    stages = (stage.stage,)
    scene.rig.do(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, commit_id, stages, (moved,), merged=known))
    assert any(isinstance(said, x.ConfirmCommitted) for said in scene.rig.said[before:])
    scene.follow(scene.up(before))
    scene.sync()


def sequence_of(message_id: str) -> int:
    return int(message_id.partition("-")[2])


@pytest.mark.parametrize("is_killed", [False, True])
def test_ids_of_another_stream_are_known_by_where_the_subscription_stood_there(is_killed: bool) -> None:
    scene = Scene()
    scene.publish(2)
    merge(scene, 3, floor=2, origins=((GIVER, 7, ((7, x.Place(row=0), 1),)),))
    if is_killed:
        scene.restart()
    assert scene.status(SUBSCRIBE) == "ALREADY_SUBSCRIBED"
    third = scene.get()
    assert sequence_of(third[0]) == 3
    assert scene.get(f"{GIVEN}6") == third, "it was done with there, and the answer behind it lost"
    for wrong in (f"{GIVEN}8", f"{'f' * 16}-6", f"{GIVEN}x"):
        assert scene.get(wrong)[0] == "SERVER_UNAVAILABLE", "who gave it is not merged, for all that is known"
    assert scene.get(f"{'0' * 16}-6")[0] == "REFUSED", "of this stream, and it has no such message"
    fourth = scene.get(f"{GIVEN}7")
    assert sequence_of(fourth[0]) == 4
    if is_killed:
        scene.restart()
    assert scene.get(f"{GIVEN}7") == fourth, "this one's answer was lost as well"
    fifth = scene.get(fourth[0])
    assert sequence_of(fifth[0]) == 5
    assert scene.get(f"{GIVEN}7") == fifth
    assert scene.get(fifth[0])[0] == "NO_MESSAGES"
    assert scene.get(f"{GIVEN}7")[0] == "NO_MESSAGES"


def test_an_id_of_another_stream_whose_message_came_nowhere_is_known_only_below_it() -> None:
    scene = Scene()
    scene.publish(1)
    merge(scene, 1, floor=1, origins=((GIVER, 7, ()),))
    assert scene.get(f"{GIVEN}7")[0] == "SERVER_UNAVAILABLE"
    assert sequence_of(scene.get(f"{GIVEN}6")[0]) == 2


def test_what_was_given_elsewhere_and_lies_far_behind_here_is_never_handed_out() -> None:
    scene = Scene()
    place = 20 * 64 + 5
    merge(scene, *[64] * 40, origins=((GIVER, 2, ((2, x.Place(row=place - 1), 1),)),))
    last, _ = scene.get(f"{GIVEN}2")
    assert scene.get(f"{GIVEN}2")[0] == last
    for sequence in [*range(2, place), *range(place + 1, 40 * 64 + 1)]:
        last, _ = scene.get(last)
        assert sequence_of(last) == sequence
    assert scene.get(last)[0] == "NO_MESSAGES"
    (flow,) = scene.rig.floor.flows.values()
    assert flow.credit == CREDIT_SIZE


def test_a_cursor_that_moved_back_knows_what_it_had_given_here() -> None:
    scene = Scene()
    scene.publish(3)
    scene.status(SUBSCRIBE)
    scene.publish(3)
    fourth = scene.get()
    fifth = scene.get(fourth[0])
    own = scene.rig.floor.tables.streams["s"].incarnation
    origins = ((own, 5, ((5, x.Place(5), 1),)), (GIVER, 3, ((3, x.Place(row=0), 1),)))
    merge(scene, 2, floor=1, start=2, kept_from=4, origins=origins)
    assert (sequence_of(fifth[0]), sequence_of(scene.get(fourth[0])[0])) == (5, 2), "its answer was lost"
    second = scene.get(fifth[0])
    assert sequence_of(second[0]) == 2
    scene.restart()
    assert scene.get(fifth[0]) == second
    last, got = second[0], []
    while last != "NO_MESSAGES":
        got.append(sequence_of(last))
        last, _ = scene.get(last)
    assert got == [2, 3, 6, 7, 8]


def test_of_one_stream_two_messages_may_have_been_given_last_where_it_was_merged_twice() -> None:
    scene = Scene()
    scene.publish(6)
    own = scene.rig.floor.tables.streams["s"].incarnation
    origins = ((own, 2, ((2, x.Place(2), 1),)), (own, 5, ((5, x.Place(5), 1),)))
    merge(scene, 1, floor=0, settled=((4, 4),), origins=origins)
    shown = f"{own[:8].hex()}-"
    first = scene.get(f"{shown}2")
    assert sequence_of(first[0]) == 1
    assert scene.get(f"{shown}5") == first
    last, got = first[0], []
    while last != "NO_MESSAGES":
        got.append(sequence_of(last))
        last, _ = scene.get(last)
    assert got == [1, 3, 6, 7]


def test_what_was_settled_before_it_was_pushed_keeps_nobody_waiting() -> None:
    scene = Scene()
    scene.publish(3)
    merge(scene, 1, floor=1, settled=((3, 4),))
    assert sequence_of(scene.get()[0]) == 2
    second, _ = scene.get()
    assert scene.get(second)[0] == "NO_MESSAGES"
    assert scene.get(second)[0] == "NO_MESSAGES"
    scene.restart()
    assert scene.get(second)[0] == "NO_MESSAGES"
    scene.publish()
    assert sequence_of(scene.get(second)[0]) == 5


@pytest.mark.parametrize(("settled", "is_answered"), [(((5, 9),), True), (((5, 8),), False), (((5, 6), (8, 9)), False)])
def test_nobody_waits_for_what_will_be_passed_over(settled: tuple[tuple[int, int], ...], is_answered: bool) -> None:
    gets = Gets(lambda: 7, lambda: incarnation(1), 10, ANSWER_SIZE_MAX)
    gets.ask(1, Get("alice", "s", "-1"), "local", NOW)
    gets.handle(x.AnswerAdmin(7, 1, {"origins": (), "floor": 4, "settled": settled, "lost": (), "wish": 0}), NOW)
    (look,) = gets.handle(x.GrantSubscription(7, 1, incarnation(2), 1, 1, 5, 1, 9, 0), NOW)
    assert isinstance(look, x.AdminRequested)
    said = gets.handle(x.AnswerAdmin(7, look.request, {"floor": 4, "lag": 5, "settled": settled}), NOW)
    assert [end.status for end in said if isinstance(end, GetEnded)] == ["NO_MESSAGES"] * is_answered


def test_a_gap_begins_behind_what_was_settled_before_its_session_looked_there() -> None:
    gets = Gets(lambda: 7, lambda: incarnation(1), 10, ANSWER_SIZE_MAX)
    gets.ask(1, Get("alice", "s", "-1"), "local", NOW)
    shown = {"origins": (), "floor": 13, "settled": ((15, 16),), "lost": (), "wish": 0}
    gets.handle(x.AnswerAdmin(7, 1, shown), NOW)
    gets.handle(x.GrantSubscription(7, 1, incarnation(2), 1, 1, 10, 1, 34, 0), NOW)
    (told,) = gets.handle(x.PushGap(7, 10, 29, "trimmed"), NOW)
    assert isinstance(told, GetEnded)
    assert told.message_id == f"{incarnation(2).hex()[:16]}-14..14"
    (settle,) = gets.ask(2, Get("alice", "s", told.message_id), "local", NOW)
    assert isinstance(settle, x.SettleRequested)
    (following,) = gets.handle(x.ConfirmSettled(7, 16, ()), NOW)
    assert isinstance(following, GetEnded)
    assert following.message_id.endswith("-17..28")


class Step(NamedTuple):
    """What a client does; `is_lost` says that its answer never comes."""

    what: str
    is_lost: bool


STEPS = st.one_of(
    st.builds(Step, st.sampled_from(["subscribe", "unsubscribe", "get", "get", "get"]), st.booleans()),
    st.sampled_from(["publish", "restart"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_whatever_is_lost_each_message_of_a_subscription_is_had_once_and_in_order(steps: list[Step | str]) -> None:
    scene = Scene(getters_max=1)
    last, got, begins = "-1", [0], 0
    for step in steps:
        if step == "publish":
            scene.publish()
        elif step == "restart":
            scene.restart()
        elif isinstance(step, Step) and step.what == "get":
            end = scene.ask(Get("alice", "s", last))
            assert end is not None
            assert (end.status == "NOT_SUBSCRIBED") == (begins == 0)
            if end.status == "OK" and not step.is_lost:
                last = end.message_id
                got.append(int(last.partition("-")[2]))
                assert got[-1] == max(got[-2] + 1, begins), "the next one that came after the subscription"
        elif isinstance(step, Step) and step.what == "subscribe":
            status = scene.status(SUBSCRIBE)
            assert status == ("ALREADY_SUBSCRIBED" if begins else "OK")
            begins = begins or scene.number + 1
        else:
            assert scene.status(UNSUBSCRIBE) == ("OK" if begins else "NOT_SUBSCRIBED")
            begins = 0


def test_whoever_holds_a_message_of_a_lost_server_gets_what_waits_here_by_naming_none() -> None:
    scene = Scene()
    assert scene.status(SUBSCRIBE) == "OK"
    scene.publish(2)
    status, said = scene.get(f"{'0123456789abcdef'}-7")
    assert status == "SERVER_UNAVAILABLE"
    assert said.endswith("if that server is lost for good, name -1 to get the messages of this server")
    first, _ = scene.get("-1")
    second, _ = scene.get(first)
    assert [int(one.partition("-")[2]) for one in (first, second)] == [1, 2]


def test_what_waits_for_all_is_bounded_and_who_asks_nothing_is_let_go_and_gets_it_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("veredus.protocols.topics.getter.HELD_SIZE_MAX", 2_000)
    scene = Scene()
    clients = [f"client-{number}" for number in range(20)]
    for client in clients:
        scene.ask(Subscribe(client, "s"))
    scene.publish(3)
    held = [one.held_size for one in scene.gets.by_session.values()]
    assert 0 < sum(held) <= 2_000
    for client in clients:
        end = scene.ask(Get(client, "s", "-1"))
        assert end is not None
        assert (end.status, sequence_of(end.message_id)) == ("OK", 1), "it is pushed again"
        scene.gets.check()
