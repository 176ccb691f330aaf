"""Whole runs, short ones: real processes fail in every way, and the audit finds nothing lost and nothing doubled."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from veredus.chaos.campaign import Judge, Judged, run_and_judge
from veredus.chaos.layout import Layout
from veredus.chaos.plan import FAULTS, PAGES, TOPICS, decoded, draw, faults_of

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(400), pytest.mark.xdist_group("chaos")]
SECONDS = 8


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge("local[2]") as made:
        yield made


def lived_through(tmp_path: Path, judge: Judge, seed: int, faults: str) -> Judged:
    plan = draw(seed, SECONDS, faults_of(faults))
    judged = run_and_judge(plan, tmp_path / "run", judge, lambda _: None)
    assert decoded(Layout(tmp_path / "run").plan.read_bytes()) == plan
    assert judged.broken == []
    assert judged.unproved == []
    summary = judged.summary()
    assert summary["verdict"] == "holds"
    assert [summary[name] for name in ("lost", "doubled", "out_of_order", "wrong", "stuck")] == [0, 0, 0, 0, 0]
    assert judged.outcome.publication_count > 500
    assert set(judged.outcome.strikes) <= set(FAULTS)
    return judged


def test_nothing_is_lost_or_doubled_where_processes_are_killed_stopped_and_outlived(
    tmp_path: Path, judge: Judge
) -> None:
    judged = lived_through(tmp_path, judge, 1, "kill,pause,zombie,clock")
    assert judged.outcome.life_count > len(judged.outcome.plan.members) + 1
    _a_publication_that_is_taken_out_of_the_journal_is_found(tmp_path, judge, judged)


def test_clients_of_the_page_get_what_was_confirmed_over_tcp_and_zeromq(tmp_path: Path, judge: Judge) -> None:
    plan = draw(4, SECONDS, faults_of("kill,pause,full"), 1, 1, 0, 4)
    assert {member.door for member in plan.members if member.role in PAGES} == {"zeromq", "tcp"}
    judged = run_and_judge(plan, tmp_path / "run", judge, lambda _: None)
    assert (judged.broken, judged.unproved, judged.summary()["verdict"]) == ([], [], "holds")
    evidence = Layout(tmp_path / "run").evidence
    taken = _rows(evidence / "acknowledged")
    assert sum(row["last_number"] - row["first_number"] + 1 for row in taken if row["source"][:5] == "page-") > 100


def test_clients_of_the_topics_page_get_each_acknowledged_put_once_and_in_order_over_a_killed_proxy_and_node(
    tmp_path: Path, judge: Judge
) -> None:
    plan = draw(25, SECONDS, faults_of("kill,pause,proxy"), 1, 1, 0, 0, 4)
    topical = {member.name for member in plan.members if member.role in TOPICS}
    assert {"proxy", "tcp"} == {member.door for member in plan.members if member.name in topical}
    assert {strike.on for strike in plan.strikes if strike.fault == "kill"} == {"node", "topics-proxy", "topics-2"}
    judged = run_and_judge(plan, tmp_path / "run", judge, lambda _: None)
    assert (judged.broken, judged.unproved, judged.summary()["verdict"]) == ([], [], "holds")
    evidence = Layout(tmp_path / "run").evidence
    put = {(row["source"], row["first_number"]) for row in _rows(evidence / "acknowledged") if row["source"] in topical}
    got = [(row["source"], row["number"]) for row in _rows(evidence / "pushed") if row["subscription"] in topical]
    assert len(put) > 50
    assert set(got) >= put
    journal = _rows(evidence / "journal")
    # Not the first of its stream: a journal that begins behind it could be one that was trimmed, which loses nothing.
    taken_out = sorted(put)[len(put) // 2]
    (place,) = [place for place, row in enumerate(journal) if (row["source"], row["number"]) == taken_out]
    spoiled = _spoiled(tmp_path, judge, judged, lambda rows: _without(rows, place))
    assert spoiled["lost"]


def _rows(directory: Path) -> list[dict[str, Any]]:
    return [row for file in directory.glob("*.parquet") for row in pq.read_table(file).to_pylist()]


def _a_publication_that_is_taken_out_of_the_journal_is_found(tmp_path: Path, judge: Judge, judged: Judged) -> None:
    summary = _spoiled(tmp_path, judge, judged, lambda rows: _without(rows, 100))
    assert summary["lost"]
    assert summary["doubled"]


def _without(rows: pa.Table, place: int) -> list[pa.Table]:
    """As many rows, with another one twice in its place: what is short of rows proves nothing."""
    return [rows.slice(0, place), rows.slice(place + 1, 1), rows.slice(place + 1)]


def _spoiled(
    tmp_path: Path, judge: Judge, judged: Judged, parts: Callable[[pa.Table], list[pa.Table]]
) -> dict[str, Any]:
    """The summary of the run, had the journal these parts of what it has."""
    layout = Layout(tmp_path / "spoiled")
    shutil.copytree(tmp_path / "run" / "evidence", layout.evidence)
    (file,) = (layout.evidence / "journal").glob("*.parquet")
    rows = pq.read_table(file)
    pq.write_table(pa.concat_tables(parts(rows)), file)
    summary = Judged(judged.outcome, judge.judge(judged.outcome.plan, layout, lambda _: None)).summary()
    assert summary["verdict"] == "broken"
    return summary


def test_nothing_is_lost_or_doubled_where_connections_fail_and_the_disk_is_full(tmp_path: Path, judge: Judge) -> None:
    lived_through(tmp_path, judge, 2, "proxy,full,kill")


def test_nothing_is_lost_or_doubled_where_power_is_cut(tmp_path: Path, judge: Judge) -> None:
    lived_through(tmp_path, judge, 3, "unsynced,proxy")
