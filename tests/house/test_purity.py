"""Below the line of purity the same history gives the same orders: no hands, no waiting, no accidental order.

Which modules may be imported there is the import contract's; here is what imports do not show.
"""

import ast
import sys
from collections.abc import Iterator

from tests.house.tree import PACKAGE, PURE_FLOORS, Source, functions_in, place, pure_sources

IMPURE_PACKAGES = {"runtime", "sim", "client", "recording", "spark", "audit", "chaos", "cli", "dashboard", "topics"}
LIBRARIES_FOR_PURE_WORK = {
    "crc32c",
    "veredus",
    "lz4",
    "msgspec",
    "nacl",
    "numpy",
    "pyarrow",
    "re2",
    "zstandard",
}
HANDS = {"breakpoint", "input", "open", "print"}
READINGS_OF_THE_CLOCK = {"now", "utcnow", "today"}
# These see every element and give the same answer in any order.
BLIND_TO_ORDER = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"}
SHOWS_ORDER = {"enumerate", "iter", "list", "map", "next", "tuple", "zip", "filter", "reversed"}
SET_OPERATIONS = {"union", "intersection", "difference", "symmetric_difference"}
SET_TYPES = {"set", "frozenset", "AbstractSet", "MutableSet"}
type_of_scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
type_of_comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def called_name(node: ast.expr) -> str | None:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def is_set_annotation(node: ast.expr | None) -> bool:
    head = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(head, ast.Name) and head.id in SET_TYPES


def is_set(node: ast.expr, known: set[str]) -> bool:
    """Whether the expression plainly is a set; what cannot be told from the page is let pass."""
    if isinstance(node, ast.Set | ast.SetComp) or called_name(node) in {"set", "frozenset"}:
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor | ast.Sub):
        return is_set(node.left, known) or is_set(node.right, known)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SET_OPERATIONS:
        return is_set(node.func.value, known)
    return ast.unparse(node) in known if isinstance(node, ast.Name | ast.Attribute) else False


def sets_named_in(scope: ast.AST) -> set[str]:
    """Names and attributes that the scope declares to be sets, or first fills with one."""
    known: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.AnnAssign) and is_set_annotation(node.annotation):
            known.add(ast.unparse(node.target))
            if isinstance(scope, ast.ClassDef) and isinstance(node.target, ast.Name):
                known.add(f"self.{node.target.id}")
        elif isinstance(node, ast.arg) and is_set_annotation(node.annotation):
            known.add(node.arg)
        elif isinstance(node, ast.Assign) and is_set(node.value, set()):
            known.update(ast.unparse(target) for target in node.targets)
    return known


