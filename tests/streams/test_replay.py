"""A snapshot at any point and the records behind it give the tables that a node had."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streams.rig import Rig, incarnation
from veredus.delivery.batch import BatchHeader
from veredus.matching import Filter
from veredus.sim.content import Identity, batch_record
from veredus.sim.ports import batch_offered
from veredus.streams import exchange as x
from veredus.streams.cursors import CURSOR_INTERVAL_NS
from veredus.streams.engine import StreamsEngine
from veredus.streams.tables import StreamsLimits

STREAMS = ("s", "t")
NAMES = ("alpha", "beta")
SOME = (*NAMES, "gamma", "delta")

numbers = st.integers(1, 6)
STEPS = st.one_of(
    st.tuples(st.just("attach"), st.sampled_from(NAMES), st.integers(1, 3)),
    st.tuples(st.just("publish"), st.sampled_from(NAMES), numbers),
    st.tuples(st.just("store"), st.sampled_from(NAMES), numbers),
    st.tuples(st.just("repeat"), st.sampled_from(NAMES), numbers),
    st.tuples(st.just("subscribe"), st.sampled_from(NAMES), st.integers(1, 3), st.booleans(), st.booleans()),
    st.tuples(st.just("settle"), st.sampled_from(NAMES), numbers, numbers),
    st.tuples(st.just("hand_out"), st.sampled_from(NAMES), numbers),
    st.tuples(st.just("give_back"), st.sampled_from(NAMES), numbers, st.sampled_from(["retry", "taken", "reject"])),
    st.tuples(st.just("leave"), st.sampled_from(NAMES)),
    st.tuples(st.just("filter"), st.sampled_from(NAMES)),
    st.tuples(st.just("begin_run"), st.integers(1, 2)),
    st.tuples(st.just("stage"), st.sampled_from(STREAMS), numbers),
    st.tuples(st.just("commit"), st.integers(0, 2)),
    st.tuples(
        st.just("drop"),
    ),
    st.tuples(st.just("trim"), numbers),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(
        st.just("delete"),
    ),
    st.tuples(
        st.just("checkpoint"),
    ),
    st.tuples(
        st.just("begin_checkpoint"),
    ),
    st.tuples(st.just("go_on"), st.integers(1, 2)),
    st.tuples(st.just("raise_source"), st.sampled_from(NAMES), numbers),
)
SOURCES = st.one_of(
    st.tuples(st.just("attach"), st.sampled_from(SOME), st.integers(1, 3)),
    st.tuples(st.just("publish"), st.sampled_from(SOME), numbers),
    st.tuples(st.just("store"), st.sampled_from(SOME), numbers),
    st.tuples(st.just("raise_source"), st.sampled_from(SOME), numbers),
    st.tuples(st.just("go_on"), st.integers(1, 2)),
    st.tuples(
        st.just("delete"),
    ),
)

ALPHA = st.just("alpha")
ATTEMPTS = st.one_of(
    st.tuples(st.just("give_back"), ALPHA, numbers, st.sampled_from(["retry", "retry", "taken", "reject"])),
    st.tuples(st.just("hand_out"), ALPHA, numbers),
    st.tuples(st.just("settle"), ALPHA, numbers, st.integers(1, 2)),
    st.tuples(st.just("subscribe"), ALPHA, st.integers(1, 2), st.just(value=True), st.booleans()),
    st.tuples(st.just("leave"), ALPHA),
    st.tuples(st.just("filter"), ALPHA),
    st.tuples(st.just("trim"), numbers),
    st.tuples(
        st.just("checkpoint"),
    ),
)


class Story:
    """Takes steps on a rig, whatever they may come to; what is refused is refused."""

    def __init__(self) -> None:
        self.rig = Rig(StreamsLimits(tail_size_max=500))
        self.rig.attach(0, stream="dead")
        self.sessions = 0
        self.sources: dict[str, x.GrantSource] = {}
        self.last: dict[str, int] = {}
        self.subscribers: dict[str, int] = {}
        self.run: x.GrantRun | None = None
        self.stages: list[x.GrantStage] = []
        self.commit_id = 0

    def session(self) -> int:
        self.sessions += 1
        return self.sessions

    def take(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0])(*step[1:])

    def attach(self, name: str, who: int) -> None:
        answer = self.rig.attach(self.session(), name, who)
        if isinstance(answer, x.GrantSource):
            self.sources[name] = answer
            self.last[name] = answer.last_number

    def publish(self, name: str, count: int) -> None:
        grant = self.sources.get(name)
        if grant is not None:
            first = self.last[name] + 1
            token = b"%d" % first if count % 2 else b""
            answer = self.rig.publish(grant, first, count, token, name)
            if isinstance(answer, x.ConfirmTaken):
                self.last[name] = answer.last_number

    def store(self, name: str, back: int) -> None:
        """Store a token by itself: up to the last number, to one below, or to one that is not there."""
        grant = self.sources.get(name)
        if grant is not None:
            number = max(0, self.last[name] + 2 - back)
            self.rig.do(x.TokenStoreRequested(grant.session, back, number, b"alone-%d" % number))

    def repeat(self, name: str, count: int) -> None:
        grant = self.sources.get(name)
        if grant is not None and self.last[name] >= count:
            self.rig.publish(grant, self.last[name] - count + 1, count, who=name)

    def subscribe(self, name: str, who: int, is_individual: bool, is_picky: bool) -> None:
        session = self.session()
        mode = x.SettleMode.INDIVIDUAL if is_individual else x.SettleMode.IN_ORDER
        filter_ = Filter(where="even") if is_picky else None
        fact = x.SubscribeRequested(
            session, "local", "s", name, "main", filter_, mode=mode, incarnation=incarnation(who), credit=300,
            attempts_max=3, parked_to="dead",
        )  # fmt: skip
        self.rig.do(fact)
        self.subscribers[name] = session

    def settle(self, name: str, first: int, count: int) -> None:
        if name in self.subscribers:
            self.rig.do(x.CreditGranted(self.subscribers[name], 100))
            self.rig.settle(self.subscribers[name], (first, first + count - 1))

    def hand_out(self, name: str, sequence: int) -> None:
        if name in self.subscribers:
            self.rig.do(x.HandedOut(self.subscribers[name], sequence))

    def give_back(self, name: str, sequence: int, what: str) -> None:
        if name in self.subscribers:
            self.rig.do(x.ReturnRequested(self.subscribers[name], sequence, what != "reject", "", what == "taken"))

    def leave(self, name: str) -> None:
        session = self.subscribers.pop(name, None)
        if session is not None:
            self.rig.do(x.SessionClosed(session))

    def filter(self, name: str) -> None:
        if name in self.subscribers:
            self.rig.do(x.FilterChangeRequested(self.subscribers[name], Filter(keys=("prefix:k1",))))

    def begin_run(self, who: int) -> None:
        (answer,) = self.rig.do(x.RunOpenRequested(self.session(), "local", "sink", incarnation(who)))
        if isinstance(answer, x.GrantRun):
            self.run, self.stages = answer, []

    def stage(self, stream: str, count: int) -> None:
        if self.run is None:
            return
        session = self.session()
        self.rig.do(x.StageOpenRequested(session, "local", "sink", self.run.epoch, stream, incarnation(session)))
        for grant in self.rig.said_to(session, x.GrantStage):
            header = BatchHeader(0, 0, 0, 0, 0, grant.stream_id, 0, 0, 0, 1, 0, 0)
            rows = [Identity(f"stage-{grant.stage}", number) for number in range(1, count + 1)]
            self.rig.do(batch_offered(session, batch_record(header, rows)))
            self.stages.append(grant)

    def commit(self, count: int) -> None:
        if self.run is not None:
            chosen, self.stages = self.stages[:count], self.stages[count:]
            self.commit_id += 1
            fact = x.CommitRequested(
                self.session(), 1, "local", "sink", self.run.epoch, self.commit_id, tuple(s.stage for s in chosen)
            )
            self.rig.do(fact)

    def drop(self) -> None:
        if self.run is not None and self.stages:
            stage = self.stages.pop()
            self.rig.do(x.StagesDropRequested(self.session(), 1, "local", "sink", self.run.epoch, (stage.stage,)))

    def trim(self, floor: int) -> None:
        self.rig.do(x.AdminRequested(self.session(), 1, "local", "stream.trim", {"name": "s", "floor": floor}))

    def remove(self, name: str) -> None:
        place = {"stream": "s", "subscriber": name, "name": "main"}
        self.rig.do(x.AdminRequested(self.session(), 1, "local", "subscription.remove", place))

    def delete(self) -> None:
        self.rig.do(x.AdminRequested(self.session(), 1, "local", "stream.delete", {"name": "s"}))
        self.sources.clear()

    def checkpoint(self) -> None:
        self.rig.checkpoint()

    def begin_checkpoint(self) -> None:
        self.rig.begin_checkpoint()

    def go_on(self, count: int) -> None:
        self.rig.go_on_with_checkpoint(count)

    def raise_source(self, name: str, ahead: int) -> None:
        number = self.last.get(name, 0) + ahead - 2
        told = {"stream": "s", "sources": [(name, max(1, number), b"raised-%d" % number)]}
        self.rig.do(x.AdminRequested(self.session(), 1, "local", "source.raise", told))
        stream = self.rig.floor.tables.streams.get("s")
        if name in self.last and stream is not None:
            self.last[name] = stream.sources[name].last_assigned


def tables_of(floor: StreamsEngine) -> dict[str, Any]:
    """What a node has promised, as plain data."""
    tables = floor.tables
    return {
        "streams": {
            name: (
                stream.stream_id,
                stream.incarnation,
                stream.floor,
                stream.head_durable,
                stream.append_time_us,
                {
                    s.name: (s.source_id, s.granted, s.last_durable, s.last_sequence, s.token, s.token_number)
                    for s in stream.sources.values()
                },
                {key: _cursor(subscription) for key, subscription in stream.subscriptions.items()},
            )
            for name, stream in tables.streams.items()
        },
        "runs": {run.sink: (run.epoch, run.commit_id, run.commit_streams) for run in tables.runs.values()},
        "stages": {s.stage: (s.sink, s.run_epoch, s.stream_id, s.count_durable) for s in tables.stages.values()},
        "removed": tables.removed.rows(),
    }


def _cursor(subscription: Any) -> tuple[Any, ...]:
    return (
        list(subscription.tries),
        sorted(subscription.tries.returned),
        subscription.handed_to,
        subscription.epoch,
        subscription.incarnation,
        subscription.filter,
        subscription.mode,
        subscription.floor_durable,
    )


@settings(max_examples=120)
@given(st.lists(STEPS, max_size=40))
def test_a_snapshot_at_any_point_and_the_records_behind_it_give_the_tables_back(steps: list[tuple[Any, ...]]) -> None:
    check_that_the_tables_come_back(steps)


@settings(max_examples=120)
@given(st.lists(ATTEMPTS, max_size=40))
def test_they_give_back_how_often_what_is_unsettled_was_tried(steps: list[tuple[Any, ...]]) -> None:
    check_that_the_tables_come_back(
        [("attach", "alpha", 1), ("publish", "alpha", 6), ("subscribe", "alpha", 1, True, False), *steps]
    )


@settings(max_examples=120)
@given(st.lists(SOURCES, max_size=20), st.lists(SOURCES, min_size=5, max_size=30))
def test_what_comes_while_a_snapshot_is_taken_is_replayed_over_it(
    steps: list[tuple[Any, ...]], meanwhile: list[tuple[Any, ...]]
) -> None:
    check_that_the_tables_come_back([*steps, ("begin_checkpoint",), *meanwhile, ("go_on", 100), *meanwhile[:2]])


def check_that_the_tables_come_back(steps: list[tuple[Any, ...]]) -> None:
    story = Story()
    for step in steps:
        story.take(step)
    rig = story.rig
    # Cursors that moved over what their filters rejected are journaled by then, and what was handed out.
    rig.time_ns += CURSOR_INTERVAL_NS
    rig.carry_out()
    before = tables_of(rig.floor)
    rig.restart()
    assert tables_of(rig.floor) == before
    rig.restart()
    assert tables_of(rig.floor) == before
