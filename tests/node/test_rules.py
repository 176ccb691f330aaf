"""The first rule that covers a question decides it; what none covers is denied."""

import fnmatch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.errors import Refused
from veredus.node.rules import EVERYTHING_ALLOWED, Access, CompiledRule, Rule
from veredus.streams.rights import ANONYMOUS, LOCAL, MULTICAST, NOBODY, VERBS, Resource, on_sink, on_stream

RULES = (
    Rule(principal="desk-*", may=("publish", "describe"), streams=("trades.>", "quotes.*")),
    Rule(principal="risk", may=("subscribe",)),
    Rule(principal="operator", may=("*",), streams=(">",)),
)


@pytest.mark.parametrize(
    ("principal", "verb", "stream", "allowed"),
    [
        ("desk-1", "publish", "trades.eu", True),
        ("desk-1", "publish", "trades.eu.small", True),
        ("desk-1", "publish", "trades", False),
        ("desk-1", "publish", "quotes.eu", True),
        ("desk-1", "publish", "quotes.eu.small", False),
        ("desk-1", "subscribe", "trades.eu", False),
        ("desk", "publish", "trades.eu", False),
        ("risk", "subscribe", "anything.at.all", True),
        ("risk", "publish", "anything.at.all", False),
        ("operator", "delete", "trades.eu", True),
        ("stranger", "describe", "trades.eu", False),
    ],
)
def test_a_rule_covers_its_principals_verbs_and_streams_alone(
    principal: str, verb: str, stream: str, allowed: bool
) -> None:
    assert Access(RULES).may(principal, verb, on_stream(stream)) is allowed


def test_nobody_is_covered_by_no_rule_at_all() -> None:
    access = Access(EVERYTHING_ALLOWED)
    assert all(access.may("somebody", verb, on_stream("trades")) for verb in VERBS)
    assert not any(access.may(NOBODY, verb, on_stream("trades")) for verb in VERBS)


def test_without_rules_nothing_is_allowed_to_anybody() -> None:
    assert not any(Access(()).may("operator", verb, on_stream("trades")) for verb in VERBS)


