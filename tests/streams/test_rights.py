"""Every request asks for its right before it says anything about what it names; what is refused is said in one way."""

from typing import Any

import pytest

from tests.streams.rig import Rig, incarnation
from tests.streams.sinking import RUN, open_run, staged
from veredus.kernel.errors import Refused
from veredus.streams import exchange as x
from veredus.streams.facts import StreamConfig
from veredus.streams.rights import Resource, Rights, on_sink, on_stream
from veredus.streams.tables import StreamsLimits

STRANGER = 9


class Rules:
    """Everybody may do all, but what is taken from `mallory`."""

    def __init__(self) -> None:
        self.denied: set[tuple[str, str, str]] = set()
        self.is_denied_all = False

    def __call__(self, principal: str, verb: str, resource: Resource) -> bool:
        if principal != "mallory":
            return True
        return not self.is_denied_all and (verb, resource.kind, resource.name) not in self.denied


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def rig(rules: Rules) -> Rig:
    """A node where `local` has a run of sink `sink` and two stages of three and two rows for stream `s`."""
    rig = Rig(may=rules)
    staged(rig, open_run(rig).epoch, 3, 2)
    return rig


def said_to_a_stranger(rig: Rig, event: Any) -> Any:
    """The one thing that a stranger hears."""
    (said,) = rig.do(event)
    return said


def stages_of(rig: Rig) -> tuple[int, ...]:
    return tuple(rig.floor.tables.stages)


def test_a_stranger_neither_commits_nor_drops_what_another_has_staged(rig: Rig, rules: Rules) -> None:
    rules.denied.add(("publish", "sink", "sink"))
    stages = stages_of(rig)
    dead = (1 << 63) - 1
    for event in (
        x.CommitRequested(STRANGER, 1, "mallory", "sink", 1, dead, stages),
        x.StagesDropRequested(STRANGER, 1, "mallory", "sink", 1, stages),
    ):
        said = said_to_a_stranger(rig, event)
        assert (type(said), said.code) == (x.Refuse, "forbidden")
    assert stages_of(rig) == stages
    assert said_to_a_stranger(rig, x.CommitRequested(RUN, 1, "local", "sink", 1, 7, stages)).commit_id == 7


def test_a_channel_commits_and_drops_stages_of_the_run_that_it_opened_and_of_no_other(rig: Rig) -> None:
    rig.do(x.RunOpenRequested(STRANGER, "mallory", "mine", incarnation(9)))
    stages = stages_of(rig)
    for event in (
        x.CommitRequested(STRANGER, 1, "mallory", "sink", 1, 7, stages),
        x.StagesDropRequested(STRANGER, 1, "mallory", "sink", 1, stages),
        x.CommitRequested(STRANGER, 1, "mallory", "mine", 2, 7, stages),
    ):
        said = said_to_a_stranger(rig, event)
        assert (type(said), said.code, said.is_final) == (x.Refuse, "unknown-run", False)
    assert stages_of(rig) == stages


def test_a_run_is_committed_by_nobody_once_its_channel_is_closed(rig: Rig) -> None:
    rig.do(x.SessionClosed(RUN))
    (said,) = rig.do(x.CommitRequested(RUN, 1, "local", "sink", 1, 7, stages_of(rig)))
    assert said.code == "unknown-run"


def test_a_commit_asks_for_the_stream_of_each_stage(rig: Rig, rules: Rules) -> None:
    """Rights may have been taken since the stage was opened."""
    rig.do(x.RunOpenRequested(STRANGER, "mallory", "mine", incarnation(9)))
    rig.do(x.StageOpenRequested(10, "mallory", "mine", 1, "t", incarnation(10)))
    (granted,) = rig.said_to(10, x.GrantStage)
    rules.denied.add(("publish", "stream", "t"))
    for event in (
        x.CommitRequested(STRANGER, 1, "mallory", "mine", 1, 7, (granted.stage,)),
        x.StagesDropRequested(STRANGER, 1, "mallory", "mine", 1, (granted.stage,)),
    ):
        assert said_to_a_stranger(rig, event).code == "forbidden"
    assert granted.stage in stages_of(rig)


