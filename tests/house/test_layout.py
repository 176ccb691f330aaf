"""Files are named for what they hold, and stay small enough to be read in one go."""

import ast
from pathlib import PurePosixPath

from tests.house.tree import PACKAGE, ROOT, Source, functions_in, place, sources_under

NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "base", "core"}
NAMES_THAT_SAY_NOTHING |= {"manager", "managers", "handler", "handlers", "service", "services"}
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

# What may be longer, and why. A line here goes when the reason does.
LONGER_MODULES: dict[str, str] = {}
LONGER_FUNCTIONS: dict[str, str] = {}


def names_that_say_nothing(source: Source) -> list[str]:
    path = PurePosixPath(source.name)
    return [part for part in (*path.parts[:-1], path.stem) if part in NAMES_THAT_SAY_NOTHING]


def code_line_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, its docstring left out: a promise well explained costs nothing."""
    first = function.body[0]
    docstring_count = 0
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        docstring_count = (first.end_lineno or first.lineno) - first.lineno + 1
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring_count


def long_functions(source: Source) -> list[str]:
    return [
        f"{place(source, function)} {function.name} has {code_line_count(function)} lines"
        for function in functions_in(source.tree)
        if code_line_count(function) > FUNCTION_LINES_MAX and f"{source.name}:{function.name}" not in LONGER_FUNCTIONS
    ]


def test_no_module_has_a_name_that_says_nothing() -> None:
    found = {source.name: names_that_say_nothing(source) for source in sources_under(PACKAGE)}
    assert [name for name, parts in found.items() if parts] == []


def test_no_module_is_longer_than_can_be_read_in_one_go() -> None:
    line_counts = {source.name: source.text.count("\n") for source in sources_under(PACKAGE)}
    long = {name: count for name, count in line_counts.items() if count > MODULE_LINES_MAX}
    assert set(long) - set(LONGER_MODULES) == set(), long


def test_no_function_is_longer_than_a_screen() -> None:
    assert [line for source in sources_under(PACKAGE) for line in long_functions(source)] == []


def test_every_exception_still_names_something_that_exists() -> None:
    functions = {
        f"{source.name}:{function.name}" for source in sources_under(PACKAGE) for function in functions_in(source.tree)
    }
    assert set(LONGER_FUNCTIONS) - functions == set()
    assert [name for name in LONGER_MODULES if not (ROOT / name).is_file()] == []


def test_the_checks_of_layout_find_what_they_look_for() -> None:
    assert names_that_say_nothing(Source("src/veredus/streams/utils.py", "")) == ["utils"]
    assert names_that_say_nothing(Source("src/veredus/core/record.py", "")) == ["core"]
    body = "    pass\n" * FUNCTION_LINES_MAX
    assert len(long_functions(Source("long.py", f"def long():\n{body}"))) == 1
    assert long_functions(Source("explained.py", f'def f():\n    """One.\n{body}    """\n    pass\n')) == []
