"""Every right at every request: played over a link of a node, by a principal who has all rights but exactly that one.

The list is `veredus.streams.rights.RIGHTS`. Behind it, each question is taken out of the source, one after the
other: then somebody here must be told, or let do, what it should not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.protocols.zeps.place import WALL_NS, Place
from veredus.kernel.errors import Refused
from veredus.kernel.events import LinkClosed
from veredus.protocols.links import session_of
from veredus.protocols.zeps import channels, frames, native
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.native import Kind
from veredus.protocols.zeps.parsing import FrameParser
from veredus.streams import administration, rights
from veredus.streams import exchange as x
from veredus.streams.administration import Administration
from veredus.streams.rights import RIGHTS, SINK, STREAM, UNASKED, VERBS, Resource, Rights

EPOCH = STAGE = WALL_NS // 1_000
"""Of the first run of a sink, and the number of its first stage."""
ID = b"0123456789abcdef"
OTHER_ID = b"fedcba9876543210"
BYTES = (Kind.DELIVER, Kind.RECEIPT, Kind.SETTLED, Kind.PONG)


class Speaker:
    """A peer of the native protocol, by hand."""

    def __init__(self, place: Place, link: int, principal: str) -> None:
        self.place, self.link, self.parser = place, link, FrameParser(1 << 20)
        place.open(link, principal=principal)
        assert place.receive(link, frames.encode_attach("", native.VERSION)) == frames.ATTACH_OK
        assert isinstance(self.say(0, m.Hello()), m.Welcome)

    def say(self, channel: int, message: m.Message) -> Any:
        """Say something; the last that is said back."""
        data = self.place.receive(self.link, native.encode_message(channel, message))
        heard = [native.decode_message(frame) for frame in self.parser.feed(data) if frame.kind not in BYTES]
        return heard[-1] if heard else None

    def ask(self, verb: str, **arguments: object) -> Any:
        """Make a request; its answer."""
        return self.say(0, m.Request(1, verb, arguments))


class Room:
    """A node with what `owner` has made, and `mallory`, who may do all but what is taken from it."""

    def __init__(self) -> None:
        self.denied: tuple[str, str, str] | None = None
        self.place = Place(may=self._may)
        self.owner, self.mallory = Speaker(self.place, 1, "owner"), Speaker(self.place, 2, "mallory")
        self.owner.ask("stream.create", name="s")
        self.owner.ask("stream.create", name="parked")

    def _may(self, principal: str, verb: str, resource: Resource) -> bool:
        return principal != "mallory" or (verb, resource.kind, resource.name) != self.denied

    def take_owned(self) -> None:
        """Names that belong to the owner."""
        self.owner.say(1, m.AttachSource("s", "source", ID))
        self.owner.say(2, m.Subscribe("s", "subscriber", "main", incarnation=ID))
        self.owner.say(3, m.OpenRun("sink", ID))

    def take_own(self) -> None:
        """A run of mallory's own, with an open stage, number 1."""
        self.mallory.say(3, m.OpenRun("sink", OTHER_ID))
        self.mallory.say(4, m.OpenStage("sink", EPOCH, "s", OTHER_ID))

    def take_committed(self) -> None:
        """A run of mallory's own that has committed a stage."""
        self.take_own()
        assert isinstance(self.mallory.say(3, m.Commit(1, "sink", EPOCH, 1, (STAGE,))), m.Committed)

    def take_own_cursor(self) -> None:
        """A durable subscription of mallory's own, and a run with a stage."""
        self.take_own()
        self.mallory.say(2, m.Subscribe("s", "subscriber", "main", incarnation=OTHER_ID))

    def take_owned_cursor(self) -> None:
        """A durable subscription of the owner's, and a run of mallory's own with a stage."""
        self.take_own()
        self.owner.say(2, m.Subscribe("s", "subscriber", "main", incarnation=ID))

    def leave_owned(self) -> None:
        """Names that belong to the owner, who is gone."""
        self.take_owned()
        self.place.tell(LinkClosed(1))

    def commit_moving(self) -> Any:
        """Commit as a server of topics does that merges: over no wire, since no wire has it."""
        move = x.CursorMove(STAGE, "subscriber", "main", 1, 1, 0, 0)
        self.place.tell(x.CommitRequested(session_of(2, 3), 1, "mallory", "sink", EPOCH, 1, (STAGE,), (move,)))
        heard = [native.decode_message(frame) for frame in self.mallory.parser.feed(self.place.take(2))]
        return heard[-1]