def test_answers_stay_right_when_more_principals_ask_than_are_remembered() -> None:
    access = Access(RULES)
    assert all(access.may(f"desk-{index}", "publish", on_stream("trades.eu")) for index in range(3000))
    assert not any(access.may(f"disk-{index}", "publish", on_stream("trades.eu")) for index in range(3000))


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (Rule(principal="x", may=("reed",)), "reed"),
        (Rule(principal="x", deny=("reed",)), "reed"),
        (Rule(principal="x", may=("publish",), streams=("tr>des",)), "tr>des"),
        (Rule(principal="x", may=("publish",), streams=("trades.>.eu",)), "is allowed only at the end"),
        (Rule(principal="x", may=("publish",), sinks=("a b",)), "a b"),
        (Rule(principal="x", may=("publish",), sources=("",)), "pattern ''"),
        (Rule(principal="x", may=("publish",), subscribers=()), "name"),
        (Rule(principal="", may=("publish",)), "principal"),
        (Rule(principal="x", may=()), "verb"),
        (Rule(principal="x", may=("publish",), streams=()), "name"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_by_name(rule: Rule, named: str) -> None:
    with pytest.raises(Refused, match=named) as caught:
        CompiledRule(rule)
    assert caught.value.code == "bad-rule"


@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", min_size=1, max_size=10))
def test_a_star_in_a_principal_is_any_run_of_characters(pattern: str, principal: str) -> None:
    rule = CompiledRule(Rule(principal=pattern, may=("publish",)))
    assert rule.covers_principal(principal) is fnmatch.fnmatchcase(principal, pattern)


@pytest.mark.parametrize("who", [LOCAL, ANONYMOUS, MULTICAST])
def test_a_star_covers_nobody_who_has_proved_nothing(who: str) -> None:
    for covering in ("*", f"{who[:3]}*"):
        assert not Access([Rule(principal=covering, may=("*",))]).may(who, "publish", on_stream("trades"))
    assert Access([Rule(principal=who, may=("*",))]).may(who, "publish", on_stream("trades"))


def test_the_first_rule_that_covers_decides_whether_it_allows_or_denies() -> None:
    access = Access(
        (
            Rule(principal="desk-7", deny=("*",)),
            Rule(principal="desk-*", may=("publish",), streams=("trades.eu",)),
            Rule(principal="desk-*", deny=("publish",), streams=("trades.*",)),
            Rule(principal="*", may=("publish", "describe")),
        )
    )
    assert access.may("desk-1", "publish", on_stream("trades.eu"))
    assert not access.may("desk-1", "publish", on_stream("trades.us"))
    assert access.may("desk-1", "describe", on_stream("trades.us"))
    assert access.may("risk", "publish", on_stream("trades.us"))
    assert not access.may("desk-7", "describe", on_stream("trades.eu"))


def test_within_a_rule_what_it_denies_is_denied_whatever_it_allows() -> None:
    access = Access([Rule(principal="operator", may=("*",), deny=("delete",))])
    assert access.may("operator", "trim", on_stream("trades"))
    assert not access.may("operator", "delete", on_stream("trades"))


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("spark/*", ["spark/0b6e"], ["spark", "spark/a/b", "spark-batch/a"]),
        ("spark-batch/*", ["spark-batch/5d3c-11"], ["spark-batch", "spark/5d3c-11"]),
        ("trades.*.eu", ["trades.a.eu"], ["trades.a.b.eu", "trades.a/b.eu", "trades..us"]),
        ("desk-*", ["desk-1", "desk-"], ["desk", "desk-1.a", "desk-1/a"]),
        ("*-eu-*", ["a-eu-b", "-eu-"], ["a-eu", "eu-b"]),
        ("trades.>", ["trades.a", "trades.a/b.c"], ["trades", "trade.a"]),
        ("trades/>", ["trades/a.b"], ["trades.a"]),
        (">", ["a", "a.b/c"], []),
        ("a+b=c@d:e", ["a+b=c@d:e"], ["aab=c@d:e"]),
    ],
)
def test_names_of_all_kinds_are_matched_by_one_kind_of_pattern(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    rules = {
        "stream": Rule(principal="x", may=("publish",), streams=(pattern,)),
        "sink": Rule(principal="x", may=("publish",), sinks=(pattern,)),
        "source": Rule(principal="x", may=("publish",), sources=(pattern,)),
        "subscriber": Rule(principal="x", may=("publish",), subscribers=(pattern,)),
    }
    resources = {
        "stream": on_stream,
        "sink": on_sink,
        "source": lambda name: on_stream("s", source=name),
        "subscriber": lambda name: on_stream("s", subscriber=name),
    }
    for kind, rule in rules.items():
        access = Access([rule])
        assert [name for name in [*matching, *others] if access.may("x", "publish", resources[kind](name))] == matching


def test_a_rule_that_names_streams_covers_no_sinks_and_the_reverse() -> None:
    streams, sinks = (
        Access([Rule(principal="x", may=("*",), streams=(">",))]),
        Access([Rule(principal="x", may=("*",), sinks=(">",))]),
    )
    assert (streams.may("x", "delete", on_stream("a")), streams.may("x", "delete", on_sink("a"))) == (True, False)
    assert (sinks.may("x", "delete", on_stream("a")), sinks.may("x", "delete", on_sink("a"))) == (False, True)
    both = Access([Rule(principal="x", may=("*",))])
    assert both.may("x", "delete", on_stream("a"))
    assert both.may("x", "delete", on_sink("a"))


def test_sources_and_subscribers_limit_what_names_one_and_nothing_else() -> None:
    access = Access([Rule(principal="x", may=("*",), streams=("s",), sources=("mine",), subscribers=("me",))])
    asked = {
        on_stream("s", source="mine"): True,
        on_stream("s", source="other"): False,
        on_stream("s", source=""): False,
        on_stream("s", subscriber="me"): True,
        on_stream("s", subscriber="other"): False,
        on_stream("s", subscriber=""): False,
        on_stream("s"): True,
        on_stream("t", source="mine"): False,
    }
    assert {resource: access.may("x", "publish", resource) for resource in asked} == asked


@pytest.mark.parametrize(("pattern", "is_covered"), [("*", True), (">", True), ("b*", False), ("b.>", False)])
def test_who_names_no_source_is_covered_where_a_pattern_matches_the_empty_name(pattern: str, is_covered: bool) -> None:
    access = Access([Rule(principal="x", may=("publish",), sources=(pattern,))])
    assert access.may("x", "publish", on_stream("s", source="")) is is_covered


@given(st.text("ab./*", min_size=1, max_size=8), st.text("ab./", min_size=1, max_size=10))
def test_a_star_in_a_name_is_any_run_of_characters_within_a_token(pattern: str, name: str) -> None:
    access = Access([Rule(principal="x", may=("publish",), streams=(pattern,))])
    tokens, names = pattern.replace("/", ".|.").split("."), name.replace("/", ".|.").split(".")
    expected = len(tokens) == len(names) and all(map(fnmatch.fnmatchcase, names, tokens))
    assert access.may("x", "publish", Resource("stream", name)) is expected


WORDS = st.sampled_from(["a", "b", "*", "a*"])
PATTERNS = st.one_of(
    st.just(">"), st.lists(WORDS, min_size=1, max_size=2).map(".".join), WORDS.map(lambda word: f"{word}.>")
)
SOME = st.lists(PATTERNS, min_size=1, max_size=3).map(tuple)
RULE = st.builds(
    Rule,
    principal=st.sampled_from(["p", "*", "q"]),
    may=st.just(("publish",)),
    deny=st.sampled_from([(), ("publish",)]),
    streams=st.one_of(st.none(), SOME),
    sinks=st.one_of(st.none(), SOME),
    sources=st.one_of(st.none(), st.none(), SOME),
)
NAMES = st.lists(st.sampled_from(["a", "b", "aa"]), min_size=1, max_size=3).map(".".join)


@given(st.lists(RULE, max_size=6), NAMES, st.one_of(st.none(), NAMES), st.booleans())
def test_rules_that_are_checked_together_decide_as_each_does_by_itself(
    rules: list[Rule], name: str, source: str | None, is_sink: bool
) -> None:
    asked = on_sink(name) if is_sink else on_stream(name, source)
    alone = [(rule, Access([msgspec.structs.replace(rule, may=("publish",), deny=())])) for rule in rules]
    covering = [rule for rule, access in alone if access.may("p", "publish", asked)]
    expected = bool(covering) and not covering[0].deny
    assert Access(rules).may("p", "publish", asked) is expected


def test_more_patterns_than_one_expression_takes_are_all_asked() -> None:
    access = Access(Rule(principal="*", may=("publish",), streams=(f"team-{n}.*.sub*",)) for n in range(500))
    assert all(access.may("p", "publish", on_stream(f"team-{n}.x.sub1")) for n in range(500))
    assert not any(access.may("p", "publish", on_stream(f"team-{n}.x.other")) for n in range(0, 600, 10))