def scopes_of(tree: ast.Module) -> Iterator[type_of_scope]:
    """Each function and class by itself, so that one name in two functions may be two things."""
    yield from (node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef))
    loose = [node for node in tree.body if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    yield ast.Module(body=loose, type_ignores=[])


def walked_expressions(scope: ast.AST) -> Iterator[ast.expr]:
    """Every expression whose order of elements shows in what comes out."""
    excused: set[ast.AST] = set()
    for node in ast.walk(scope):
        if called_name_of(node) in BLIND_TO_ORDER and isinstance(node, ast.Call):
            excused.update(node.args)
        if isinstance(node, ast.For | ast.AsyncFor):
            yield node.iter
        elif isinstance(node, type_of_comprehension):
            if node not in excused and not isinstance(node, ast.SetComp):
                yield from (generator.iter for generator in node.generators)
        elif isinstance(node, ast.Starred):
            yield node.value
        elif isinstance(node, ast.Call) and called_name(node) in SHOWS_ORDER:
            yield from node.args
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "pop" and not node.args:
                yield node.func.value
            elif node.func.attr in {"extend", "join", "fromkeys"}:
                yield from node.args


def called_name_of(node: ast.AST) -> str | None:
    return called_name(node) if isinstance(node, ast.expr) else None


def sets_whose_order_shows(source: Source) -> list[str]:
    module_names = sets_named_in(
        ast.Module(body=[n for n in source.tree.body if isinstance(n, ast.Assign | ast.AnnAssign)], type_ignores=[])
    )
    found: dict[str, None] = {}
    for scope in scopes_of(source.tree):
        # Inside a class, attributes are known to every method, plain names only to the method that holds them.
        attributes = (
            {name for name in sets_named_in(scope) if name.startswith("self.")}
            if isinstance(scope, ast.ClassDef)
            else set()
        )
        inner = [*functions_in(scope)] if isinstance(scope, ast.ClassDef) else [scope]
        for part in inner:
            known = module_names | attributes | sets_named_in(part)
            for walked in walked_expressions(part):
                if is_set(walked, known):
                    found[f"{place(source, walked)} {ast.unparse(walked)}"] = None
    return list(found)


def signs_of_hands(source: Source) -> list[str]:
    found = []
    in_hash = {
        node for function in functions_in(source.tree) if function.name == "__hash__" for node in ast.walk(function)
    }
    for node in ast.walk(source.tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await):
            found.append(f"{place(source, node)} waits")
        elif called_name_of(node) in HANDS and isinstance(node, ast.Call):
            found.append(f"{place(source, node)} {ast.unparse(node.func)} has hands")
        elif called_name_of(node) in {"hash", "id"} and isinstance(node, ast.Call) and node not in in_hash:
            found.append(f"{place(source, node)} {ast.unparse(node.func)} differs from process to process")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in READINGS_OF_THE_CLOCK and "date" in ast.unparse(node.func.value):
                found.append(f"{place(source, node)} reads the clock")
    return found


def foreign_imports(source: Source) -> list[str]:
    """Modules that are neither the standard library nor meant for pure work on batches."""
    found = []
    for node in ast.walk(source.tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for name in names:
            root = name.partition(".")[0]
            if root not in sys.stdlib_module_names and root not in LIBRARIES_FOR_PURE_WORK and root != "google":
                found.append(f"{source.name} imports {name}")
    return found


def test_every_package_is_known_to_be_pure_or_not() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages - set(PURE_FLOORS) - IMPURE_PACKAGES == set()


def test_no_set_shows_its_order_below_the_line() -> None:
    assert [line for source in pure_sources() for line in sets_whose_order_shows(source)] == []


def test_nothing_below_the_line_waits_or_has_hands() -> None:
    assert [line for source in pure_sources() for line in signs_of_hands(source)] == []


def test_only_libraries_for_pure_work_are_imported_below_the_line() -> None:
    assert [line for source in pure_sources() for line in foreign_imports(source)] == []


def test_the_check_of_order_finds_sets_that_are_walked() -> None:
    walked = [
        "for x in {1, 2}: ...",
        "y = [x for x in set(z)]",
        "y = list(frozenset(z) - w)",
        "def f(held: set[int]):\n    return [*held]",
        "class C:\n    def __init__(self): self.due: set[int] = set()\n    def g(self): return tuple(self.due)",
        "def f():\n    due = {1}\n    return due.pop()",
    ]
    assert [text for text in walked if len(sets_whose_order_shows(Source("s.py", text))) != 1] == []


def test_the_check_of_order_lets_pass_what_no_order_can_change() -> None:
    harmless = [
        "for x in sorted({2, 1}): ...",
        "y = any(x > 1 for x in {1, 2})",
        "y = {x + 1 for x in {1, 2}}",
        "def f(held: set[int]):\n    return max(held)\ndef g(held: list[int]):\n    return [*held]",
        "def f(queue: list[int]):\n    return queue.pop()",
    ]
    assert [text for text in harmless if sets_whose_order_shows(Source("s.py", text))] == []


def test_the_checks_of_hands_find_what_they_look_for() -> None:
    impure = ["async def f(): ...", "print(1)", "open('x')", "hash('x')", "import datetime\ndatetime.datetime.now()"]
    assert [text for text in impure if len(signs_of_hands(Source("s.py", text))) != 1] == []
    assert signs_of_hands(Source("s.py", "def __hash__(self): return hash(self.name)")) == []
    assert foreign_imports(Source("s.py", "import requests\nimport math, numpy.linalg")) == ["s.py imports requests"]
