"""The outbox against a model of the node: nothing lost, doubled or out of order, whatever happens in between."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.delivery.model_node import GROUP, SOURCE_ID, STREAM_ID, ModelNode
from veredus.delivery.batch import BatchLimits
from veredus.delivery.cutting import Listed
from veredus.delivery.outbox import (
    BatchRejected,
    Delay,
    Demand,
    Detached,
    GiveUp,
    Granted,
    Offer,
    Outbox,
    OutboxSettings,
    Phase,
    Published,
    Settle,
    Spoil,
    Stopped,
    Taken,
)
from veredus.kernel.engine import Now
from veredus.kernel.errors import UNSTORED, Misuse
from veredus.kernel.events import DeadlineReached

MS = 1_000_000


def listed(bodies: list[bytes]) -> Listed:
    return Listed([b"k"] * len(bodies), list(bodies))


class Pair:
    """An outbox and a model of its node, and what the outbox's owner was told."""

    def __init__(self, node: ModelNode | None = None, outbox: OutboxSettings | None = None) -> None:
        self.node = node or ModelNode()
        self.outbox = Outbox(outbox or OutboxSettings())
        self.now = Now(1_000 * MS, 1_700_000_000 * 10**9)
        self.settled: list[Settle] = []
        self.told: list[object] = []

    def handle(self, event: object) -> None:
        for effect in self.outbox.handle(event, self.now):  # type: ignore[arg-type]
            match effect:
                case Offer(record):
                    self.node.waiting.append(record)
                case Settle():
                    self.settled.append(effect)
                case _:
                    self.told.append(effect)
        self.outbox.check()

    def attach(self) -> None:
        self.handle(self.node.grant())

    def publish(self, bodies: list[bytes], token: bytes = b"") -> None:
        self.handle(Published(listed(bodies), token))

    def answer(self, unstored: str = "") -> None:
        self.handle(self.node.answer(unstored))

    def answer_all(self) -> None:
        while self.node.waiting:
            self.answer()

    def pass_time(self, ns: int) -> None:
        self.now = Now(self.now.monotonic_ns + ns, self.now.wall_ns + ns)
        self.handle(DeadlineReached())


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.attach()
    return pair


def numbers(pair: Pair) -> list[int]:
    return [number for s in pair.settled for number in range(s.first_number, s.last_number + 1)]


def test_what_is_published_is_offered_at_once_and_settled_when_it_is_taken(pair: Pair) -> None:
    pair.publish([b"a", b"b"])
    assert len(pair.node.waiting) == 1
    pair.answer()
    assert pair.settled == [Settle(1, 2, 1, False, GROUP)]
    assert pair.node.bodies == [b"a", b"b"]
    assert pair.outbox.is_empty


def test_numbering_goes_on_behind_the_number_to_resume_from() -> None:
    pair = Pair(ModelNode(bodies=[b"old"] * 5))
    pair.attach()
    pair.publish([b"new"])
    pair.answer()
    assert pair.settled == [Settle(6, 6, 6, False, GROUP)]


def test_a_source_that_replays_from_its_token_is_recognised_and_cut_where_the_new_begins() -> None:
    node = ModelNode(bodies=[b"1", b"2", b"3", b"4"], token=b"two", token_number=2)
    pair = Pair(node)
    pair.handle(Granted(STREAM_ID, SOURCE_ID, 1, 4, 2, GROUP, BatchLimits()))
    pair.publish([b"3", b"4", b"5", b"6"], b"six")
    pair.answer_all()
    assert node.bodies == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert [(s.first_number, s.last_number, s.is_duplicate) for s in pair.settled] == [(3, 4, True), (5, 6, False)]
    assert (node.token, node.token_number) == (b"six", 6)


def test_what_was_taken_while_the_link_was_down_is_forgotten_and_the_rest_offered_again(pair: Pair) -> None:
    pair.publish([b"a"])
    pair.publish([b"b"])
    pair.publish([b"c"])
    pair.node.answer()
    pair.node.answer()
    pair.handle(Detached())
    pair.attach()
    assert pair.settled == [Settle(1, 1, 0, False, GROUP), Settle(2, 2, 0, False, GROUP)]
    pair.answer_all()
    assert pair.node.bodies == [b"a", b"b", b"c"]
    assert numbers(pair) == [1, 2, 3]


