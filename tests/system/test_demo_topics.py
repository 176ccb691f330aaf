"""The audit of the demo of topics says what is wrong where something is; and a small run of the demo agrees with it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests.processes import ended

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "topics"
SUBSCRIPTIONS = {"alice": ["EWR.UA"], "bob": ["EWR.UA", "JFK.B6"]}
FLIGHTS = {"EWR.UA": [0, 1, 3, 4], "JFK.B6": [2, 5]}
INCARNATIONS = {"EWR.UA": "00000000000000aa", "JFK.B6": "00000000000000bb"}


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """The demo's modules, by name; they lie in no package."""
    sys.path.insert(0, str(DEMO))
    try:
        names = ("accounts", "checker", "cluster", "scene", "strikes")
        return SimpleNamespace(**{name: importlib.import_module(name) for name in names})  # type: ignore[return-value]
    finally:
        sys.path.remove(str(DEMO))


class Case(NamedTuple):
    """A run in which all went well, until something is planted."""

    demo: Any
    accounts: dict[str, list[Any]]
    rows: dict[str, list[Any]]

    def judged(self, *shared: str) -> list[Any]:
        checker, accounts = self.demo.checker, self.accounts
        return [
            checker.judge_puts(accounts, {topic: {i: digest(i) for i in places} for topic, places in FLIGHTS.items()}),
            checker.judge_gets(accounts, SUBSCRIPTIONS, set(shared)),
            checker.judge_streams(self.rows, accounts, SUBSCRIPTIONS, set(shared)),
        ]

    def tallies(self, *shared: str) -> list[tuple[int, int, int, int]]:
        """Lost, doubled, out of order and wrong, by all three opinions."""
        found = [opinion.tally for opinion in self.judged(*shared)]
        return [(one.lost, one.doubled, one.out_of_order, one.wrong) for one in found]


CLEAN = (0, 0, 0, 0)


def digest(index: int) -> str:
    return f"{index:016x}"


@pytest.fixture
def case(demo: Any) -> Case:
    """Flights 0 to 5, of which alice puts the even ones; got by both as they lie there, bob in two lives."""
    line, row = demo.accounts.Line, demo.cluster.Row
    rows = {
        topic: [
            row("server-1", f"{INCARNATIONS[topic]}-{place}", "bob" if i % 2 else "alice", i + 1, i, digest(i))
            for place, i in enumerate(indexes, 1)
        ]
        for topic, indexes in FLIGHTS.items()
    }
    accounts: dict[str, list[Any]] = {}
    for client, topics in SUBSCRIPTIONS.items():
        lines = [line("life"), *(line("subscribed", topic) for topic in topics)]
        lines += [line("put", t, "", r.index, r.digest) for t, held in rows.items() for r in held if r.client == client]
        lines += [line("got", t, r.message_id, r.index, r.digest) for t in topics for r in rows[t]]
        accounts[client] = lines
    accounts["bob"].insert(-2, line("life"))
    return Case(demo, accounts, rows)


def places_of(case: Case, client: str, kind: str, topic: str) -> list[int]:
    return [at for at, one in enumerate(case.accounts[client]) if (one.kind, one.topic) == (kind, topic)]


def test_a_run_in_which_all_went_well_is_clean(case: Case) -> None:
    opinions = case.judged()
    assert [(opinion.tally.rows, opinion.expected) for opinion in opinions] == [(6, 6), (10, 10), (6, 6)]
    assert all(opinion.is_clean and not opinion.faults for opinion in opinions)


def test_a_flight_that_a_client_was_never_given_is_lost_by_both_roads(case: Case) -> None:
    del case.accounts["alice"][places_of(case, "alice", "got", "EWR.UA")[1]]
    assert case.tallies() == [CLEAN, (1, 0, 0, 0), (1, 0, 0, 0)]
    puts, gets, streams = case.judged()
    assert gets.faults == ["lost: alice on EWR.UA was never given flight 1"]
    assert streams.faults == ["lost: alice was never given 00000000000000aa-2 of EWR.UA"]
    assert [puts.is_clean, gets.is_clean, streams.is_clean] == [True, False, False]


def test_a_flight_that_a_client_was_given_twice_is_doubled(case: Case) -> None:
    at = places_of(case, "bob", "got", "EWR.UA")[-1]
    again = case.accounts["bob"][at]._replace(message_id="00000000000000aa-9")
    case.accounts["bob"].insert(at + 1, again)
    _, gets, streams = case.judged()
    assert (gets.tally.doubled, gets.faults) == (1, ["doubled: bob on EWR.UA was given flight 4 2 times"])
    assert streams.faults == ["wrong: bob was given 00000000000000aa-9 of EWR.UA, which is not there"]


def test_the_same_id_in_one_life_is_doubled_and_behind_a_kill_is_told_apart(case: Case) -> None:
    first, second = places_of(case, "bob", "got", "JFK.B6")
    life = case.accounts["bob"].index(case.demo.accounts.Line("life"), 1)
    assert life < first
    # What came last before the kill is what may come again.
    got, killed = case.accounts["bob"][first], case.accounts["bob"][life]
    case.accounts["bob"][life:second] = [got, killed, got]
    opinion = case.judged()[1]
    assert opinion.is_clean
    assert opinion.beside[case.demo.checker.AGAIN] == 1
    at = places_of(case, "bob", "got", "JFK.B6")[-1]
    case.accounts["bob"].insert(at, case.accounts["bob"][at])
    assert case.judged()[1].tally.doubled == 1


