"""What the sources of one principal may keep, over all streams."""

from __future__ import annotations

from typing import Any

import pytest

from tests.streams.rig import Rig, incarnation
from veredus.kernel.errors import Refused
from veredus.streams import exchange as x
from veredus.streams import shares
from veredus.streams.shares import Allowance
from veredus.streams.tables import StreamsLimits

ALLOWANCES = [value for value in vars(shares).values() if isinstance(value, Allowance)]
FEW = StreamsLimits(kept_sources_per_principal_max=3, tokens_size_per_principal_max=100)


def attach(rig: Rig, session: int, stream: str, source: str, principal: str = "ada") -> Any:
    return rig.do(x.SourceAttachRequested(session, principal, stream, source, incarnation(session)))[-1]


def ask(rig: Rig, verb: str, **arguments: Any) -> Any:
    return rig.do(x.AdminRequested(99, 1, "ada", verb, arguments))[-1]


def amounts(rig: Rig) -> dict[str, tuple[int, int]]:
    return rig.floor.tables.shares.amounts()


@pytest.mark.parametrize("allowance", ALLOWANCES, ids=lambda allowance: allowance.setting)
def test_who_wants_more_than_is_left_is_told_whose_limit_that_is_and_which_setting_raises_it(
    allowance: Allowance,
) -> None:
    assert isinstance(getattr(FEW, allowance.setting), int)
    allowance.check("ada", 3, 3, 10)
    with pytest.raises(Refused) as caught:
        allowance.check("ada", 4, 3, 10)
    said = caught.value.message
    assert (caught.value.code, caught.value.details) == (allowance.code, {allowance.field: 10})
    assert "ada" in said
    assert " 10 " in said
    assert said.endswith(f", or raise limits.{allowance.setting}")
    with pytest.raises(Refused, match="the group of all unauthenticated peers"):
        allowance.check("", 1, 0, 10)


@pytest.mark.parametrize("wanted", [0, -5])
def test_who_wants_nothing_is_refused_nothing_though_a_limit_was_lowered(wanted: int) -> None:
    for allowance in ALLOWANCES:
        allowance.check("ada", wanted, -3, 10)


def test_a_principal_owns_so_many_sources_in_all_streams_together_whether_or_not_they_are_attached() -> None:
    rig = Rig(limits=FEW)
    for number, stream in enumerate(("a", "b", "c"), 1):
        assert isinstance(attach(rig, number, stream, "one"), x.GrantSource)
        rig.do(x.SessionClosed(number))
    refused = attach(rig, 4, "d", "one")
    assert (refused.code, refused.details["sources_max"]) == ("too-many-sources", 3)
    assert "kept_sources_per_principal_max" in refused.message
    assert isinstance(attach(rig, 5, "a", "one"), x.GrantSource)
    assert isinstance(attach(rig, 6, "d", "two", "bob"), x.GrantSource)
    rig.check()


def test_unauthenticated_peers_own_so_many_together() -> None:
    rig = Rig(limits=FEW)
    granted = [attach(rig, n, "a", f"s{n}", who) for n, who in enumerate(("local", "anonymous", "", "local"), 1)]
    assert [isinstance(said, x.GrantSource) for said in granted] == [True, True, True, False]


def test_a_deleted_stream_gives_its_sources_back() -> None:
    rig = Rig(limits=FEW)
    for number in range(1, 4):
        rig.publish(attach(rig, number, "a", f"s{number}"), 1, token=b"t", who=f"s{number}")
    assert amounts(rig) == {"ada": (3, 3)}
    ask(rig, "stream.delete", name="a")
    assert amounts(rig) == {}
    assert isinstance(attach(rig, 4, "b", "s1"), x.GrantSource)
    rig.check()


def test_what_becomes_of_a_source_after_its_stream_was_deleted_counts_for_nobody() -> None:
    rig = Rig(limits=FEW)
    rig.publish(attach(rig, 1, "a", "one"), 1, token=b"t", who="one")
    source = rig.floor.tables.streams["a"].sources["one"]
    ask(rig, "stream.delete", name="a")
    source.own("bob")
    source.keep_token(2, b"longer")
    assert amounts(rig) == {}
    source.own("ada")
    source.leave()
    assert amounts(rig) == {}


def test_a_source_that_another_principal_takes_over_is_in_that_ones_share() -> None:
    rig = Rig(limits=FEW)
    rig.publish(attach(rig, 1, "a", "one"), 1, token=bytes(60), who="one")
    for number in range(2, 5):
        attach(rig, number, "b", f"s{number}", "bob")
    refused = attach(rig, 5, "a", "one", "bob")
    assert refused.code == "too-many-sources"
    assert amounts(rig) == {"ada": (1, 60), "bob": (3, 0)}
    attach(rig, 6, "a", "one", "eve")
    assert amounts(rig) == {"eve": (1, 60), "bob": (3, 0)}
    rig.check()