def nothing(room: Room) -> None:
    """All is there already."""


class Scene(NamedTuple):
    """One line of the list: what is there before, what is taken from mallory, what it asks, and whether it got that."""

    denied: tuple[str, str]
    ask: Callable[[Room], Any]
    prepare: Callable[[Room], None] = nothing
    got: Callable[[Any], bool] = lambda said: not isinstance(said, m.Refusal)


def opening(message: m.Message) -> Callable[[Room], Any]:
    return lambda room: room.mallory.say(9, message)


def on_run(message: m.Message) -> Callable[[Room], Any]:
    return lambda room: room.mallory.say(3, message)


def request(verb: str, **arguments: object) -> Callable[[Room], Any]:
    return lambda room: room.mallory.ask(verb, **arguments)


def lists(name: str) -> Callable[[Any], bool]:
    """Whether this name is anywhere in a list that was answered."""
    return lambda said: f"'{name}'" in str(said.result)


ATTACH = opening(m.AttachSource("s", "source", OTHER_ID))
SUBSCRIBE = opening(m.Subscribe("s", "subscriber", "main", incarnation=OTHER_ID))
OPEN_RUN, OPEN_STAGE = opening(m.OpenRun("sink", OTHER_ID)), opening(m.OpenStage("sink", EPOCH, "s", OTHER_ID))
COMMIT, DROP = on_run(m.Commit(1, "sink", EPOCH, 1, (STAGE,))), on_run(m.DropStages(1, "sink", EPOCH, (STAGE,)))
REMOVE = request("subscription.remove", stream="s", subscriber="subscriber", name="main")
RENEW = request("subscription.renew", stream="s", subscriber="subscriber", name="main")
ADVANCE = request("subscription.advance", stream="s", subscriber="subscriber", name="main", floor=0)
ALTER = request("stream.alter", name="s", config={"retention_count": 5})
ITSELF = "the stream; else the answer is its name, and what the request has set"
S, K, NEW = (STREAM, "s"), (SINK, "sink"), (STREAM, "new")
OWNED, OWN, LEFT = Room.take_owned, Room.take_own, Room.leave_owned