def test_a_stage_asks_for_its_sink_too(rig: Rig, rules: Rules) -> None:
    rules.denied.add(("publish", "sink", "sink"))
    said = said_to_a_stranger(rig, x.StageOpenRequested(STRANGER, "mallory", "sink", 1, "s", incarnation(9)))
    assert (said.code, said.details["kind"], said.details["name"]) == ("forbidden", "sink", "sink")


@pytest.mark.parametrize(
    ("there", "elsewhere"),
    [
        (
            x.CommitRequested(STRANGER, 1, "mallory", "sink", 1, 7, (1,)),
            x.CommitRequested(STRANGER, 1, "mallory", "none", 5, 7, (999,)),
        ),
        (
            x.StagesDropRequested(STRANGER, 1, "mallory", "sink", 1, (1,)),
            x.StagesDropRequested(STRANGER, 1, "mallory", "none", 5, (999,)),
        ),
        (
            x.RunOpenRequested(STRANGER, "mallory", "sink", incarnation(1), 1),
            x.RunOpenRequested(STRANGER, "mallory", "none", incarnation(1), 5),
        ),
        (
            x.StageOpenRequested(STRANGER, "mallory", "sink", 1, "s", incarnation(60)),
            x.StageOpenRequested(STRANGER, "mallory", "none", 5, "none", incarnation(60)),
        ),
        (
            x.AdminRequested(STRANGER, 1, "mallory", "subscription.list", {"stream": "s"}),
            x.AdminRequested(STRANGER, 1, "mallory", "subscription.list", {"stream": "none"}),
        ),
        (
            x.AdminRequested(STRANGER, 1, "mallory", "stream.trim", {"name": "s", "floor": 2}),
            x.AdminRequested(STRANGER, 1, "mallory", "stream.trim", {"name": "none", "floor": 2}),
        ),
        (
            x.AdminRequested(STRANGER, 1, "mallory", "sink.remove", {"sink": "sink"}),
            x.AdminRequested(STRANGER, 1, "mallory", "sink.remove", {"sink": "none"}),
        ),
    ],
)
def test_a_refusal_says_the_same_whether_or_not_what_it_names_exists(
    rig: Rig, rules: Rules, there: Any, elsewhere: Any
) -> None:
    rules.is_denied_all = True
    heard = [said_to_a_stranger(rig, event) for event in (there, elsewhere)]
    said, other = ((one.code, one.message.replace("'none'", "'sink'")) for one in heard)
    assert said[0] == "forbidden"
    assert said[1].replace("'s'", "'sink'") == other[1].replace("'s'", "'sink'")
    assert [one.is_final for one in heard] == [heard[0].is_final] * 2


def test_who_is_refused_is_noted_with_what_was_asked(rig: Rig, rules: Rules) -> None:
    rules.is_denied_all = True
    rig.do(x.CommitRequested(STRANGER, 1, "mallory", "sink", 1, 7, (1,)))
    said = {"principal": "mallory", "verb": "publish", "kind": "sink", "name": "sink", "session": STRANGER}
    assert [(note.event, note.fields) for note in rig.notes] == [("forbidden", said)]


# ── lists: all or nothing ────────────────────────────────────────────────────────────────────────────────────────────


def raised(rig: Rig, *sources: tuple[str, int, bytes], principal: str = "local") -> Any:
    event = x.AdminRequested(STRANGER, 1, principal, "source.raise", {"stream": "s", "sources": list(sources)})
    return said_to_a_stranger(rig, event)


@pytest.mark.parametrize("bad", ["bad name", "", "é"])
def test_a_list_of_sources_with_a_bad_name_raises_none_of_them(rig: Rig, bad: str) -> None:
    raised(rig, ("victim", 3, b""))
    said = raised(rig, ("victim", 10**15, b""), ("fresh", 5, b""), (bad, 1, b""))
    assert said.code == "bad-name"
    stream = rig.floor.tables.streams["s"]
    assert list(stream.sources) == ["victim"]
    assert stream.sources["victim"].last_assigned == 3
    (victim,) = rig.do(x.SourceAttachRequested(20, "local", "s", "victim", incarnation(20), is_sparse=True))
    assert victim.last_number == 3
    rig.publish(victim, 4, who="victim")
    assert stream.sources["victim"].last_durable == 4