def test_a_new_epoch_has_what_is_in_doubt_signed_anew_in_memory_of_its_own(pair: Pair) -> None:
    pair.publish([b"a"])
    before = pair.node.waiting[0]
    kept = bytes(before)
    pair.handle(Detached())
    pair.node.epoch = 2
    pair.attach()
    assert pair.node.waiting[0] is not before
    assert bytes(before) == kept
    pair.answer()
    assert pair.node.bodies == [b"a"]


def test_a_batch_that_straddles_is_cut_behind_the_number_that_the_node_names(pair: Pair) -> None:
    pair.publish([b"a", b"b", b"c"], b"token")
    pair.node.waiting.clear()
    pair.node.bodies = [b"a"]
    pair.handle(BatchRejected(1, "straddles", "cut it", 1))
    assert [len(pair.node.read(record)[1]) for record in pair.node.waiting] == [1, 2]
    pair.answer_all()
    assert pair.node.bodies == [b"a", b"b", b"c"]
    assert pair.node.token == b"token"
    assert numbers(pair) == [1, 2, 3]


def test_a_batch_that_straddles_is_cut_also_when_what_lies_before_it_is_not_answered_yet(pair: Pair) -> None:
    pair.publish([b"a"])
    pair.publish([b"b", b"c"], b"token")
    pair.node.waiting.clear()
    pair.node.bodies = [b"a", b"b"]
    for _ in range(2):
        # What was repeated on the way is answered twice, and the receipt for the first one is still on its way.
        pair.handle(BatchRejected(2, "straddles", "cut it", 2))
    assert [len(pair.node.read(record)[1]) for record in pair.node.waiting] == [1, 1, 1]
    pair.answer_all()
    assert (pair.node.bodies, pair.node.token) == ([b"a", b"b", b"c"], b"token")
    assert numbers(pair) == [1, 2, 3]


