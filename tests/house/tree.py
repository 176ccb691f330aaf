"""The files of the project, as the house tests see them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "veredus"
PURE_FLOORS = ("kernel", "delivery", "journal", "matching", "streams", "protocols", "overlay", "routers", "node")
TEXT_SUFFIXES = {".py", ".pyi", ".md", ".toml", ".txt", ".cfg", ".ini", ".yaml", ".yml", ".json", ".sh", ".in", ""}
MADE_BY_TOOLS = {"__pycache__", "artifacts", "build", "dist", "spark-warehouse"}

type_of_function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file, parsed when first asked."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)


def source_at(path: Path) -> Source:
    """The Python file at path, named from the root of the tree."""
    return Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def files_under(top: Path) -> Iterator[Path]:
    """Every file that belongs to the project, in a fixed order; nothing that tools made."""
    for path in sorted(top.iterdir()) if top.is_dir() else ():
        if path.name in MADE_BY_TOOLS or (path.name.startswith(".") and path.name != ".ci"):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from files_under(path)
        elif path.is_file():
            yield path


def sources_under(*tops: Path) -> list[Source]:
    """Every Python file under the given folders."""
    return [source_at(path) for top in tops for path in files_under(top) if path.suffix == ".py"]


def pure_sources() -> list[Source]:
    """Every module below the line of purity."""
    return sources_under(*(PACKAGE / floor for floor in PURE_FLOORS))


def functions_in(tree: ast.AST) -> Iterator[type_of_function]:
    """Every function and method, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def place(source: Source, node: ast.stmt | ast.expr) -> str:
    """Where a reader finds the node."""
    return f"{source.name}:{node.lineno}"
