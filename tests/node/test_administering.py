"""What may change something is noted with how it ended, and refused where it could not be recorded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from veredus.node.administering import Administering, is_changing
from veredus.node.exchange import RecordWritten
from veredus.protocols.links import session_of
from veredus.streams.administration import _VERBS
from veredus.streams.exchange import AdminRequested, AnswerAdmin, Refuse

SESSION = session_of(7, 0)


def asked(verb: str = "stream.delete", **arguments: Any) -> AdminRequested:
    return AdminRequested(SESSION, 3, "operator", verb, arguments)


def test_every_verb_changes_something_or_is_known_to_change_nothing() -> None:
    reading = {verb for verb in _VERBS if not is_changing(verb)}
    assert reading == {verb for verb in _VERBS if verb.endswith((".list", ".show", ".names", ".left"))}


def test_a_change_is_noted_with_its_outcome_once() -> None:
    administering = Administering()
    assert administering.refusal(asked(name="s", config={"sources_max": 3})) is None
    (note,) = administering.note_answer(AnswerAdmin(SESSION, 3, {}))
    assert note.event == "administered"
    assert note.fields == {
        "session": SESSION,
        "principal": "operator",
        "verb": "stream.delete",
        "arguments": {"name": "s", "config": {"sources_max": 3}},
        "outcome": "done",
    }
    assert administering.note_answer(AnswerAdmin(SESSION, 3, {})) == []


def test_a_refused_change_is_noted_with_its_code() -> None:
    administering = Administering()
    administering.refusal(asked())
    (note,) = administering.note_answer(Refuse(SESSION, "unknown-stream", "there is none", {}, 3, is_final=False))
    assert (note.event, note.fields["code"]) == ("administration-refused", "unknown-stream")


def test_a_renewal_that_finds_no_subscription_is_not_noted_as_refused() -> None:
    for code in ("unknown-subscription", "unknown-stream"):
        administering = Administering()
        administering.refusal(asked("subscription.renew"))
        assert administering.note_answer(Refuse(SESSION, code, "there is none", {}, 3, is_final=False)) == []
    administering.refusal(asked("subscription.renew"))
    (note,) = administering.note_answer(Refuse(SESSION, "forbidden", "you may not", {}, 3, is_final=False))
    assert note.event == "administration-refused"


def test_a_client_of_topics_that_leaves_a_topic_twice_is_not_noted_as_refused() -> None:
    for code in ("unknown-subscription", "unknown-stream"):
        administering = Administering()
        administering.refusal(asked("subscription.remove", wish=3))
        assert administering.note_answer(Refuse(SESSION, code, "there is none", {}, 3, is_final=False)) == []
    administering.refusal(asked("subscription.remove"))
    (note,) = administering.note_answer(Refuse(SESSION, "unknown-subscription", "there is none", {}, 3, is_final=False))
    assert note.event == "administration-refused"


def test_who_only_looks_is_not_noted() -> None:
    administering = Administering()
    administering.why_not = lambda: "full"
    assert administering.refusal(asked("stream.list")) is None
    assert administering.note_answer(AnswerAdmin(SESSION, 3, [])) == []


def test_a_change_whose_link_is_lost_is_noted_as_asked() -> None:
    administering = Administering()
    administering.refusal(asked())
    assert administering.note_lost(8) == []
    (note,) = administering.note_lost(7)
    assert (note.event, note.fields["outcome"]) == ("administered", "asked")
    assert administering.note_lost(7) == []


def test_a_change_that_cannot_be_recorded_is_refused_and_that_is_noted() -> None:
    administering = Administering()
    administering.why_not = lambda: "No space left on device"
    refusal = administering.refusal(asked())
    assert refusal is not None
    assert (refusal.code, refusal.request, refusal.is_final) == ("not-audited", 3, False)
    (note,) = administering.note_answer(refusal)
    assert note.event == "administration-refused"


def test_an_answer_is_held_until_its_record_is_written() -> None:
    administering, answer = Administering(), AnswerAdmin(SESSION, 3, {})
    first, second = administering.hold(answer), administering.hold(Refuse(SESSION, "unknown-stream", "none", {}, 4))
    assert administering.release(RecordWritten(first.token)) is answer
    refused = administering.release(RecordWritten(second.token, "No space left on device"))
    assert isinstance(refused, Refuse)
    assert refused.code == "unknown-stream", "nothing was changed"


def test_who_changed_something_that_has_no_record_is_told_so() -> None:
    administering = Administering()
    held = administering.hold(AnswerAdmin(SESSION, 3, {}))
    said = administering.release(RecordWritten(held.token, "No space left on device"))
    assert isinstance(said, Refuse)
    assert (said.code, said.session, said.request, said.is_final) == ("not-recorded", SESSION, 3, False)
    assert "No space left on device" in said.message


def recorded(**arguments: Any) -> dict[str, Any]:
    administering = Administering()
    administering.refusal(asked(**arguments))
    (note,) = administering.note_answer(Refuse(SESSION, "forbidden", "you may not", {}, 3, is_final=False))
    shown = note.fields["arguments"]
    assert isinstance(shown, dict)
    return shown


def wide(depth: int) -> object:
    return {f"{place:02}" + "x" * 300: wide(depth - 1) for place in range(16)} if depth else "y" * 300


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = {"x": value}
    return value


@pytest.mark.parametrize("value", [wide(3), [wide(2)], {("a", 7): b"b"}, nested(5000), "\0" * 100_000])
def test_a_record_of_a_request_is_short_whatever_its_peer_has_asked_for(value: object) -> None:
    shown = recorded(name="s", **{f"argument-{place:02}": value for place in range(15)})
    assert shown["name"] == "s"
    assert len(msgspec.json.encode(shown)) < 4096


def test_a_record_says_how_much_it_leaves_out() -> None:
    assert recorded(**wide(1))["..."].endswith(" more")
    assert recorded(config={"a": {"b": 1}, "c": [1, 2], "d": b"123"})["config"] == {
        "a": "1 entries",
        "c": "2 entries",
        "d": "3 bytes",
    }