def test_a_put_that_no_server_has_is_lost_and_one_that_two_have_is_doubled(case: Case) -> None:
    case.rows["JFK.B6"].pop()
    assert case.judged()[2].tally.lost == 1
    assert case.judged()[2].tally.wrong == 1, "and bob was given something that is not there"
    case.rows["EWR.UA"].append(case.rows["EWR.UA"][0]._replace(server="server-2"))
    streams = case.judged("EWR.UA", "JFK.B6")[2]
    assert (streams.tally.lost, streams.tally.doubled) == (1, 1)
    assert "wrong: EWR.UA is at server-1, server-2" in streams.faults


def test_a_put_that_was_never_told_or_told_twice_is_said(case: Case) -> None:
    alice = case.accounts["alice"]
    at = places_of(case, "alice", "put", "EWR.UA")[0]
    alice.insert(at, alice[at])
    assert case.tallies()[0] == (0, 1, 0, 0)
    del alice[at : at + 2]
    puts, gets, streams = case.judged()
    assert puts.faults == ["lost: flight 0 of EWR.UA was never told to be taken"]
    assert gets.tally.wrong == 2, "both were given what nobody says to have put"
    assert streams.tally.wrong == 1


def test_another_body_than_that_which_was_put_is_wrong(case: Case) -> None:
    at = places_of(case, "alice", "got", "EWR.UA")[0]
    case.accounts["alice"][at] = case.accounts["alice"][at]._replace(digest="f" * 16)
    assert case.tallies() == [CLEAN, (0, 0, 0, 1), CLEAN]
    case.rows["JFK.B6"][0] = case.rows["JFK.B6"][0]._replace(digest="f" * 16)
    assert case.judged()[2].tally.wrong == 1


def test_order_is_demanded_of_one_server_and_counted_where_there_were_several(case: Case) -> None:
    at, *_, last = places_of(case, "alice", "got", "EWR.UA")
    alice = case.accounts["alice"]
    # Flight 0 behind flight 4, of the same putter and the same server.
    alice.insert(last, alice.pop(at))
    assert case.tallies() == [CLEAN, (0, 0, 2, 0), (0, 0, 1, 0)]
    gets = case.judged("EWR.UA")[1]
    assert gets.is_clean
    assert gets.beside[case.demo.checker.SHARED_OUT_OF_ORDER] == 1


def test_puts_that_lie_in_another_order_than_they_were_put_are_out_of_order(case: Case) -> None:
    held = case.rows["EWR.UA"]
    held[0], held[3] = held[3], held[0]
    assert case.judged("EWR.UA")[2].tally.out_of_order == 1
    held[3] = held[3]._replace(was_moved=True)
    assert case.judged("EWR.UA")[2].tally.out_of_order == 0, "what came from another server lies behind"


def test_what_was_written_down_is_read_again(demo: Any, tmp_path: Path) -> None:
    accounts = demo.accounts
    body = accounts.body_of(7, "2013,1,1,517")
    for _ in range(2):
        account = accounts.Account(tmp_path / "alice")
        account.write("subscribed", "EWR.UA")
        account.write("put", "EWR.UA", accounts.index_of(body), accounts.digest_of(body))
        account.write("got", "EWR.UA", "00000000000000aa-1", 7, accounts.digest_of(body))
        account.write("failed", "get", "no-proxy")
        account.close()
    lines = accounts.read_account(tmp_path / "alice")
    assert lines[:5] == lines[5:]
    assert [line.kind for line in lines[:5]] == ["life", "subscribed", "put", "got", "failed"]
    assert lines[3] == accounts.Line("got", "EWR.UA", "00000000000000aa-1", 7, accounts.digest_of(body))
    assert demo.checker.failures_in({"alice": lines}) == {"get no-proxy": 2}
    (tmp_path / "alice").write_text("got EWR.UA\n")
    with pytest.raises(ValueError, match="no line of an account"):
        accounts.read_account(tmp_path / "alice")


def test_a_seed_says_who_is_struck_when_and_who_gets_what(demo: Any) -> None:
    cast = {"server": ["s1", "s2", "s3"], "proxy": ["p1", "p2"], "clients": ["c1", "c2"]}
    plan: Callable[[int], Any] = lambda seed: demo.strikes.plan_strikes(seed, 60.0, cast)  # noqa: E731
    assert plan(7) == plan(7) != plan(8)
    for seed in range(50):
        busy: dict[str, float] = {}
        for strike in plan(seed):
            for victim in filter(None, (strike.victim, strike.proxy)):
                assert busy.get(victim, 0.0) <= strike.at_seconds, "nobody is struck twice at once"
                busy[victim] = strike.at_seconds + strike.lasts_seconds
        acts = demo.strikes.acts_of(plan(seed))
        assert sum(act.what == "kill" for act in acts) == sum(act.what == "start" for act in acts)
        assert sum(act.what == "stop" for act in acts) == sum(act.what == "cont" for act in acts)
    topics = [f"topic-{number}" for number in range(32)]
    dealt = demo.scene.deal(7, topics, 50, 3)
    assert dealt == demo.scene.deal(7, topics, 50, 3) != demo.scene.deal(8, topics, 50, 3)
    assert all(len(set(hand)) == 3 for hand in dealt.values())
    assert {topic for hand in dealt.values() for topic in hand} == set(topics)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_small_run_agrees_and_leaves_no_process_behind(tmp_path: Path) -> None:
    size = ("--seconds", "6", "--flights", "300", "--clients", "12", "--workers", "3")
    arguments = [sys.executable, str(DEMO / "run.py"), "--seed", "1", "--directory", str(tmp_path / "run"), *size]
    ran = ended(arguments, life_s=150, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.rstrip().endswith("all agree")
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path) in _read(path)]
    assert left == []


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
