"""Many messages put and got at once: as one put, and under one id, beside those that come one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.topics import test_getting as getting
from tests.protocols.topics import test_putting as putting
from tests.protocols.topics.floor import ServerScene
from tests.protocols.topics.test_getting import SUBSCRIBE, sequence_of
from tests.protocols.topics.test_putting import BODY_SIZE_MAX
from veredus.protocols.topics.getting import CREDIT_SIZE, MANY_CREDIT_SIZE, WIDE_MAX
from veredus.protocols.topics.many import Many, pack, sequences_in, unpack
from veredus.protocols.topics.messages import GetMany, Put, PutMany, Subscribe
from veredus.streams import exchange as x


class Puts(putting.Scene):
    def put_many(self, peer: int, counter: int, *bodies: bytes) -> None:
        self.follow(self.puts.ask(peer, PutMany("bob", "s", counter, pack(bodies)), "local", self.rig.now))


class Gets(getting.Scene):
    def get_many(self, last_id: str = "-1", count_max: int = 100, client: str = "alice") -> tuple[str, list[int]]:
        """The id and the sequences of what came; or the status."""
        end = self.ask(GetMany(client, "s", last_id, count_max))
        assert end is not None
        if end.status != "OK":
            return end.status.value, []
        assert isinstance(end.body, Many)
        packed = end.body.packed()
        assert len(packed) == end.body.size
        sequences = list(sequences_in(packed))
        assert len(unpack(packed)) == len(sequences)
        return end.message_id, sequences


# ── puts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 3, 128, 129, 199])
def test_many_are_put_at_once_in_order_and_once_also_after_a_kill(count: int) -> None:
    scene = Puts()
    bodies = [b"%c" % (number % 100) for number in range(count)]
    scene.put_many(1, 1, *bodies)
    assert scene.done() == []
    scene.put_many(2, 1, *bodies)
    scene.sync()
    assert scene.done() == [(1, "OK"), (2, "OK")]
    scene.restart()
    scene.put_many(3, 1, *bodies)
    scene.put_many(4, count + 1, b"more")
    scene.sync()
    assert scene.done() == [(3, "OK"), (4, "OK")]
    assert scene.bodies() == [*bodies, b"more"]


def test_many_have_as_many_counters_and_no_other_put_has_one_of_them() -> None:
    scene = Puts()
    scene.put_many(1, 5, b"five", b"six", b"seven")
    scene.sync()
    for peer, counter in enumerate([5, 6, 7], 2):
        scene.put(peer, counter, b"five")
    scene.put_many(5, 5, b"five", b"six", b"other")
    scene.put_many(6, 5, b"five", b"six")
    scene.put_many(7, 7, b"seven", b"eight")
    texts = {end.peer: (end.text, end.last) for end in scene.ended}
    assert [status for _, status in scene.done()] == ["OK"] + ["REFUSED"] * 6
    assert texts[3] == (
        "counter 6 of bob on s is below its last one, 7: it may be done; put another body under a counter above 7",
        7,
    )
    assert texts[5] == ("counter 7 of bob on s was used for another body: put this body under a counter above 7", 7)
    said = "counters 7 to 8 of bob on s begin at or below its last one, 7: put under a counter above 7"
    assert texts[7] == (said, 7)
    scene.put(8, 8, b"eight")
    scene.sync()
    assert scene.done() == [(8, "OK")]
    assert scene.bodies() == [b"five", b"six", b"seven", b"eight"]


def test_one_that_is_put_as_many_is_not_the_put_of_that_one() -> None:
    scene = Puts()
    scene.put_many(1, 1, b"x")
    scene.put(2, 1, b"x")
    scene.sync()
    assert sorted(scene.done()) == [(1, "OK"), (2, "REFUSED")]


def test_many_that_the_journal_refuses_are_taken_when_they_are_put_again() -> None:
    scene = Puts()
    scene.put(1, 1)
    scene.sync()
    scene.rig.is_full = True
    scene.put_many(2, 2, b"two", b"three")
    scene.sync()
    assert scene.done() == [(1, "OK"), (2, "INTERNAL_ERROR")]
    scene.rig.is_full = False
    scene.put_many(3, 2, b"two", b"three")
    scene.sync()
    assert scene.done() == [(3, "OK")]
    assert scene.bodies() == [b"x", b"two", b"three"]


def test_many_over_the_limit_together_are_refused_before_anything_is_asked() -> None:
    scene = Puts()
    scene.put_many(1, 1, *[bytes(100)] * 10)
    (end,) = scene.ended
    said = f"the body has 1044 bytes, and the limit is {BODY_SIZE_MAX}: put it in parts"
    assert (end.status, end.text) == ("REFUSED", said)
    assert scene.rig.floor.tables.streams == {}


# ── gets ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_many_are_got_at_once_and_named_by_one_id_as_received() -> None:
    scene = Gets()
    scene.status(SUBSCRIBE)
    assert scene.get_many() == ("NO_MESSAGES", [])
    scene.publish(5)
    first, sequences = scene.get_many(count_max=3)
    assert sequences == [1, 2, 3]
    assert first.endswith("-1..3")
    assert scene.get_many(count_max=3) == (first, [1, 2, 3]), "the answer was lost"
    second, sequences = scene.get_many(first)
    assert sequences == [4, 5]
    assert scene.get_many(first) == (second, [4, 5])
    assert scene.get_many(second) == ("NO_MESSAGES", [])
    assert scene.get_many(first) == ("NO_MESSAGES", []), "it was received before"


def test_ids_of_one_and_of_many_go_together_and_survive_a_kill() -> None:
    scene = Gets()
    scene.status(SUBSCRIBE)
    scene.publish(6)
    one, _ = scene.get()
    many, sequences = scene.get_many(one, 2)
    assert sequences == [2, 3]
    scene.restart()
    again, _ = scene.get(many)
    assert sequence_of(again) == 4
    scene.restart()
    last, sequences = scene.get_many(again)
    assert sequences == [5, 6]
    scene.restart()
    assert scene.get(last)[0] == "NO_MESSAGES"


def test_an_id_of_many_that_was_never_given_is_refused() -> None:
    scene = Gets()
    scene.status(SUBSCRIBE)
    scene.publish(5)
    first, _ = scene.get_many(count_max=2)
    shown = first.partition("-")[0]
    for wrong in (
        f"{shown}-1..6",
        f"{shown}-1..0",
        f"{shown}-2..3",
    ):
        assert scene.get_many(wrong)[0] == "REFUSED", wrong
    for other in (f"{shown}-1..", f"{shown}-..2", f"{shown}-1..2..3"):
        assert scene.get_many(other)[0] == "SERVER_UNAVAILABLE", "it may be an id of a server of another make"
    assert scene.get_many(first)[1] == [3, 4, 5]


def test_an_answer_holds_as_many_as_fit_and_one_at_least() -> None:
    scene = ServerScene()
    scene.say(Subscribe("alice", "t"))
    size_max = scene.settings.body_size_max
    for counter, size in enumerate([size_max, size_max // 2, size_max // 2 - 100, 50], 1):
        scene.say(Put("bob", "t", counter, bytes(size)))
    last, counts = "-1", []
    for _ in range(3):
        status = scene.say(GetMany("alice", "t", last, 100))
        last = status.message_id
        counts.append(len(unpack(status.body)))
    assert counts == [1, 2, 1]
    assert scene.say(GetMany("alice", "t", last, 100)).status == "NO_MESSAGES"


def test_whoever_gets_many_is_pushed_more_and_only_so_many_clients_are() -> None:
    scene = Gets(getters_max=WIDE_MAX + 2)
    for number in range(WIDE_MAX + 1):
        scene.status(Subscribe(f"c{number}", "s"))
        scene.get_many(client=f"c{number}")
    credit = [flow.credit for flow in scene.rig.floor.flows.values()]
    assert sorted(credit) == [CREDIT_SIZE] + [MANY_CREDIT_SIZE] * WIDE_MAX
    scene.publish(3)
    assert all(scene.get_many(client=f"c{number}")[1] == [1, 2, 3] for number in (0, WIDE_MAX))
    for number in range(2):
        scene.status(Subscribe(f"d{number}", "s"))
    scene.get_many(client="d0")
    credit = [flow.credit for flow in scene.rig.floor.flows.values()]
    assert sum(size <= CREDIT_SIZE for size in credit) == 2, "who was let go has made room"


def test_what_cannot_be_had_is_told_and_the_many_behind_it_can_be_had() -> None:
    scene = Gets()
    scene.status(SUBSCRIBE)
    scene.publish(6)
    first, _ = scene.get_many(count_max=2)
    scene.restart()
    scene.rig.do(x.AdminRequested(800, 1, "local", "stream.trim", {"name": "s", "floor": 5}))
    told = scene.ask(GetMany("alice", "s", first, 9))
    assert told is not None
    assert (told.status, told.message_id.partition("-")[2]) == ("INTERNAL_ERROR", "3..4")
    assert scene.get_many(told.message_id)[1] == [5, 6]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["publish", "restart", "get", "many", "many"]), st.integers(1, 4), st.booleans()),
        max_size=30,
    )
)
def test_whatever_is_lost_each_message_is_had_once_and_in_order_by_one_or_many(
    steps: list[tuple[str, int, bool]],
) -> None:
    scene = Gets()
    scene.status(SUBSCRIBE)
    last, got = "-1", 0
    for what, count, is_lost in steps:
        if what == "publish":
            scene.publish(count)
        elif what == "restart":
            scene.restart()
        else:
            if what == "get":
                given, _ = scene.get(last)
                sequences = [sequence_of(given)] if "-" in given else []
            else:
                given, sequences = scene.get_many(last, count)
            if not sequences:
                assert (given, scene.number) == ("NO_MESSAGES", got)
            elif not is_lost:
                assert sequences == list(range(got + 1, got + 1 + len(sequences)))
                assert len(sequences) == (1 if what == "get" else min(count, scene.number - got))
                last, got = given, sequences[-1]


# ── what was merged ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_many_that_another_server_gave_are_named_where_they_lie_now() -> None:
    scene = Gets()
    scene.publish(2)
    runs = ((7, x.Place(row=0), 2), (9, x.Place(1), 1), (10, x.Place(row=2), 1))
    getting.merge(scene, 4, floor=2, origins=((getting.GIVER, 7, runs),))
    given = getting.GIVEN
    assert scene.get_many(f"{given}3..6") == scene.get_many("-1")
    assert scene.get_many(f"{given}8..9")[0] == "SERVER_UNAVAILABLE", "it begins with what may have been given next"
    last, sequences = scene.get_many(f"{given}7..9")
    assert sequences == [5, 6], "those in the first two rows are settled, and the one that was here is done with"
    assert scene.get_many(f"{given}7..9") == (last, [5, 6])
    scene.restart()
    assert scene.get_many(f"{given}7..10")[1] == [6]
    assert scene.get_many(f"{given}7..100")[1] == [6], "nobody has the others"


def test_an_id_of_a_stream_that_was_merged_before_the_subscription_came_to_be_is_done_with() -> None:
    scene = Gets()
    scene.status(SUBSCRIBE)
    scene.publish(1)
    given = getting.GIVEN
    assert scene.get_many(f"{given}7")[0] == "SERVER_UNAVAILABLE"
    scene.rig.floor.tables.streams["s"].merged = (getting.GIVER,)
    scene.rig.checkpoint()
    scene.restart()
    assert scene.get_many(f"{given}7")[1] == [1]
