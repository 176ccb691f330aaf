"""Rules change while clients work: who may not go on ends, and everybody else goes on."""

import pytest

from veredus.kernel.errors import Refused
from veredus.sim.running import Outcome, run_seed
from veredus.streams.rights import Resource, Rights

SEED = 39
"""A world in which rules change."""


def outcome() -> Outcome:
    return run_seed(SEED)


def test_who_loses_a_right_and_gets_it_back_loses_nothing_and_nobody_else_notices() -> None:
    ended = outcome()
    assert ended.violation == ""
    assert "lawgiver" in ended.names
    assert ended.counts["laws"] > 1
    assert ended.counts["wards refused"] > 1


def test_sessions_that_go_on_though_the_rules_forbid_it_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rights, "lost", lambda _: ())
    assert outcome().violation.startswith("rights: sessions [")


def test_a_right_that_does_not_come_back_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    check, refused = Rights.check, dict[str, Refused]()

    def remember(self: Rights, session: int, principal: str, verb: str, resource: Resource, **others: bool) -> None:
        if principal in refused:
            raise refused[principal]
        try:
            check(self, session, principal, verb, resource, **others)
        except Refused as error:
            refused[principal] = error
            raise

    monkeypatch.setattr(Rights, "check", remember)
    assert outcome().violation.startswith("rights: a ward may do what it asks for")
