"""Sinks: processes that write rows under stages and show them by commits, each commit once whatever happens.

Those without a name are plain writes: each process writes once, under a name of its own, and may die just before it
asks for its commit. Nobody goes on with what it left: that goes with its lease.

run granted ──► stages opened ──► rows confirmed ──► commit asked ──► committed ──► the next commit
▲               │ link lost, refused                │ link lost: asked again, with the same stages
└───────────────┴─────────── a new attempt ◄────────┘ only if it cannot have been asked
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from veredus.delivery.batch import BatchHeader
from veredus.delivery.content import Content
from veredus.kernel.errors import UNSTORED
from veredus.streams.exchange import (
    AdminRequested,
    AnswerAdmin,
    CommitRequested,
    ConfirmCommitted,
    ConfirmTaken,
    Fence,
    GrantRun,
    GrantStage,
    Refuse,
    RefuseBatch,
    RunOpenRequested,
    SessionClosed,
    StageOpenRequested,
    StagesDropRequested,
)

from .commits import Commits, who_staged
from .content import Identity, batch_record
from .network import Network
from .peers import Peer
from .players import Player
from .ports import batch_offered
from .world import MICROSECOND, MILLISECOND, Violation, World

RUN_CHANNEL = 1
OTHER = ("commit-other-rows", "commit-other-streams")
LOST = ("unknown-stage", "bad-contents", "commit-id-behind", "gap", "straddles", "unknown-run", "lost")
"""What a sink is never told that does as it should, by a node that forgets nothing."""


@dataclass(slots=True)
class _Stage:
    """One stage of an attempt: `last` is the number of its last row, `taken` of the last one confirmed."""

    channel: int
    stream: str
    numbers: range
    stage: int = 0
    taken: int = 0


@dataclass(slots=True)
class _Attempt:
    """One try at a commit."""

    commit_id: int
    name: str
    stages: list[_Stage] = field(default_factory=list)
    contents: tuple[Content, ...] = ()
    """What it says that it holds, by stream."""
    is_asked: bool = False
    is_early: bool = False
    """Whether its commit is asked for before its rows are confirmed."""


class SinkProcess(Peer):
    """One life of a sink."""

    lapsing: tuple[str, ...] = ("unknown-stage",)
    """What is said to a sink whose stages went with their lease."""

    def __init__(self, world: World, network: Network, name: str, address: str, sink: Sink) -> None:
        """A process that writes as `sink`."""
        super().__init__(world, network, name, address)
        self._sink = sink
        self._writes_as = sink.name
        self._last_id = sink.total - 1
        self._incarnation = self.die.octets(16)
        self._epoch = 0
        self._attempt: _Attempt | None = None
        self._attempt_count = 0
        self._is_granted = False
        self._request = 0
        self._last_channel = 0
        self._committed_id = -1
        self._asks_again = self.die.chance(0.1)
        """Whether it will stage anew and commit once more what is committed, as who has lost an answer may."""
        self._says_contents = self.die.chance(0.7)
        self._says_commits = self._incarnation[0] % 2 == 0
        """Whether it says of each stage for which commit it is."""
        self._twins: dict[int, int] = {}
        """By request for a commit that repeats another, that other."""
        self._told_of_other: dict[int, None] = {}
        self._shown: _Attempt | None = None
        """What was committed last, while it is asked for again."""
        self._is_overtaken = self.die.chance(0.1)
        """Whether it will give up its first link before it is granted a run, and meanwhile another process starts."""

    def attach(self) -> None:
        """Ask for a run, or join the one that this process was granted."""
        self.ask(self._opening())
        if self._is_overtaken:
            self._is_overtaken = False
            self.later(self.die.spread(MICROSECOND, 10 * MILLISECOND), self._be_overtaken)

    def _opening(self) -> RunOpenRequested:
        return RunOpenRequested(RUN_CHANNEL, self.principal, self._writes_as, self._incarnation, self._epoch)

    def _be_overtaken(self) -> None:
        if not self._epoch:
            self.leave()
            self._sink.start()

    def hear(self, order: Any) -> None:
        """Go on with the attempt; stop when fenced."""
        match order:
            case GrantRun(_, epoch, commit_id):
                self._granted(epoch, commit_id)
            case GrantStage(channel, stage, stream_id):
                self._write(channel, stage, stream_id)
            case ConfirmTaken(channel, last):
                self._taken(channel, last)
            case ConfirmCommitted(_, request, commit_id):
                if request == self._request:
                    self._committed(commit_id)
            case Fence(_, epoch):
                self.world.counts["fenced"] += 1
                self._sink.fenced(self)
                self.stop(f"fenced by epoch {epoch}")
            case Refuse(code="forbidden"):
                self._sink.disowned(self)
            case Refuse(_, code, _, _, request) if code in OTHER:
                self._be_told_of_other(code, request)
            case RefuseBatch(_, _, code, message) | Refuse(_, code, message):
                if code == "stage-not-durable":
                    self.world.counts["early commits"] += 1
                    self._hold_back()
                    return
                if code in self.lapsing and self._writes_as in self._sink.commits.lapsed:
                    self.world.counts["lapsed stages"] += 1
                elif code in LOST and self._sink.is_sure:
                    raise Violation("exchange", f"{self.name} is refused: {code}, {message}")
                self.world.tell(self.name, f"is refused: {code}, {message}")
                attempt = self._attempt
                is_given_up = code in ("unknown-stage", "bad-contents", "lost") or (
                    code in UNSTORED and self.die.chance(0.5)
                )
                if attempt is not None and is_given_up:
                    # What is refused is visible nowhere: another attempt stages everything anew.
                    attempt.is_asked = False
                if code in ("too-many-stages", "unknown-run"):
                    # Stages whose grants were lost with a link: nobody knows their numbers, a newer run drops them. Or
                    # the node has lost the run itself with its disk: whoever writes again does so under a new one.
                    self._sink.follow_later()
                    self.stop(f"begins anew: {code}")
                else:
                    self.leave()
            case AnswerAdmin():
                pass
            case _:
                raise Violation("exchange", f"{self.name} was told {order!r}")

    def lose(self) -> None:
        """An attempt that was not asked to be committed is given up; so is one that the node has forgotten."""
        self._is_granted = False
        attempt = self._attempt
        if attempt is not None and not attempt.is_asked:
            self._sink.leftovers.extend(stage.stage for stage in attempt.stages if stage.stage)
            self._attempt = None

    def _hold_back(self) -> None:
        """The commit was asked for too early: once more when all rows are confirmed."""
        attempt = self._attempt
        if attempt is not None and attempt.is_early:
            attempt.is_early = attempt.is_asked = False
            self._commit_if_whole()

    def _granted(self, epoch: int, commit_id: int) -> None:
        if not self._epoch:
            self._sink.leftovers.clear()
        self._epoch = epoch
        self._is_granted = True
        self._committed_id = commit_id
        attempt = self._attempt
        if commit_id >= self._last_id:
            self._be_done()
        elif attempt is not None and attempt.commit_id > commit_id and not attempt.is_early:
            self._commit(attempt)
        else:
            if attempt is not None:
                # Asked for before all rows were confirmed, and with the link some of them may have been lost; or there.
                self._sink.leftovers.extend(stage.stage for stage in attempt.stages if stage.stage)
            self._try(commit_id + 1)

    def _try(self, commit_id: int) -> None:
        """Begin an attempt, after dropping what earlier ones left."""
        sink = self._sink
        if sink.leftovers:
            self._request += 1
            stages = tuple(sink.leftovers)
            sink.leftovers.clear()
            self.ask(
                StagesDropRequested(RUN_CHANNEL, self._request, self.principal, self._writes_as, self._epoch, stages)
            )
        self._attempt_count += 1
        attempt = _Attempt(commit_id, f"{self.name.replace('#', '-')}-{self._attempt_count}")
        attempt.is_early = self.die.chance(0.2)
        self._attempt = attempt
        written: dict[str, int] = {}
        for stream, count in self._drawn():
            first = written.get(stream, 0) + 1
            written[stream] = first + count - 1
            self._last_channel = self._last_channel % 60_000 + 1
            attempt.stages.append(_Stage(RUN_CHANNEL + self._last_channel, stream, range(first, first + count)))
            sink.commits.stage(self._writes_as, commit_id, attempt.name, stream, count)
        if self._says_contents:
            # The digest stands for the rows: they follow from how many there are in which stream.
            attempt.contents = tuple(Content(stream, count, b"%d" % count) for stream, count in written.items())
        # What is staged once more for a commit that is known to be done is for it no more.
        said_id = commit_id if self._says_commits and commit_id > self._committed_id else -1
        for stage in attempt.stages:
            key, channel = self.die.octets(16), stage.channel
            self.ask(
                StageOpenRequested(channel, self.principal, self._writes_as, self._epoch, stage.stream, key, said_id)
            )

    def _drawn(self) -> list[tuple[str, int]]:
        """Streams and counts of rows of an attempt: new ones, or those that were committed, when it is asked again."""
        if self._shown is not None and self.die.chance(0.6):
            return [(stage.stream, len(stage.numbers)) for stage in self._shown.stages]
        streams = self._sink.streams
        draw = self.die.between
        return [(streams[draw(0, len(streams) - 1)], self.die.spread(1, 60) - 1) for _ in range(self.die.between(1, 3))]

    def _be_told_of_other(self, code: str, request: int) -> None:
        """A commit that was done is not done with other contents."""
        if self._twins.get(request) in self._told_of_other:
            # It was asked for twice: the first refusal has ended the attempt.
            return
        self._told_of_other[request] = None
        shown, attempt = self._shown, self._attempt
        held = None if attempt is None else held_by(attempt)
        known = [] if attempt is None else self._sink.asked.get((self._writes_as, attempt.commit_id), [])
        # An earlier attempt, also of an earlier life, may have been committed though its answer was lost.
        was_other = held_by(shown) != held if shown is not None else any(other != held for other in known)
        if attempt is None or not was_other:
            raise Violation("committed", f"{self.name} asks for what is committed, and is refused: {code}")
        self.world.counts["other contents"] += 1
        self._sink.leftovers.extend(stage.stage for stage in attempt.stages if stage.stage)
        self._finish(attempt.commit_id)

    def _stage_at(self, channel: int) -> _Stage | None:
        attempt = self._attempt
        return next((stage for stage in attempt.stages if stage.channel == channel), None) if attempt else None

    def _write(self, channel: int, number: int, stream_id: int) -> None:
        stage, attempt = self._stage_at(channel), self._attempt
        if stage is None or attempt is None or stage.stage:
            return
        stage.stage = number
        who = who_staged(self._writes_as, attempt.commit_id, attempt.name)
        rows = [Identity(who, row) for row in stage.numbers]
        first = 1
        while first <= len(rows):
            part = rows[first - 1 : first - 1 + self.die.spread(1, 40)]
            header = BatchHeader(0, 0, 0, 0, 0, stream_id, 0, 0, 0, first, 0, 0)
            self.ask(batch_offered(channel, batch_record(header, part)))
            first += len(part)
        self._commit_if_whole()

    def _taken(self, channel: int, last: int) -> None:
        stage = self._stage_at(channel)
        if stage is not None:
            stage.taken = max(stage.taken, last)
            self._commit_if_whole()

    def _commit_if_whole(self) -> None:
        attempt = self._attempt
        if attempt is None or attempt.is_asked:
            return
        if all(s.stage and (attempt.is_early or s.taken == len(s.numbers)) for s in attempt.stages):
            if self._dies_first():
                return
            attempt.is_asked = True
            self._sink.commits.will_ask(self._writes_as, attempt.commit_id, attempt.name)
            self._commit(attempt)

    def _dies_first(self) -> bool:
        """Whether it is dead now, and asks for nothing."""
        return False

    def _commit(self, attempt: _Attempt) -> None:
        self._request += 1
        stages = tuple(stage.stage for stage in attempt.stages)
        self._sink.asked.setdefault((self._writes_as, attempt.commit_id), []).append(held_by(attempt))
        fact = CommitRequested(
            RUN_CHANNEL,
            self._request,
            self.principal,
            self._writes_as,
            self._epoch,
            attempt.commit_id,
            stages,
            (),
            attempt.contents,
            (),
            () if attempt.contents else tuple(stage.taken for stage in attempt.stages),
            self._committed_id,
        )
        self.ask(fact)
        if self.die.chance(0.1):
            self._request += 1
            self._twins[self._request] = fact.request
            self.ask(replace(fact, request=self._request))

    def _committed(self, commit_id: int) -> None:
        self.world.counts["commits"] += 1
        self._committed_id = commit_id
        if self._asks_again and self._attempt is not None:
            self._asks_again = False
            self._shown = self._attempt
            self._end_attempt()
            self._try(commit_id)
            return
        self._finish(commit_id)

    def _end_attempt(self) -> None:
        for stage in self._attempt.stages if self._attempt is not None else ():
            self.ask(SessionClosed(stage.channel))
        self._attempt = None

    def _finish(self, commit_id: int) -> None:
        """The commit is done, by this attempt or by the one before: go on with the next."""
        self._end_attempt()
        self._shown = None
        if commit_id >= self._last_id:
            self._be_done()
            return
        self.later(self.die.spread(MILLISECOND, 100 * MILLISECOND), lambda: self._go_on(commit_id + 1))

    def _be_done(self) -> None:
        self._sink.is_done = True

    def _go_on(self, commit_id: int) -> None:
        if self._is_granted and self._attempt is None and commit_id == self._committed_id + 1:
            self._try(commit_id)


class NamelessProcess(SinkProcess):
    """One plain write: one commit of an ephemeral sink, which it removes at the end if it lives to."""

    lapsing = ("unknown-stage", "unknown-run")

    def __init__(self, world: World, network: Network, name: str, address: str, sink: NamelessSink) -> None:
        """A process that writes once, as nobody did before."""
        super().__init__(world, network, name, address, sink)
        self._nameless = sink
        self._writes_as = name.replace("#", "-")
        self._last_id = 0
        self._asks_again = self._is_overtaken = False
        self._has_asked = False
        self._is_over = False

    def _opening(self) -> RunOpenRequested:
        # What is committed must not be committed anew under a run that begins because the one before has gone.
        epoch = self._epoch if self._has_asked else 0
        return RunOpenRequested(RUN_CHANNEL, self.principal, self._writes_as, self._incarnation, epoch, True)

    def hear(self, order: Any) -> None:
        """Go on with the write; what is said to its removal changes nothing."""
        if not self._is_over:
            super().hear(order)
        elif isinstance(order, AnswerAdmin | Refuse):
            self._leave_for_good()

    def lose(self) -> None:
        """Once its rows are visible nothing is left to be done but what its lease does, too."""
        if self._is_over:
            self._leave_for_good()
        else:
            super().lose()

    def _dies_first(self) -> bool:
        is_dead = not self._has_asked and self.die.chance(0.3)
        if is_dead:
            self.world.counts["writes killed"] += 1
            self.kill("before it asks for its commit")
            self._sink.follow_later()
        self._has_asked = True
        return is_dead

    def _be_done(self) -> None:
        self._is_over = True
        self._nameless.written_count += 1
        if self.die.chance(0.3):
            self._leave_for_good()
            return
        self._request += 1
        self._sink.commits.removed[self._writes_as] = None
        told: dict[str, object] = {"sink": self._writes_as}
        self.ask(AdminRequested(RUN_CHANNEL, self._request, self.principal, "sink.remove", told))

    def _leave_for_good(self) -> None:
        self.stop("has written")
        self._nameless.go_on()


def held_by(attempt: _Attempt) -> dict[str, int]:
    """What an attempt holds: for each stream how many rows."""
    held: dict[str, int] = {}
    for stage in attempt.stages:
        held[stage.stream] = held.get(stage.stream, 0) + len(stage.numbers)
    return held


class Sink(Player[SinkProcess]):
    """Owns the processes of one sink: one at a time, but for zombies."""

    def __init__(
        self, world: World, network: Network, name: str, streams: tuple[str, ...], address: str, commits: Commits
    ) -> None:
        """A sink that writes to some streams."""
        super().__init__(world, network, name, address)
        self.streams = streams
        self.commits = commits
        self.total = world.dice.die(f"sink/{name}").between(1, 12)
        self.leftovers: list[int] = []
        self.asked: dict[tuple[str, int], list[dict[str, int]]] = {}
        """By name and commit id what each attempt held that was asked to be committed, of all lives."""

    def process_of(self, name: str) -> SinkProcess:
        """A process that writes as this sink."""
        return SinkProcess(self.world, self.network, name, self.address, self)

    @property
    def is_sure(self) -> bool:
        """Whether its streams may not have been forgotten."""
        return not any(map(self.world.may_forget, self.streams))


class NamelessSink(Sink):
    """Owns plain writes, one after the other."""

    def __init__(
        self, world: World, network: Network, name: str, streams: tuple[str, ...], address: str, commits: Commits
    ) -> None:
        """Whose writes go to some streams."""
        super().__init__(world, network, name, streams, address, commits)
        self.written_count = 0
        self._lives: list[NamelessProcess] = []

    def process_of(self, name: str) -> SinkProcess:
        """A process that writes once."""
        self._lives.append(NamelessProcess(self.world, self.network, name, self.address, self))
        return self._lives[-1]

    def abandon(self, is_killed: bool) -> None:
        """Nobody waits for any of its writes any more."""
        for life in self._lives[:-1]:
            life.kill("for good")
        super().abandon(is_killed)

    def wake(self) -> None:
        """Whoever still sleeps goes on with its write."""
        super().wake()
        self.is_done = self._has_written()

    def stop(self, duration_ns: int, is_followed: bool) -> None:
        """Nobody takes a write for dead and does it anew: both would be there."""
        super().stop(duration_ns, False)

    def go_on(self) -> None:
        """One write is over: begin another one, if there is more to be written."""
        self.is_done = self._has_written()
        if not self.is_done:
            self.follow_later()

    def _has_written(self) -> bool:
        return self.written_count >= self.total and not any(
            life.is_alive and not life.gate.is_stopped for life in self._lives
        )


def drawn_sink(
    world: World, network: Network, name: str, streams: tuple[str, ...], address: str, commits: Commits
) -> Sink:
    """A sink of either kind that writes to some streams."""
    kind = NamelessSink if world.dice.die(f"nameless/{name}").chance(0.5) else Sink
    return kind(world, network, name, streams, address, commits)
