"""How a stream is kept can be changed: what is named, from now on, and for good."""

from typing import Any

import pytest

from tests.streams.rig import Rig
from veredus.streams import exchange as x


def ask(rig: Rig, verb: str, **arguments: Any) -> Any:
    (said,) = rig.do(x.AdminRequested(9, 1, "local", verb, arguments))
    return said


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    ask(rig, "stream.create", name="s", config={"retention_age_s": 60.0, "sources_max": 5})
    return rig


@pytest.mark.parametrize("end", ["go on", "kill", "checkpoint"])
def test_what_is_named_is_altered_and_the_rest_stays(rig: Rig, end: str) -> None:
    answer = ask(rig, "stream.alter", name="s", config={"retention_count": 7, "retention_age_s": 0.0})
    assert answer.result["config"]["retention_count"] == 7
    if end == "checkpoint":
        rig.checkpoint()
    if end != "go on":
        rig.restart()
    config = rig.floor.tables.streams["s"].config
    assert (config.retention_age_s, config.retention_count, config.sources_max) == (0.0, 7, 5)


def test_two_that_are_on_their_way_together_keep_what_both_name(rig: Rig) -> None:
    rig.tell(
        x.AdminRequested(9, 1, "local", "stream.alter", {"name": "s", "config": {"retention_count": 7}}),
        x.AdminRequested(9, 2, "local", "stream.alter", {"name": "s", "config": {"retention_size": 8}}),
    )
    rig.carry_out()
    config = rig.floor.tables.streams["s"].config
    assert (config.retention_count, config.retention_size) == (7, 8)


def test_what_the_journal_does_not_take_changes_nothing(rig: Rig) -> None:
    rig.is_full = True
    assert ask(rig, "stream.alter", name="s", config={"retention_count": 7}).code == "disk-full"
    rig.is_full = False
    ask(rig, "stream.alter", name="s", config={"retention_size": 8})
    config = rig.floor.tables.streams["s"].config
    assert (config.retention_count, config.retention_size) == (0, 8)


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({}, "bad-request"),
        (None, "bad-config"),
        ({"retention": 5}, "bad-config"),
        ({"retention_count": "many"}, "bad-config"),
        ({"retention_count": -1}, "bad-config"),
        ({"sources_max": 0}, "bad-config"),
    ],
)
def test_what_makes_no_sense_is_refused(rig: Rig, config: Any, code: str) -> None:
    assert ask(rig, "stream.alter", name="s", config=config).code == code


def test_a_limit_that_is_altered_counts_at_once(rig: Rig) -> None:
    ask(rig, "stream.alter", name="s", config={"sources_max": 1})
    rig.attach(1, "alpha")
    assert rig.attach(2, "beta", who=2).code == "too-many-sources"
    ask(rig, "stream.alter", name="s", config={"sources_max": 2})
    assert isinstance(rig.attach(3, "beta", who=3), x.GrantSource)
