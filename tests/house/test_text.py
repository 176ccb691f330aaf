"""The tree speaks of the project alone, and programs speak through their proper mouths."""

import ast
import re

from tests.house.tree import PACKAGE, ROOT, TEXT_SUFFIXES, Source, files_under, place, sources_under

# The command line may print; all else returns, logs or raises.
MAY_PRINT = ("src/veredus/cli/",)
# The name that the project once had, and that others have: a document which shows it sends users to a stranger's code.
FORMER_NAME = re.compile("cur" + "sus", re.IGNORECASE)
MAY_SPEAK_OF_THE_FORMER_NAME = {"changes/name.changed.md"}
HOME = re.compile(r"/(?:home|Users)/[A-Za-z0-9_.-]+/|(?<![\w.~-])/[r]oot/|[A-Z]:[\\]Users[\\]")


def prints(source: Source) -> list[str]:
    return [
        place(source, node)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]


def test_only_the_command_line_prints_to_the_terminal() -> None:
    quiet = [source for source in sources_under(PACKAGE) if not source.name.startswith(MAY_PRINT)]
    assert [line for source in quiet for line in prints(source)] == []


def test_no_file_speaks_of_somebodys_home_directory() -> None:
    texts = [path for path in files_under(ROOT) if path.suffix in TEXT_SUFFIXES]
    assert ROOT / "pyproject.toml" in texts
    homes = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in texts
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if HOME.search(line)
    ]
    assert homes == []


def test_the_former_name_is_nowhere_but_where_the_change_is_told() -> None:
    files = {path.relative_to(ROOT).as_posix(): path for path in files_under(ROOT)}
    left = [
        name
        for name, path in files.items()
        if FORMER_NAME.search(name) or FORMER_NAME.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert set(left) == MAY_SPEAK_OF_THE_FORMER_NAME


def test_the_checks_of_text_find_what_they_look_for() -> None:
    assert prints(Source("loud.py", "if True:\n    print('x')\n")) == ["loud.py:2"]
    assert HOME.search("/".join(["see", "home", "somebody", "notes"]))
    assert HOME.search(" " + "/".join(["", "root", "notes"]))
    assert not HOME.search("https://example.org/root/page and ~/notes")
