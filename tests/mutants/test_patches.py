"""Every planted bug still applies to the source, says what it breaks, and is small."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from mutants.patches import ENGINES, ROOT, Mutant, PatchRefused, all_mutants, apply, mutant_in

CHANGED_LINES_MAX = 10
MUTANTS = all_mutants()


def touched_by(mutant: Mutant) -> list[str]:
    return re.findall(r"^\+\+\+ b/(\S+)$", mutant.diff, re.MULTILINE)


def changed_lines(mutant: Mutant) -> list[str]:
    return re.findall(r"^(?:\+(?!\+\+ )|-(?!-- )).*$", mutant.diff, re.MULTILINE)


def only(mutant: Mutant, top: Path) -> Path:
    """The sources that the patch touches, and no others."""
    for name in touched_by(mutant):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, top / name)
    return top / "src"


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_every_patch_applies_to_the_source_and_leaves_it_python(mutant: Mutant, tmp_path: Path) -> None:
    sources = only(mutant, tmp_path)
    apply(mutant, sources)
    for name in touched_by(mutant):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text != (ROOT / name).read_text(encoding="utf-8")
        compile(text, name, "exec")


def test_every_patch_changes_a_few_lines_of_the_engines_alone() -> None:
    engines = tuple(f"src/veredus/{floor}/" for floor in ENGINES)
    assert [mutant.name for mutant in MUTANTS if not touched_by(mutant)] == []
    assert [name for mutant in MUTANTS for name in touched_by(mutant) if not name.startswith(engines)] == []
    assert [mutant.name for mutant in MUTANTS if not 0 < len(changed_lines(mutant)) <= CHANGED_LINES_MAX] == []


def test_there_are_bugs_for_every_guarantee_that_an_engine_gives() -> None:
    assert len(MUTANTS) >= 45
    assert {mutant.breaks for mutant in MUTANTS} == set(range(1, 9))


def test_a_bug_of_the_topic_service_is_tried_in_worlds_of_topics_and_by_their_own_tests() -> None:
    floors = {mutant.name: (mutant.floor, mutant.scene) for mutant in MUTANTS}
    assert floors["a-giver-does-not-hold"] == ("protocols/topics", "topics")
    assert floors["zeps1-passes-over-a-gap"] == ("protocols", "streams")
    assert floors["gap-is-taken"] == ("streams", "streams")


def test_a_patch_without_its_header_is_named(tmp_path: Path) -> None:
    path = tmp_path / "headless.patch"
    path.write_text("what: something\n\n--- a/src/x.py\n", encoding="utf-8")
    with pytest.raises(PatchRefused, match=r"headless\.patch does not begin with"):
        mutant_in(path)


def test_a_patch_that_applies_no_more_is_named(tmp_path: Path) -> None:
    mutant = MUTANTS[0]
    sources = only(mutant, tmp_path)
    apply(mutant, sources)
    with pytest.raises(PatchRefused, match=rf"{mutant.name}\.patch does not apply"):
        apply(mutant, sources)


def test_a_bug_that_nobody_has_planted_is_not_found_by_name() -> None:
    with pytest.raises(PatchRefused, match="there is no patch 'unheard-of'"):
        all_mutants(["unheard-of"])
