"""What is public says what it promises, and what is tested is said in a sentence."""

import ast
from collections.abc import Iterator

from tests.house.tree import PACKAGE, ROOT, Source, functions_in, place, sources_under, type_of_function

# kernel/engine.py tells once what these promise, for every engine.
ENGINE_CONTRACT = {"handle", "deadline", "check"}
SENTENCE_WORD_COUNT_MIN = 4


def is_explained_elsewhere(function: type_of_function) -> bool:
    """Overloads, overrides and setters are explained where the name is first defined."""
    names = {node.attr if isinstance(node, ast.Attribute) else ast.unparse(node) for node in function.decorator_list}
    return bool(names & {"overload", "override", "setter", "deleter"})


def public_definitions(parent: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef | type_of_function]:
    for node in parent.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            yield node
            yield from public_definitions(node)
        elif not is_explained_elsewhere(node) and not (
            isinstance(parent, ast.ClassDef) and node.name in ENGINE_CONTRACT
        ):
            yield node


def silent_definitions(source: Source) -> list[str]:
    silent = [f"{source.name}:1 the module"] if not ast.get_docstring(source.tree) else []
    return silent + [
        f"{place(source, node)} {node.name}" for node in public_definitions(source.tree) if not ast.get_docstring(node)
    ]


def names_that_are_no_sentence(source: Source) -> list[str]:
    return [
        f"{place(source, function)} {function.name}"
        for function in functions_in(source.tree)
        if function.name.startswith("test_") and len(function.name.split("_")) - 1 < SENTENCE_WORD_COUNT_MIN
    ]


def test_everything_public_says_what_it_promises() -> None:
    assert [line for source in sources_under(PACKAGE) for line in silent_definitions(source)] == []


def test_the_name_of_every_test_is_a_sentence() -> None:
    tests = [source for source in sources_under(ROOT / "tests") if source.name.rpartition("/")[2].startswith("test_")]
    assert tests, "this very file should have been found"
    assert [line for source in tests for line in names_that_are_no_sentence(source)] == []


def test_the_checks_of_names_find_what_they_look_for() -> None:
    silent = Source(
        "silent.py",
        '"""A module."""\nclass Loud:\n    """Says."""\n    def mute(self): ...\n    def handle(self): ...\n',
    )
    assert silent_definitions(silent) == ["silent.py:4 mute"]
    assert silent_definitions(Source("empty.py", "")) == ["empty.py:1 the module"]
    assert names_that_are_no_sentence(Source("t.py", "def test_fencing(): ...\n")) == ["t.py:1 test_fencing"]
    assert names_that_are_no_sentence(Source("t.py", "def test_a_stale_epoch_is_fenced(): ...\n")) == []
