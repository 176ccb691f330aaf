"""docs/reference/errors.md lists every code that an error can have, and none that it cannot."""

import ast
import re
from collections.abc import Iterator

from tests.house.tree import PACKAGE, Source, sources_under
from tests.reference.pages import REFERENCE

PLACE_OF_CODE = {"Refused": 0, "Misuse": 0, "Fenced": 0, "Unavailable": 0, "PeerFault": 0, "refuse": 1}
CODE = re.compile(r"[a-z]+(?:-[a-z]+)*")


def codes_raised(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            place = PLACE_OF_CODE.get(name)
            if place is not None and len(node.args) > place:
                argument = node.args[place]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


def codes_named(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
            yield node.value


def codes_on_page() -> set[str]:
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)}


def test_every_code_that_is_raised_is_on_the_page() -> None:
    raised = {code for source in sources_under(PACKAGE) for code in codes_raised(source)}
    assert raised - codes_on_page() == set()


def test_every_code_on_the_page_occurs_in_the_code() -> None:
    named = {code for source in sources_under(PACKAGE) for code in codes_named(source)}
    assert codes_on_page() - named == set()


def test_a_code_that_is_raised_is_found() -> None:
    source = Source(
        "s.py", 'raise Refused("no-such-thing", "message")\norders.refuse(session, "other-thing", "message")\n'
    )
    assert list(codes_raised(source)) == ["no-such-thing", "other-thing"]
