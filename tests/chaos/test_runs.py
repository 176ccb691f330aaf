"""Whole runs, short ones: real processes fail in every way, and the audit finds nothing lost and nothing doubled."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from veredus.chaos.campaign import Judge, Judged, run_and_judge
from veredus.chaos.evidence import sizes_of
from veredus.chaos.layout import Layout
from veredus.chaos.plan import FAULTS, PAGES, decoded, draw, faults_of

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
    taken = [row for file in (evidence / "acknowledged").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert sum(row["last_number"] - row["first_number"] + 1 for row in taken if row["source"][:5] == "page-") > 100


def _a_publication_that_is_taken_out_of_the_journal_is_found(tmp_path: Path, judge: Judge, judged: Judged) -> None:
    layout = Layout(tmp_path / "spoiled")
    shutil.copytree(tmp_path / "run" / "evidence", layout.evidence)
    (file,) = (layout.evidence / "journal").glob("*.parquet")
    rows = pq.read_table(file)
    pq.write_table(pa.concat_tables([rows.slice(0, 100), rows.slice(99, 1), rows.slice(101)]), file)
    assert sizes_of(layout.evidence)["journal"] == len(rows)
    spoiled = Judged(judged.outcome, judge.judge(judged.outcome.plan, layout, lambda _: None))
    summary = spoiled.summary()
    assert summary["verdict"] == "broken"
    assert summary["lost"]
    assert summary["doubled"]


def test_nothing_is_lost_or_doubled_where_connections_fail_and_the_disk_is_full(tmp_path: Path, judge: Judge) -> None:
    lived_through(tmp_path, judge, 2, "proxy,full,kill")


def test_nothing_is_lost_or_doubled_where_power_is_cut(tmp_path: Path, judge: Judge) -> None:
    lived_through(tmp_path, judge, 3, "unsynced,proxy")
