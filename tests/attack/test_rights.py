"""Whoever may little tries all that others have: their sinks, stages, sources and cursors stay as they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

import veredus
from tests.attack.by_hand import Peer
from tests.attack.figures import Figures
from tests.attack.neighbour import resident_size
from tests.processes import free_port
from tests.system.serving import ServedNode
from veredus.protocols.zeps import messages as m
from veredus.runtime.security import add_token

ID = b"0123456789abcdef"
FOR_EVER = (1 << 63) - 1
SINKS_MAX = 40
RULES = """
[limits]
sinks_max = 60
sinks_per_principal_max = {sinks}

[security]
tokens = "{tokens}"

[[security.rules]]
principal = "owner"
may = ["*"]

[[security.rules]]
principal = "mallory"
may = ["publish", "create", "describe", "subscribe"]
streams = ["s", "mallory.>"]
sinks = ["mallory/*"]
sources = ["mallory*"]
subscribers = ["mallory*"]

[[security.rules]]
principal = "flood"
may = ["publish"]

[[security.rules]]
principal = "*"
may = ["subscribe", "describe"]
"""


class Guarded(ServedNode):
    """A node with rules, the tokens of its principals, and what `owner` has there."""

    def __init__(self, directory: Path) -> None:
        tokens = directory / "tokens"
        self.tokens = {who: add_token(tokens, who)[0] for who in ("owner", "mallory", "flood")}
        settings = directory / "veredus.toml"
        settings.write_text(RULES.format(tokens=tokens, sinks=SINKS_MAX))
        self.topics = f"127.0.0.1:{free_port()}"
        super().__init__(directory / "journal", {"SETTINGS": str(settings), "TOPICS_LISTEN": self.topics})
        self.spawn()
        self.owner = veredus.connect(self.address, token=self.tokens["owner"], timeout_s=20, refused_s=20)
        self.owner.streams.create("s")

    def peer(self, who: str) -> Peer:
        return Peer(self.port, self.tokens[who])

    def bodies(self) -> list[bytes]:
        """What stands in stream `s`."""
        head: Any = self.owner.streams.show("s")["head"]
        with self.owner.subscribe("s", start=veredus.beginning(), until=head + 1) as subscription:
            return [publication.body for publication in subscription]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    node = Guarded(tmp_path_factory.mktemp("guarded"))
    yield node
    node.owner.close()
    node.kill()


def refused(said: Any) -> str:
    """The code with which something was refused."""
    assert isinstance(said, m.Refusal | m.BatchRefused), said
    return said.code


def test_the_stages_of_another_are_neither_committed_nor_dropped(guarded: Guarded, figures: Figures) -> None:
    with guarded.owner.sink("orders").open_run() as run:
        stage = run.stage("s")
        stage.publish("k", b"the owner's")
        stage.flush()
        tried = 0
        with guarded.peer("mallory") as mallory:
            opened = mallory.say(1, m.OpenRun("mallory/own", ID))
            assert isinstance(opened, m.RunOpened)
            for sink in ("orders", "mallory/own", "nobody's"):
                for epoch in range(1, 4):
                    if (sink, epoch) == ("mallory/own", opened.epoch):
                        continue
                    for message in (
                        m.Commit(1, sink, epoch, FOR_EVER, (stage.stage,)),
                        m.DropStages(1, sink, epoch, tuple(range(1, 50))),
                    ):
                        said = mallory.say(1, message)
                        assert refused(said) == ("unknown-run" if sink == "mallory/own" else "forbidden")
                        assert run.epoch not in said.details.values()
                        tried += 1
            assert (
                refused(mallory.say(1, m.Commit(1, "mallory/own", opened.epoch, 1, (stage.stage,)))) == "unknown-stage"
            )
            dropped = mallory.say(1, m.DropStages(1, "mallory/own", opened.epoch, tuple(range(1, 50))))
            assert dropped.result == {"dropped": []}
        assert run.commit(7, [stage.stage]).commit_id == 7
        stage.close()
    assert guarded.bodies() == [b"the owner's"]
    figures.attack("COMMIT and DROP_STAGES of another's stages", f"{tried}").record("granted", 0, bound="none")


def test_no_rows_are_staged_by_the_sink_of_another(guarded: Guarded, figures: Figures) -> None:
    with guarded.owner.sink("ledger").open_run() as run, guarded.peer("mallory") as mallory:
        for channel, (sink, stream) in enumerate((("ledger", "s"), ("ledger", "mallory.own"), ("nobody's", "s")), 1):
            said = mallory.say(channel, m.OpenStage(sink, run.epoch, stream, ID))
            assert (refused(said), said.details["kind"]) == ("forbidden", "sink")
        assert isinstance(mallory.say(9, m.OpenRun("mallory/stages", ID)), m.RunOpened)
        said = mallory.say(10, m.OpenStage("mallory/stages", 1, "shut", ID))
        assert (refused(said), said.details["name"]) == ("forbidden", "shut")
    figures.attack("OPEN_STAGE by another's sink, or for a shut stream", "4").record("granted", 0, bound="none")


def test_no_source_is_raised_and_no_name_is_taken_over(guarded: Guarded, figures: Figures) -> None:
    with guarded.owner.publisher("s", source="mallory-named") as publisher:
        publisher.publish("k", b"first")
        publisher.flush()
        with guarded.peer("mallory") as mallory:
            raising = [["mallory-named", 10**15, b""], ["bad name", 1, b""]]
            assert refused(mallory.ask("source.raise", stream="s", sources=raising)) == "forbidden"
            assert refused(mallory.ask("source.raise", stream="s", sources=raising[:1])) == "forbidden"
            said = mallory.say(1, m.AttachSource("s", "mallory-named", ID))
            assert (refused(said), said.details["verb"]) == ("forbidden", "take-over")
        with guarded.peer("owner") as owner:
            assert refused(owner.ask("source.raise", stream="s", sources=raising)) == "bad-name"
        publisher.publish("k", b"second")
        publisher.flush()
    assert guarded.bodies()[-2:] == [b"first", b"second"]
    attack = figures.attack("source.raise of another's source, or with a bad name in the list", "5")
    attack.record("raised", 0, bound="none")


TOPIC_QUESTIONS = (
    b"PUT eve s 1\r\n\r\nbody",
    b"SUBSCRIBE eve s\r\n\r\n",
    b"GET eve s -1\r\n\r\n",
    b"UNSUBSCRIBE eve s\r\n\r\n",
)


def test_clients_of_topics_that_prove_nothing_are_not_let_in(guarded: Guarded, figures: Figures) -> None:
    """A rule for `*` lets everybody subscribe who has proved who that is."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as asking:
        asking.linger = 0
        with asking.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED) as monitor:
            asking.connect(f"tcp://{guarded.topics}")
            for question in TOPIC_QUESTIONS:
                asking.send_multipart([b"", question])
            assert monitor.poll(20_000), "still connected"
            assert not asking.poll(100)
            asking.disable_monitor()
    attack = figures.attack("topics: requests of who has proved nothing", f"{len(TOPIC_QUESTIONS)}")
    attack.record("answered", 0, bound="none")