SCENES: dict[tuple[str, str, str], Scene] = {
    ("ATTACH_SOURCE", "publish", "the stream, as this source"): Scene(S, ATTACH),
    ("ATTACH_SOURCE", "take-over", "the stream, as this source"): Scene(S, ATTACH, OWNED),
    ("ATTACH_SOURCE", "create", "the stream"): Scene(NEW, opening(m.AttachSource("new", "source", OTHER_ID))),
    ("SUBSCRIBE", "subscribe", "the stream, as this subscriber"): Scene(S, SUBSCRIBE),
    ("SUBSCRIBE", "take-over", "the stream, as this subscriber"): Scene(S, SUBSCRIBE, OWNED),
    ("SUBSCRIBE", "create", "the stream"): Scene(NEW, opening(m.Subscribe("new"))),
    ("SUBSCRIBE", "publish", "the stream `parked_to`"): Scene(
        (STREAM, "parked"),
        opening(m.Subscribe("s", "subscriber", "main", incarnation=ID, attempts_max=2, parked_to="parked")),
    ),
    ("OPEN_RUN", "publish", "the sink"): Scene(K, OPEN_RUN),
    ("OPEN_RUN", "take-over", "the sink"): Scene(K, OPEN_RUN, OWNED),
    ("OPEN_STAGE", "publish", "the sink"): Scene(K, OPEN_STAGE, OWN),
    ("OPEN_STAGE", "take-over", "the sink"): Scene(K, OPEN_STAGE, OWNED),
    ("OPEN_STAGE", "publish", "the stream"): Scene(S, OPEN_STAGE, OWN),
    ("OPEN_STAGE", "create", "the stream"): Scene(NEW, opening(m.OpenStage("sink", EPOCH, "new", ID)), OWN),
    ("COMMIT", "publish", "the sink"): Scene(K, COMMIT, OWN),
    ("COMMIT", "publish", "the stream of each stage"): Scene(S, COMMIT, OWN),
    ("COMMIT", "subscribe", "the stream, as this subscriber"): Scene(S, Room.commit_moving, Room.take_own_cursor),
    ("COMMIT", "take-over", "the stream, as this subscriber"): Scene(S, Room.commit_moving, Room.take_owned_cursor),
    ("DROP_STAGES", "publish", "the sink"): Scene(K, DROP, OWN),
    ("DROP_STAGES", "publish", "the stream of each stage"): Scene(S, DROP, OWN),
    ("stream.create", "create", "the stream"): Scene(NEW, request("stream.create", name="new")),
    ("stream.create", "alter", "the stream"): Scene(
        NEW, request("stream.create", name="new", config={"sources_max": 100_001})
    ),
    ("stream.create", "describe", ITSELF): Scene(S, request("stream.create", name="s"), got=lists("head")),
    ("stream.trim", "describe", ITSELF): Scene(S, request("stream.trim", name="s", floor=1), got=lists("head")),
    ("stream.alter", "describe", ITSELF): Scene(S, ALTER, got=lists("head")),
    ("stream.list", "describe", "each stream; the others are left out"): Scene(
        S, request("stream.list"), got=lists("s")
    ),
    ("stream.names", "describe", "each stream; the others are left out"): Scene(
        S, request("stream.names"), got=lists("s")
    ),
    ("stream.show", "describe", "the stream"): Scene(S, request("stream.show", name="s")),
    ("stream.trim", "trim", "the stream"): Scene(S, request("stream.trim", name="s", floor=1)),
    ("stream.delete", "delete", "the stream"): Scene(S, request("stream.delete", name="s")),
    ("source.list", "describe", "the stream"): Scene(S, request("source.list", stream="s")),
    ("source.raise", "raise", "the stream, as each source"): Scene(
        S, request("source.raise", stream="s", sources=[["victim", 5, b""]])
    ),
    ("source.raise", "take-over", "the stream, as each source"): Scene(
        S, request("source.raise", stream="s", sources=[["victim", 5, b""]], owners={"victim": "stranger"})
    ),
    ("subscription.list", "describe", "each stream; the others are left out"): Scene(
        S, request("subscription.list"), OWNED, lists("subscriber")
    ),
    ("subscription.list", "describe", "the stream"): Scene(S, request("subscription.list", stream="s")),
    ("subscription.left", "describe", "the stream"): Scene(S, request("subscription.left", stream="s", name="main")),
    ("subscription.show", "describe", "the stream"): Scene(
        S, request("subscription.show", stream="s", subscriber="subscriber", name="main"), OWNED
    ),
    ("subscription.renew", "subscribe", "the stream, as this subscriber"): Scene(S, RENEW, OWNED),
    ("subscription.renew", "take-over", "the stream, as this subscriber"): Scene(S, RENEW, OWNED),
    ("subscription.remove", "subscribe", "the stream, as this subscriber"): Scene(S, REMOVE, OWNED),
    ("subscription.remove", "take-over", "the stream, as this subscriber"): Scene(S, REMOVE, OWNED),
    ("sink.list", "describe", "each sink; the others are left out"): Scene(
        K, request("sink.list"), OWNED, lists("sink")
    ),
    ("sink.list", "describe", "each stream of its last commit; the others are left out"): Scene(
        S, request("sink.list"), Room.take_committed, got=lambda said: bool(said.result["rows"][0]["streams"])
    ),
    ("stream.alter", "alter", "the stream"): Scene(S, ALTER),
    ("subscription.advance", "subscribe", "the stream, as this subscriber"): Scene(S, ADVANCE, LEFT),
    ("subscription.advance", "take-over", "the stream, as this subscriber"): Scene(S, ADVANCE, LEFT),
    ("stage.list", "describe", "the sink and the stream of each stage; the others are left out"): Scene(
        K, request("stage.list"), OWN, lists("sink")
    ),
    ("stage.drop", "delete", "the sink"): Scene(K, request("stage.drop", sink="sink"), OWNED),
    ("stage.drop", "take-over", "the sink"): Scene(K, request("stage.drop", sink="sink"), OWNED),
    ("sink.remove", "delete", "the sink"): Scene(K, request("sink.remove", sink="sink"), OWNED),
    ("sink.remove", "take-over", "the sink"): Scene(K, request("sink.remove", sink="sink"), OWNED),
}
LINES = [(right.request, right.verb, right.on) for right in RIGHTS]
LISTS = ("stage.list", "stream.list", "stream.names", "subscription.list", "sink.list")
DESCRIBED = ("stream.create", "stream.trim", "stream.alter")


def played(key: tuple[str, str, str], is_denied: bool) -> tuple[bool, Any, Room]:
    """Whether mallory got what it asked for, what it heard, and the room."""
    scene, room = SCENES[key], Room()
    scene.prepare(room)
    if is_denied:
        room.denied = (key[1], *scene.denied)
    said = scene.ask(room)
    return scene.got(said), said, room


