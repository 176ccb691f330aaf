"""What was sent over a link that was given up may come behind what goes over the next one; who was taken over from
has nothing of it."""

import pytest

from veredus.sim.late import LATE_MAX_NS, Manner
from veredus.sim.network import End, Network, NetworkTemper
from veredus.sim.takeovers import Takeovers
from veredus.sim.world import MILLISECOND, SECOND, Violation, World
from veredus.streams.exchange import Durability, Fence, GrantSource, Refuse, SessionClosed, SourceAttachRequested
from veredus.streams.source import PAST_MAX

MANNER = Manner(
    passes=0,
    is_greeted=False,
    given_up_ns=10 * MILLISECOND,
    behind=2,
    is_followed=False,
    longest_ns=20 * SECOND,
    lag_ns=0,
)


class Scene:
    """A node, the links that parties have opened to it, and what it heard, in order, over all of them."""

    def __init__(self) -> None:
        self.world = World(1)
        self.network = Network(self.world, NetworkTemper(tear=0.0))
        self.heard: list[object] = []
        self.network.listen("node", self._accept)

    def _accept(self, end: End) -> bool:
        self.far = end
        end.on_received = self.heard.append
        end.on_closed = lambda reason: self.heard.append(f"{end.peer}: {reason}")
        return True

    def opened(self, owner: str) -> End:
        ends: list[End | None] = []
        self.network.connect(owner, "node", ends.append)
        self.run()
        (end,) = ends
        assert end is not None
        return end

    def late(self, owner: str, manner: Manner = MANNER) -> End:
        """A link that is late from now on."""
        end = self.opened(owner)
        self.network.be_late(self.network.links_of(owner)[-1], manner)
        return end

    def run(self, duration_ns: int = SECOND) -> None:
        self.world.run(self.world.now_ns + duration_ns)


def test_what_was_sent_over_a_link_that_was_given_up_comes_behind_what_goes_over_the_next_one() -> None:
    scene = Scene()
    end = scene.late("alice#1")
    given_up: list[str] = []
    end.on_closed = given_up.append
    end.send((b"1", b"2"))
    scene.run()
    assert (scene.heard, given_up) == ([], ["given up"])
    following = scene.opened("alice#1")
    following.send((b"3",))
    scene.run()
    assert scene.heard == [b"3"]
    following.send((b"4",))
    scene.run()
    assert scene.heard == [b"3", b"4", b"1", b"2", "alice#1: given up"]


def test_so_much_as_is_said_passes_before_a_link_is_late_and_the_end_may_be_later_still() -> None:
    scene = Scene()
    end = scene.late("alice#1", MANNER._replace(passes=2, longest_ns=SECOND, lag_ns=2 * SECOND))
    end.send((b"1", b"2", b"3"))
    scene.run()
    assert scene.heard == [b"1", b"2"]
    scene.run()
    assert scene.heard == [b"1", b"2", b"3"]
    scene.run(2 * SECOND)
    assert scene.heard[3:] == ["alice#1: given up"]


def test_what_is_asked_for_first_is_late_where_the_other_end_has_greeted() -> None:
    scene = Scene()
    end = scene.late("alice#1", MANNER._replace(passes=9, is_greeted=True, given_up_ns=SECOND))
    end.on_received = lambda _: end.send((b"request",))
    end.send((b"greeting",))
    scene.far.send((b"welcome",))
    scene.run()
    scene.opened("alice#1").send((b"greeting", b"request, again"))
    scene.run()
    assert scene.heard == [b"greeting", b"greeting", b"request, again", b"request", "alice#1: given up"]


def test_what_a_process_has_sent_comes_late_though_it_was_killed_and_what_is_sent_to_it_reaches_nobody() -> None:
    scene = Scene()
    end = scene.late("alice#1", MANNER._replace(given_up_ns=5 * SECOND))
    received: list[object] = []
    end.on_received = received.append
    far = scene.far
    end.send((b"1",))
    scene.network.drop("alice#1", "reset by peer")
    far.send((b"to nobody",))
    scene.opened("alice#2").send((b"2", b"3"))
    scene.run(5 * SECOND)
    assert (scene.heard, received) == ([b"2", b"3", b"1", "alice#1: given up"], [])