def test_a_client_of_topics_puts_nothing_by_an_id_that_its_rules_do_not_give_it(
    guarded: Guarded, figures: Figures
) -> None:
    before = guarded.bodies()
    with zmq.Context() as context, context.socket(zmq.REQ) as asking:
        asking.linger = 0
        asking.plain_password = guarded.tokens["mallory"].encode()
        asking.connect(f"tcp://{guarded.topics}")
        asking.send(TOPIC_QUESTIONS[0])
        assert asking.poll(20_000), "no answer"
        answer = asking.recv()
    assert b" REFUSED" in answer.partition(b"\r\n")[0], answer
    assert b"mallory may not" in answer
    assert guarded.bodies() == before
    figures.attack("topics: PUT by an id of others", "1").record("granted", 0, bound="none")


def test_a_flood_of_sinks_ends_at_its_bound_and_leaves_room_for_others(
    guarded: Guarded, figures: Figures, is_full: bool
) -> None:
    count = 40_000 if is_full else 400
    codes: dict[str, int] = {}
    assert guarded.process is not None
    before = resident_size(guarded.process.pid)
    with guarded.peer("flood") as flood:
        for number in range(count):
            said = flood.say(1 + codes.get("", 0), m.OpenRun(f"flood/{number}", ID))
            code = "" if isinstance(said, m.RunOpened) else refused(said)
            codes[code] = codes.get(code, 0) + 1
    assert codes == {"": SINKS_MAX, "too-many-sinks": count - SINKS_MAX}
    with guarded.owner.sink("after-the-flood").open_run() as run:
        assert run.epoch
    grown = (resident_size(guarded.process.pid) - before) / 2**20
    attack = figures.attack("sinks of one principal", f"{count:,}")
    attack.record("made", SINKS_MAX, bound=f"{SINKS_MAX}, sinks_per_principal_max")
    attack.record("growth", grown, "MiB")