@pytest.mark.parametrize("key", LINES, ids=lambda key: f"{key[0]}, {key[1]} on {key[2]}")
def test_who_lacks_one_right_is_refused_and_who_has_it_is_not(key: tuple[str, str, str]) -> None:
    assert played(key, is_denied=False)[0]
    is_got, said, room = played(key, is_denied=True)
    assert not is_got
    if isinstance(said, m.Refusal):
        assert (said.code, said.details["verb"]) == ("forbidden", key[1])
        (noted,) = [note for note in room.place.notes if note.event == "forbidden"]
        assert (noted.fields["principal"], noted.fields["verb"]) == ("mallory", key[1])
    else:
        assert key[0] in (*LISTS, *DESCRIBED)


def test_who_creates_a_stream_that_is_there_and_may_not_describe_it_learns_nothing_of_it() -> None:
    room = Room()
    room.denied = ("describe", *S)
    same = room.mallory.ask("stream.create", name="s")
    room.denied = ("describe", *NEW)
    new = room.mallory.ask("stream.create", name="new")
    assert same.result == {**new.result, "name": "s"}
    room.denied = ("describe", *S)
    other = room.mallory.ask("stream.create", name="s", config={"retention_count": 5})
    assert other.code == "exists-otherwise"
    assert "retention_count" not in other.message


def test_every_line_of_the_list_has_a_scene() -> None:
    assert set(LINES) - set(SCENES) == set()
    assert {right.verb for right in RIGHTS} == set(VERBS)


def test_every_request_of_the_wire_is_in_the_list_or_is_said_to_ask_for_nothing() -> None:
    said = {Kind(kind).name for kind in channels._FRAMES} - {"REQUEST"} | set(administration._VERBS)
    asking = {right.request for right in RIGHTS}
    assert asking | set(UNASKED) == said
    assert asking.isdisjoint(UNASKED)


# ── each question, taken out ─────────────────────────────────────────────────────────────────────────────────────────


class Site(NamedTuple):
    """A place in the source where a right is asked for."""

    file: str
    first_line: int
    last_line: int
    asked_of: str

    def is_in(self, frame: Any) -> bool:
        """Whether this call is made there."""
        return bool(frame.f_code.co_filename == self.file and self.first_line <= frame.f_lineno <= self.last_line)


ASKING = ("check", "hold", "check_owner", "_check", "_may_describe", "may")


def sites() -> Iterator[Site]:
    """All questions that the source asks of `Rights`, or of `Administration` in front of it."""
    package = Path(rights.__file__).parent.parent
    for floor in ("streams", "node", "protocols"):
        for path in sorted((package / floor).rglob("*.py")):
            if path == Path(rights.__file__):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKING:
                    owner = ast.unparse(node.func.value)
                    if owner.endswith("rights") or (owner == "self" and path.name == "administration.py"):
                        assert node.end_lineno is not None
                        yield Site(str(path), node.lineno, node.end_lineno, node.func.attr)


def test_each_question_that_is_taken_out_of_the_source_lets_somebody_trespass(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(sites())
    assert len(found) >= 25
    unmissed = []
    for site in found:
        with monkeypatch.context() as patching:
            take_out(site, patching)
            if not any(played(key, is_denied=True)[0] for key in LINES):
                unmissed.append(site)
    assert unmissed == []


def take_out(site: Site, patching: pytest.MonkeyPatch) -> None:
    """Let the question at this place be answered with yes."""
    for kind in (Rights, Administration):
        there = kind.__dict__.get(site.asked_of)
        if callable(there):
            patching.setattr(kind, site.asked_of, _method(site, there))
    if site.asked_of == "may":
        patching.setattr(Administration, "_may_describe", lambda *_: True)


def _method(site: Site, there: Callable[..., Any]) -> Callable[..., Any]:
    def asked(self: Any, *arguments: Any, **options: Any) -> Any:
        return True if site.is_in(sys._getframe(1)) else there(self, *arguments, **options)

    return asked


def test_a_question_is_answered_with_no_by_a_refusal_that_is_noted() -> None:
    noted: list[Any] = []
    asking = Rights(lambda *_: False, noted.append)
    with pytest.raises(Refused, match="mallory may not publish on stream 's'"):
        asking.check(7, "mallory", "publish", Resource(STREAM, "s"))
    assert len(noted) == 1