def test_what_is_late_until_somebody_follows_waits_for_another_process_of_the_same_party() -> None:
    scene = Scene()
    scene.late("alice#1", MANNER._replace(is_followed=True)).send((b"1",))
    scene.run()
    for owner in ("alice#1", "bob#1", "alice#2"):
        scene.opened(owner).send((owner, owner))
        scene.run()
    assert scene.heard == ["alice#1"] * 2 + ["bob#1"] * 2 + ["alice#2"] * 2 + [b"1", "alice#1: given up"]


def test_the_next_link_of_a_party_is_late_and_no_other() -> None:
    scene = Scene()
    scene.network.be_late_next("alice", MANNER)
    scene.opened("bob#1").send((b"1",))
    scene.opened("alice#3").send((b"never: it was given up by then",))
    scene.opened("alice#3").send((b"2",))
    scene.run()
    assert scene.heard == [b"1", b"2"]


def test_what_is_late_when_the_node_dies_or_the_link_is_cut_is_lost() -> None:
    scene = Scene()
    scene.late("alice#1").send((b"1",))
    scene.late("bob#1").send((b"2",))
    scene.network.links_of("bob#1")[0].cut("cut")
    scene.run()
    assert scene.heard == ["bob#1: cut"]
    scene.network.drop("node", "reset by peer")
    scene.run(30 * SECOND)
    assert scene.heard == ["bob#1: cut"]


def test_nothing_is_late_for_long_once_faults_are_over() -> None:
    scene = Scene()
    scene.late("alice#1").send((b"1",))
    scene.run()
    scene.network.be_late_next("alice", MANNER)
    scene.network.heal()
    scene.run(LATE_MAX_NS + SECOND)
    assert scene.heard == [b"1", "alice#1: given up"]
    scene.opened("alice#1").send((b"2",))
    scene.run()
    assert scene.heard[2:] == [b"2"]


# ── the oracle ───────────────────────────────────────────────────────────────────────────────────────────────────────


def ask(takeovers: Takeovers, session: int, who: bytes) -> None:
    takeovers.hear(SourceAttachRequested(session, "local", "s", "alpha", who))


def grant(takeovers: Takeovers, session: int, who: bytes) -> None:
    ask(takeovers, session, who)
    takeovers.see(GrantSource(session, 1, b"s", 1, session, 0, b"", 0, Durability.GROUP))


def test_who_was_taken_over_from_may_not_be_granted_the_name_again_by_the_same_process() -> None:
    takeovers = Takeovers()
    grant(takeovers, 1, b"one")
    takeovers.see(Refuse(1, "attached-again", ""))
    grant(takeovers, 2, b"one")
    ask(takeovers, 3, b"two")
    takeovers.see(Fence(2, 2, ""))
    grant(takeovers, 3, b"two")
    takeovers.hear(SessionClosed(3))
    with pytest.raises(Violation, match="source s/alpha is granted again"):
        grant(takeovers, 4, b"one")
    takeovers.clear()
    grant(takeovers, 5, b"one")


def test_who_has_a_name_may_not_be_fenced_for_who_was_taken_over_from() -> None:
    takeovers = Takeovers()
    grant(takeovers, 1, b"one")
    takeovers.hear(SessionClosed(1))
    grant(takeovers, 2, b"two")
    ask(takeovers, 3, b"one")
    with pytest.raises(Violation, match="is fenced for who was taken over from"):
        takeovers.see(Fence(2, 3, ""))


def test_who_was_never_granted_a_name_may_take_it_over_however_late() -> None:
    takeovers = Takeovers()
    grant(takeovers, 1, b"one")
    ask(takeovers, 2, b"two")
    takeovers.hear(SessionClosed(2))
    takeovers.see(Fence(1, 3, ""))


def test_who_signs_with_another_epoch_than_its_own_is_fenced_for_nobody() -> None:
    takeovers = Takeovers()
    grant(takeovers, 1, b"one")
    takeovers.see(Fence(1, 1, ""))


@pytest.mark.parametrize("who", [b"one", b"two"])
def test_who_has_a_name_may_not_lose_it_in_silence(who: bytes) -> None:
    takeovers = Takeovers()
    grant(takeovers, 1, b"one")
    with pytest.raises(Violation, match="session 1 not told"):
        grant(takeovers, 2, who)


def test_who_was_followed_by_more_than_a_node_remembers_is_not_judged() -> None:
    takeovers = Takeovers()
    for session in range(PAST_MAX + 2):
        grant(takeovers, session, b"%d" % session)
        takeovers.hear(SessionClosed(session))
    grant(takeovers, 10, b"0")