@pytest.mark.parametrize("count", [3, 200])
def test_a_source_that_attaches_again_cuts_where_the_node_has_half_of_a_batch(pair: Pair, count: int) -> None:
    bodies = [b"%d" % index for index in range(count)]
    pair.publish(bodies, b"token")
    pair.handle(Detached())
    pair.node.bodies = bodies[: count // 2]
    pair.attach()
    pair.answer_all()
    assert pair.node.bodies == bodies
    assert numbers(pair) == list(range(1, count + 1))
    assert pair.node.token == b"token"


@pytest.mark.parametrize("code", sorted(UNSTORED))
def test_what_cannot_be_stored_makes_it_rest_and_then_offer_everything_again_in_order(pair: Pair, code: str) -> None:
    for body in (b"a", b"b", b"c"):
        pair.publish([body])
    pair.answer(code)
    assert pair.outbox.phase is Phase.REWINDING
    pair.answer()
    pair.answer()
    assert pair.told == [Delay(code, "no space")]
    assert pair.outbox.phase is Phase.RESTING
    assert pair.outbox.demand(pair.now) is Demand.NOTHING
    assert pair.node.waiting == []
    pair.pass_time(1)
    assert pair.node.waiting == []
    deadline = pair.outbox.deadline()
    assert deadline is not None
    pair.pass_time(deadline - pair.now.monotonic_ns)
    pair.answer_all()
    assert pair.node.bodies == [b"a", b"b", b"c"]


def test_each_rest_is_longer_than_the_one_before_until_something_is_taken(pair: Pair) -> None:
    pair.publish([b"a"])
    rests = []
    for _ in range(3):
        pair.answer("disk-full")
        deadline = pair.outbox.deadline()
        assert deadline is not None
        rests.append(deadline - pair.now.monotonic_ns)
        pair.pass_time(rests[-1])
    assert rests == [50 * MS, 100 * MS, 200 * MS]
    pair.answer()
    pair.publish([b"b"])
    pair.answer("disk-full")
    assert pair.outbox.deadline() == pair.now.monotonic_ns + 50 * MS


def test_a_gap_below_what_was_acknowledged_is_reported_and_ends_it(pair: Pair) -> None:
    pair.publish([b"a", b"b"])
    pair.answer()
    pair.handle(Detached())
    pair.node.bodies.pop()
    pair.attach()
    (told,) = pair.told
    assert isinstance(told, GiveUp)
    assert (told.code, told.last_number) == ("lost", 1)
    assert pair.outbox.phase is Phase.STOPPED


def test_an_offer_that_overtakes_another_is_offered_again_and_nothing_is_given_up(pair: Pair) -> None:
    for body in (b"a", b"b", b"c"):
        pair.publish([body])
    pair.node.waiting.append(pair.node.waiting.pop(1))
    for _ in range(20):
        if pair.node.waiting:
            pair.answer()
    assert pair.told == []
    assert pair.node.bodies == [b"a", b"b", b"c"]
    assert numbers(pair) == [1, 2, 3]


def test_a_gap_behind_what_was_acknowledged_ends_it_when_it_is_said_again(pair: Pair) -> None:
    pair.publish([b"a"])
    pair.answer()
    pair.publish([b"b"])
    pair.handle(BatchRejected(2, "gap", "offer 1 next", 0))
    assert pair.told == []
    pair.handle(BatchRejected(2, "gap", "offer 1 next", 0))
    assert pair.told == [GiveUp("gap", "offer 1 next", 0)]


def test_a_node_that_knows_more_than_was_published_ends_it(pair: Pair) -> None:
    pair.publish([b"a"])
    pair.handle(Detached())
    pair.node.bodies = [b"x"] * 9
    pair.attach()
    (told,) = pair.told
    assert isinstance(told, GiveUp)
    assert told.code == "foreign"


def test_a_refusal_for_good_ends_it_and_says_so(pair: Pair) -> None:
    pair.publish([b"a"])
    pair.handle(BatchRejected(1, "too-large", "no", 0))
    assert pair.told == [GiveUp("too-large", "no", 0)]
    with pytest.raises(Misuse, match="stopped"):
        pair.publish([b"b"])


def test_a_second_receipt_for_the_same_batch_is_ignored(pair: Pair) -> None:
    pair.publish([b"a"])
    pair.answer()
    pair.handle(Taken(1, 1, True, GROUP))
    assert pair.settled == [Settle(1, 1, 1, False, GROUP)]


def test_an_anonymous_source_counts_from_one_on_each_attachment() -> None:
    pair = Pair(ModelNode(is_anonymous=True))
    pair.attach()
    pair.publish([b"a"])
    pair.answer()
    pair.publish([b"b"])
    pair.handle(Detached())
    pair.attach()
    pair.publish([b"c"])
    pair.answer_all()
    assert pair.node.bodies == [b"a", b"b", b"c"]
    assert numbers(pair) == [1, 2, 3]


def test_before_the_first_grant_nothing_may_be_published() -> None:
    with pytest.raises(Misuse, match="not-attached"):
        Pair().publish([b"a"])


def test_what_leaves_at_once_is_bounded_and_the_rest_waits_for_company(pair: Pair) -> None:
    eager = OutboxSettings().eager_count
    for _ in range(eager):
        assert pair.outbox.demand(pair.now) is Demand.ANY
        pair.publish([b"a"])
    assert pair.outbox.demand(pair.now) is Demand.FULL
    deadline = pair.outbox.deadline()
    assert deadline == pair.now.monotonic_ns + OutboxSettings().linger_ns
    pair.pass_time(OutboxSettings().linger_ns)
    assert pair.outbox.demand(pair.now) is Demand.ANY
    assert pair.outbox.deadline() is None


def test_with_the_window_used_up_nothing_more_is_asked_for() -> None:
    pair = Pair(outbox=OutboxSettings(window_size=1000))
    pair.attach()
    pair.publish([b"x" * 2000])
    assert pair.outbox.demand(pair.now) is Demand.NOTHING
    pair.answer()
    assert pair.outbox.demand(pair.now) is Demand.ANY


def test_a_payload_above_the_nodes_limit_is_cut_until_it_fits() -> None:
    node = ModelNode(limits=BatchLimits(batch_size_max=4096, count_max=100))
    pair = Pair(node)
    pair.attach()
    bodies = [b"%03d" % index + b"x" * 100 for index in range(250)]
    pair.publish(bodies, b"end")
    assert len(node.waiting) > 3
    pair.answer_all()
    assert node.bodies == bodies
    assert (node.token, node.token_number) == (b"end", 250)


def test_attributes_of_mixed_types_are_parted_into_batches_of_one_type_each(pair: Pair) -> None:
    pair.handle(
        Published(
            Listed(
                [b"k"] * 100,
                [b"%d" % i for i in range(100)],
                mappings=[{"x": 1 if i < 50 else "one"} for i in range(100)],
            )
        )
    )
    pair.answer_all()
    assert pair.node.bodies == [b"%d" % i for i in range(100)]


def test_what_is_no_publication_is_named_and_what_lies_before_it_goes_on_its_way(pair: Pair) -> None:
    pair.publish([b"a"])
    pair.handle(Published(Listed([b"k", b"k"], [b"b", b"c"], mappings=[None, {"x": [1, 2]}])))  # type: ignore[dict-item]
    (told,) = pair.told
    assert isinstance(told, Spoil)
    assert told.number == 3
    assert pair.outbox.demand(pair.now) is Demand.NOTHING
    assert pair.outbox.deadline() is None
    with pytest.raises(Misuse, match="spoiled"):
        pair.publish([b"d"])
    pair.answer_all()
    assert pair.node.bodies == [b"a", b"b"]


EVENTS = [
    Granted(STREAM_ID, SOURCE_ID, 1, 0, 0, GROUP, BatchLimits()),
    Published(listed([b"a"])),
    Taken(1, 1, False, GROUP),
    BatchRejected(1, "gap", "gap", 0),
    BatchRejected(1, "disk-full", "full", 0),
    Detached(),
    Stopped(),
    DeadlineReached(),
]


@pytest.mark.parametrize("first", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("second", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_is_answered_in_every_phase(first: object, second: object) -> None:
    for prefix in ([], EVENTS[:1], EVENTS[:2]):
        outbox = Outbox(OutboxSettings())
        for event in [*prefix, first, second]:
            try:
                outbox.handle(event, Now(0, 0))  # type: ignore[arg-type]
            except Misuse:
                assert isinstance(event, Published), "only what its owner asks may be refused"


class OutboxAndNode(RuleBasedStateMachine):
    """Publishing, answering, losing links, filling disks and restarting the source, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(ModelNode(limits=BatchLimits(batch_size_max=2048, count_max=70)))
        self.published: list[bytes] = []
        self.is_linked = False

    @initialize()
    def begin(self) -> None:
        self.attach()

    @precondition(lambda self: not self.is_linked)
    @rule()
    def attach(self) -> None:
        self.pair.attach()
        self.is_linked = True

    @precondition(lambda self: self.is_linked)
    @rule(reached=st.integers(0, 5))
    def lose_link(self, reached: int) -> None:
        for _ in range(min(reached, len(self.pair.node.waiting))):
            self.pair.node.answer()
        self.pair.node.waiting.clear()
        self.pair.handle(Detached())
        self.is_linked = False

    @rule(count=st.integers(1, 200), size=st.sampled_from([0, 3, 100]), token=st.sampled_from([b"", b"t"]))
    def publish(self, count: int, size: int, token: bytes) -> None:
        bodies = [b"%d:" % (len(self.published) + index) + b"x" * size for index in range(count)]
        self.published += bodies
        self.pair.publish(bodies, token)

    @precondition(lambda self: self.pair.node.waiting)
    @rule(unstored=st.sampled_from(("", "disk-full", "too-many-files")))
    def answer(self, unstored: str) -> None:
        self.pair.answer(unstored)

    @rule(ns=st.sampled_from([1, MS, 1000 * MS, 10_000 * MS]))
    def wait(self, ns: int) -> None:
        self.pair.pass_time(ns)

    @precondition(lambda self: not self.is_linked)
    @rule()
    def take_over_by_another_epoch(self) -> None:
        self.pair.node.epoch += 1

    @rule()
    def start_a_new_process_of_the_source(self) -> None:
        """It knows nothing but what the node tells it; what the old one had in doubt is its application's to repeat."""
        self.pair.node.waiting.clear()
        self.pair.node.epoch += 1
        fresh = Pair(self.pair.node)
        fresh.attach()
        self.published = self.published[: len(self.pair.node.bodies)]
        self.pair, self.is_linked = fresh, True

    @invariant()
    def the_stream_holds_a_prefix_of_what_was_published(self) -> None:
        assert self.pair.node.bodies == self.published[: len(self.pair.node.bodies)]

    @invariant()
    def what_is_settled_is_in_the_stream_and_settled_once(self) -> None:
        settled = numbers(self.pair)
        assert settled == sorted(set(settled))
        assert not settled or settled[-1] <= len(self.pair.node.bodies)

    @invariant()
    def nothing_is_given_up(self) -> None:
        assert not [told for told in self.pair.told if isinstance(told, GiveUp | Spoil)]

    def teardown(self) -> None:
        if not self.is_linked:
            self.attach()
        for _ in range(100):
            self.pair.answer_all()
            deadline = self.pair.outbox.deadline()
            if deadline is None:
                break
            self.pair.pass_time(max(1, deadline - self.pair.now.monotonic_ns))
        assert self.pair.node.bodies == self.published
        assert self.pair.outbox.is_empty


TestOutboxAndNode = OutboxAndNode.TestCase
TestOutboxAndNode.settings = settings(max_examples=60, stateful_step_count=30)
