"""Resume tokens that no publication carries."""

from typing import Any

import pytest

from tests.streams.rig import Rig, incarnation
from veredus.journal.exchange import AppendRequested, fact_entry
from veredus.streams import exchange as x
from veredus.streams.facts import TokenStored, encode_fact
from veredus.streams.tables import StreamsLimits


def store(rig: Rig, session: int, number: int, token: bytes, request: int = 1) -> Any:
    """Ask for it, and carry it out; the answer."""
    return rig.do(x.TokenStoreRequested(session, request, number, token))[-1]


def resumed(rig: Rig, who: int = 1) -> tuple[bytes, int, int]:
    """The token that comes back when the source attaches again, its number, and the source's last number."""
    grant = rig.attach(99, who=who)
    return grant.token, grant.token_number, grant.last_number


@pytest.mark.parametrize("kept_by", ["memory", "records", "checkpoint"])
def test_a_token_is_stored_with_nothing_published_since_the_last_one(kept_by: str) -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 3, token=b"line 3")
    assert store(rig, 1, 3, b"line 9") == x.AnswerAdmin(1, 1, {})
    assert store(rig, 1, 3, b"line 12", request=2) == x.AnswerAdmin(1, 2, {})
    if kept_by == "checkpoint":
        rig.checkpoint()
    if kept_by != "memory":
        rig.restart()
    assert resumed(rig) == (b"line 12", 3, 3)


def test_a_source_that_has_published_nothing_at_all_stores_its_place() -> None:
    rig = Rig()
    rig.attach(1)
    assert store(rig, 1, 0, b"line 9") == x.AnswerAdmin(1, 1, {})
    rig.restart()
    assert resumed(rig) == (b"line 9", 0, 0)


def test_a_token_is_confirmed_by_nobody_before_it_is_in_the_journal() -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 3, token=b"line 3")
    rig.said.clear()
    rig.tell(x.TokenStoreRequested(1, 1, 3, b"line 9"))
    assert rig.said == []
    rig.restart()
    assert resumed(rig) == (b"line 3", 3, 3)


@pytest.mark.parametrize("is_attached_anew", [False, True])
def test_whose_session_ended_meanwhile_is_told_nothing_and_the_token_stays(is_attached_anew: bool) -> None:
    rig = Rig()
    rig.attach(1)
    rig.tell(x.TokenStoreRequested(1, 1, 0, b"line 9"))
    rig.tell(x.SessionClosed(1))
    if is_attached_anew:
        rig.attach(1, who=2)
    rig.carry_out()
    assert not [said for said in rig.said if isinstance(said, x.AnswerAdmin)]
    assert resumed(rig, who=3) == (b"line 9", 0, 0)


def test_a_source_that_publishes_again_from_its_token_stores_a_place_before_its_last_number() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 3, token=b"line 3")
    rig.publish(grant, 4, 2)
    assert store(rig, 1, 3, b"line 9") == x.AnswerAdmin(1, 1, {})
    assert resumed(rig) == (b"line 9", 3, 5)


def test_a_token_that_speaks_further_stays() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 3)
    rig.publish(grant, 4, 2, token=b"line 5")
    assert store(rig, 1, 3, b"line 3") == x.AnswerAdmin(1, 1, {})
    assert resumed(rig) == (b"line 5", 5, 5)
    rig.restart()
    assert resumed(rig) == (b"line 5", 5, 5)


def test_who_was_taken_over_from_is_fenced_and_stores_nothing() -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 3, token=b"line 3")
    rig.attach(2, who=2)
    assert len(rig.said_to(1, x.Fence)) == 1
    answer = store(rig, 1, 3, b"a zombie's")
    assert (type(answer), answer.code) == (x.Refuse, "not-attached")
    assert resumed(rig, who=2) == (b"line 3", 3, 3)


def test_what_a_link_that_was_given_up_still_brings_takes_no_newer_token_away() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.attach(2, epoch=grant.epoch)
    assert store(rig, 2, 0, b"newer") == x.AnswerAdmin(2, 1, {})
    answer = store(rig, 1, 0, b"older")
    assert (type(answer), answer.code) == (x.Refuse, "not-attached")
    assert resumed(rig) == (b"newer", 0, 0)


def test_a_token_that_is_on_its_way_is_told_to_whoever_takes_over() -> None:
    rig = Rig()
    rig.attach(1)
    rig.tell(x.TokenStoreRequested(1, 1, 0, b"line 9"))
    rig.tell(x.SourceAttachRequested(2, "local", "s", "alpha", incarnation(2)))
    rig.carry_out()
    (grant,) = rig.said_to(2, x.GrantSource)
    assert grant.token == b"line 9"


@pytest.mark.parametrize(
    ("source", "number", "token", "code"),
    [
        ("alpha", 3, b"t", "bad-request"),
        ("alpha", 2, b"x" * 9, "too-large"),
        ("", 0, b"t", "no-source"),
    ],
)
def test_a_token_that_cannot_be_stored_is_refused_and_the_source_goes_on(
    source: str, number: int, token: bytes, code: str
) -> None:
    rig = Rig(StreamsLimits(token_size_max=8))
    grant = rig.attach(1, source)
    rig.publish(grant, 1, 2)
    answer = store(rig, 1, number, token)
    assert (type(answer), answer.code, answer.request, answer.is_final) == (x.Refuse, code, 1, False)
    assert isinstance(rig.publish(grant, 3), x.ConfirmTaken)


def test_a_publication_that_is_still_on_its_way_cannot_be_spoken_of() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.offer(grant, 1, 2)
    rig.tell(x.TokenStoreRequested(1, 1, 2, b"t"))
    assert [refusal.code for refusal in rig.said_to(1, x.Refuse)] == ["bad-request"]


def test_a_session_that_is_no_source_is_refused() -> None:
    answer = store(Rig(), 7, 0, b"t")
    assert (answer.code, answer.is_final) == ("not-attached", True)


def test_a_journal_that_takes_nothing_keeps_the_token_of_before() -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 3, token=b"line 3")
    rig.is_full = True
    answer = store(rig, 1, 3, b"line 9")
    assert (answer.code, answer.request, answer.is_final) == ("disk-full", 1, False)
    rig.is_full = False
    assert resumed(rig) == (b"line 3", 3, 3)


def test_a_token_does_not_speak_of_publications_that_damage_took() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 3, token=b"line 3")
    fact = TokenStored(grant.stream_id, grant.source_id, 5, b"line 9")
    rig.order([AppendRequested(999, (fact_entry(encode_fact(fact), 1),))])
    rig.kill_behind_the_disk()
    assert resumed(rig) == (b"line 3", 3, 3)
