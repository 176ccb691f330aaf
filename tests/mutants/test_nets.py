"""The nets catch a planted bug, let pass what has none, and say where they are torn."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mutants import worlds
from mutants.__main__ import try_mutant
from mutants.nets import PROPERTIES, UNITS, Catch, NetTorn, tried
from mutants.pages import Result, kept_results, table, write_page, write_results
from mutants.patches import ENGINES, ROOT, Mutant, all_mutants, copied_sources, planted

NONE = Mutant("nothing", "nothing", 1, "")
WITHIN = 40
"""Worlds in which an obvious bug shows itself, whatever draws are added."""
SETTLEMENT = "tests/delivery/test_settlement.py"


@pytest.mark.slow
def test_worlds_catch_a_planted_bug_and_let_pass_what_has_none() -> None:
    (mutant,) = all_mutants(["gap-is-taken"])
    with copied_sources() as sources:
        caught = try_mutant(mutant, sources, WITHIN, ["simulator"]).simulator
        passed = try_mutant(NONE, sources, 3, ["simulator"]).simulator
    assert caught is not None
    assert caught.is_caught
    assert caught.oracle
    assert passed is not None
    assert not passed.is_caught


@pytest.mark.slow
def test_properties_catch_a_planted_bug_and_let_pass_what_has_none() -> None:
    (mutant,) = all_mutants(["settling-takes-the-row-before"])
    with copied_sources() as sources, planted(mutant, sources) as copy:
        assert tried(copy, (SETTLEMENT,)).test.startswith(SETTLEMENT + "::")
        assert not tried(sources, (SETTLEMENT,)).is_caught


@pytest.mark.slow
def test_what_fails_without_the_bug_too_is_no_catch() -> None:
    (mutant,) = all_mutants(["gap-is-taken"])
    with (
        copied_sources() as sources,
        planted(mutant, sources) as broken,
        pytest.raises(NetTorn, match="fails without the bug, too"),
    ):
        try_mutant(NONE, broken, WITHIN, ["simulator"])


def test_a_world_that_does_not_end_is_caught_by_its_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(seed: int, topology: object) -> None:
        until = time.process_time() + 20
        while time.process_time() < until:
            pass

    monkeypatch.setattr(worlds, "WORLD_S", 0.05)
    monkeypatch.setattr(worlds, "run_seed", spin)
    seed, violation = worlds.first_violation("topics", 4, 9)
    assert (seed, violation.partition(":")[0]) == (4, "hangs")


def test_every_floor_has_its_tests_and_they_are_there() -> None:
    assert set(PROPERTIES) == set(UNITS) == {*ENGINES, *(mutant.floor for mutant in all_mutants())}
    assert [
        test for tests in (*PROPERTIES.values(), *UNITS.values()) for test in tests if not (ROOT / test).exists()
    ] == []


def results() -> list[Result]:
    seen = Result("a", "breaks a", 2, "d", 1000, Catch(17, "once", "", "twice", 1.5), Catch(0, "", "", "", 9.0))
    missed = Result("b", "breaks b", 6, "d", 1000, Catch(0, "", "", "", 99.0), Catch(0, "", "tests/t.py::x", "", 1.0))
    missed.units = Catch(0, "", "tests/t.py::z", "", 1.0)
    return [seen, missed]


def test_the_table_says_which_net_caught_which_bug() -> None:
    head, *_, first, second = table(results()).splitlines()
    assert head == "Of 2 planted bugs, simulated worlds caught 1, laws and properties 1, and the floors' own tests 1."
    assert first == "| `a` | breaks a | 2 | seed 17 (once) | — | ? |"
    assert second == "| `b` | breaks b | 6 | not in 1,000 | `t.py::x` | `t.py::z` |"


def test_the_table_stands_between_its_marks_and_leaves_the_rest_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "proof.md"
    page.write_text("# Proof\n<!-- mutants -->\nold\n<!-- /mutants -->\nmore\n", encoding="utf-8")
    write_page(results(), page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Proof\n<!-- mutants -->\nOf 2 planted bugs")
    assert text.endswith("| `t.py::z` |\n<!-- /mutants -->\nmore\n")
    page.write_text("# Proof\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"proof\.md has no <!-- mutants -->"):
        write_page(results(), page)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert kept_results(path) == {}
    write_results({result.name: result for result in results()}, path)
    assert list(kept_results(path).values()) == results()


def test_a_net_that_is_not_cast_keeps_what_it_caught_in_the_same_source() -> None:
    before, _ = results()
    before.units = Catch(0, "", "tests/t.py::z", "", 1.0)
    again = Result("a", "breaks a", 2, "d", properties=Catch(0, "", "tests/t.py::y", "", 2.0))
    kept = again.beside(before)
    assert (kept.simulator, kept.seeds, kept.units) == (before.simulator, 1000, before.units)
    assert kept.properties is not None
    assert kept.properties.test == "tests/t.py::y"
    assert Result("a", "breaks a", 2, "another").beside(before).simulator is None