def test_a_list_of_more_sources_than_the_stream_may_know_raises_none_of_them(rules: Rules) -> None:
    rig = Rig(may=rules, limits=StreamsLimits(config=StreamConfig(sources_max=2)))
    rig.attach(1)
    said = raised(rig, ("one", 5, b""), ("two", 5, b""))
    assert said.code == "too-many-sources"
    assert list(rig.floor.tables.streams["s"].sources) == ["alpha"]
    assert isinstance(raised(rig, ("one", 5, b"")), x.AnswerAdmin)


def test_sources_are_raised_by_a_right_of_its_own_alone(rig: Rig, rules: Rules) -> None:
    rules.denied.add(("raise", "stream", "s"))
    assert raised(rig, ("victim", 10**15, b""), principal="mallory").code == "forbidden"
    assert list(rig.floor.tables.streams["s"].sources) == []


def test_who_may_describe_a_sink_sees_of_its_commit_the_streams_that_it_may_describe(rig: Rig, rules: Rules) -> None:
    rig.do(x.CommitRequested(RUN, 1, "local", "sink", 1, 7, stages_of(rig)))
    asked = x.AdminRequested(STRANGER, 1, "mallory", "sink.list", {})
    assert said_to_a_stranger(rig, asked).result[0]["streams"] == [("s", 1, 5)]
    rules.denied.add(("describe", "stream", "s"))
    assert said_to_a_stranger(rig, asked).result[0]["streams"] == []
    rules.denied.add(("describe", "sink", "sink"))
    assert said_to_a_stranger(rig, asked).result == []


def test_a_resource_says_what_it_is() -> None:
    assert str(on_stream("s", source="a")) == "stream 's' as source 'a'"
    assert str(on_stream("s", source="")) == "stream 's' without a source"
    assert str(on_stream("s", subscriber="b")) == "stream 's' as subscriber 'b'"
    assert str(on_sink("k")) == "sink 'k'"


@pytest.mark.parametrize("taken", [("publish", "stream", "parked"), ("subscribe", "stream", "s")])
def test_a_subscription_ends_with_each_right_that_it_was_granted_for(
    rig: Rig, rules: Rules, taken: tuple[str, str, str]
) -> None:
    rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": "parked"}))
    rig.do(
        x.SubscribeRequested(
            STRANGER, "mallory", "s", "mallory", "main", incarnation=incarnation(9), attempts_max=2, parked_to="parked"
        )
    )
    rules.denied.add(taken)
    rig.follow(rig.floor.renew_rights(rig.now))
    (refused,) = rig.said_to(STRANGER, x.Refuse)
    assert (refused.code, refused.is_final) == ("forbidden", True)


def test_a_rule_that_limits_subscribers_limits_no_look_at_subscriptions_alone_or_in_a_list() -> None:
    def may(principal: str, verb: str, resource: Resource) -> bool:
        return principal != "mallory" or resource.subscriber in (None, "mallory")

    rig = Rig(may=may)
    rig.attach(1)
    rig.subscribe(5, "reader")
    listed = said_to_a_stranger(rig, x.AdminRequested(STRANGER, 1, "mallory", "subscription.list", {"stream": "s"}))
    named = {"stream": "s", "subscriber": listed.result[0]["subscriber"], "name": listed.result[0]["name"]}
    shown = said_to_a_stranger(rig, x.AdminRequested(STRANGER, 2, "mallory", "subscription.show", named))
    assert shown.result["floor"] == listed.result[0]["floor"]
    refused = said_to_a_stranger(rig, x.AdminRequested(STRANGER, 3, "mallory", "subscription.remove", named))
    assert refused.code == "forbidden"


def test_who_would_not_be_let_in_as_any_source_is_not_told_of_sources() -> None:
    only_named = Rights(lambda _, __, resource: resource.source != "" and resource.name == "s", lambda _: None)
    with pytest.raises(Refused, match=r"^mallory may not publish on stream 's' without a source: the rules in the"):
        only_named.check(1, "mallory", "publish", on_stream("s", source=""))
    with pytest.raises(
        Refused, match=r"^mallory may not publish on stream 'other': the rules in the \[security\] section"
    ):
        only_named.check(1, "mallory", "publish", on_stream("other", source=""))