def test_the_tokens_of_a_principals_sources_have_so_many_bytes_together() -> None:
    rig = Rig(limits=FEW)
    one, two = attach(rig, 1, "a", "one"), attach(rig, 2, "b", "two")
    assert isinstance(rig.publish(one, 1, token=bytes(60), who="one"), x.ConfirmTaken)
    refused = rig.publish(two, 1, token=bytes(41), who="two")
    assert (type(refused), refused.code) == (x.RefuseBatch, "tokens-too-large")
    assert isinstance(rig.publish(two, 1, token=bytes(40), who="two"), x.ConfirmTaken)
    assert isinstance(rig.publish(two, 2, token=bytes(40), who="two"), x.ConfirmTaken)
    assert isinstance(rig.publish(one, 2, token=bytes(1), who="one"), x.ConfirmTaken)
    assert amounts(rig) == {"ada": (2, 41)}
    rig.check()


def test_a_token_that_no_publication_carries_counts_as_well() -> None:
    rig = Rig(limits=FEW)
    grant = attach(rig, 1, "a", "one")
    rig.publish(grant, 1, who="one")
    refused = rig.do(x.TokenStoreRequested(1, 7, 1, bytes(101)))[-1]
    assert (type(refused), refused.code) == (x.Refuse, "tokens-too-large")
    assert isinstance(rig.do(x.TokenStoreRequested(1, 8, 1, bytes(100)))[-1], x.AnswerAdmin)
    assert amounts(rig) == {"ada": (1, 100)}


@pytest.mark.parametrize(
    ("sources", "owners", "code"),
    [
        ([(f"s{n}", 1, b"") for n in range(4)], {}, "too-many-sources"),
        ([(f"s{n}", 1, b"") for n in range(4)], {f"s{n}": "bob" for n in range(4)}, "too-many-sources"),
        ([("s1", 1, bytes(60)), ("s2", 1, bytes(60))], {}, "tokens-too-large"),
        ([("one", 1, b"")], {"one": "bob"}, "too-many-sources"),
    ],
)
def test_sources_that_are_raised_count_for_their_owners_and_nothing_changes_where_that_is_too_much(
    sources: list[tuple[str, int, bytes]], owners: dict[str, str], code: str
) -> None:
    rig = Rig(limits=FEW)
    ask(rig, "stream.create", name="a")
    ask(rig, "stream.create", name="b")
    ask(rig, "source.raise", stream="a", sources=[("one", 1, b"")])
    for number in range(3):
        attach(rig, number + 1, "b", f"b{number}", "bob")
    before = amounts(rig)
    refused = ask(rig, "source.raise", stream="a", sources=sources, owners=owners)
    assert (type(refused), refused.code) == (x.Refuse, code)
    assert amounts(rig) == before
    rig.check()


def test_a_node_that_starts_again_knows_who_keeps_what() -> None:
    rig = Rig(limits=FEW)
    rig.publish(attach(rig, 1, "a", "one"), 1, token=bytes(60), who="one")
    rig.checkpoint()
    rig.publish(attach(rig, 2, "a", "two"), 1, token=bytes(10), who="two")
    before = amounts(rig)
    rig.restart()
    assert amounts(rig) == before == {"ada": (2, 70)}
    rig.check()


def test_a_source_that_the_journal_could_not_take_is_in_nobodys_share() -> None:
    rig = Rig(limits=FEW)
    ask(rig, "stream.create", name="a")
    rig.is_full = True
    refused = attach(rig, 1, "a", "one")
    assert isinstance(refused, x.Refuse)
    assert amounts(rig) == {}
    rig.check()


def test_a_source_that_the_journal_could_not_raise_is_in_nobodys_share() -> None:
    rig = Rig(limits=FEW)
    ask(rig, "stream.create", name="a")
    rig.is_full = True
    refused = ask(rig, "source.raise", stream="a", sources=[("one", 1, bytes(10))], owners={"one": "bob"})
    assert refused.code == "disk-full"
    assert amounts(rig) == {}
    rig.check()


def test_the_token_that_a_raised_source_had_makes_room_for_the_new_one() -> None:
    rig = Rig(limits=FEW)
    ask(rig, "stream.create", name="a")
    for number in (1, 2):
        said = ask(rig, "source.raise", stream="a", sources=[("one", number, bytes(80))])
        assert isinstance(said, x.AnswerAdmin)
    assert amounts(rig) == {"": (1, 80)}
