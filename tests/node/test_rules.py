"""The first rule that covers a question allows it; what none covers is denied."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.errors import Refused
from veredus.node.rules import EVERYTHING_ALLOWED, NOBODY, VERBS, Access, CompiledRule, Rule

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
    assert Access(RULES).may(principal, verb, stream) is allowed


def test_nobody_is_covered_by_no_rule_at_all() -> None:
    access = Access(EVERYTHING_ALLOWED)
    assert all(access.may("somebody", verb, "trades") for verb in VERBS)
    assert not any(access.may(NOBODY, verb, "trades") for verb in VERBS)


def test_without_rules_nothing_is_allowed_to_anybody() -> None:
    assert not any(Access(()).may("operator", verb, "trades") for verb in VERBS)


def test_answers_stay_right_when_more_principals_ask_than_are_remembered() -> None:
    access = Access(RULES)
    assert all(access.may(f"desk-{index}", "publish", "trades.eu") for index in range(3000))
    assert not any(access.may(f"disk-{index}", "publish", "trades.eu") for index in range(3000))


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (Rule(principal="x", may=("reed",)), "reed"),
        (Rule(principal="x", may=("publish",), streams=("tr*des",)), r"tr\*des"),
        (Rule(principal="", may=("publish",)), "principal"),
        (Rule(principal="x", may=()), "verb"),
        (Rule(principal="x", may=("publish",), streams=()), "stream"),
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
