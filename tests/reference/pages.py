"""Pages that are made from the code, and how they are made again: `REGENERATE=1 pytest tests/reference`."""

import os
from pathlib import Path

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "reference"
BEGIN, END = "<!-- generated: {} -->", "<!-- end: {} -->"


def table_of(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def part_on_page(page: str, name: str, made: str) -> str:
    """What stands on a page between the marks of `name`; with REGENERATE=1, `made` is put there first."""
    file = REFERENCE / page
    text = file.read_text(encoding="utf-8")
    begin, end = BEGIN.format(name), END.format(name)
    before, _, rest = text.partition(begin + "\n")
    found, _, after = rest.partition(end)
    if os.environ.get("REGENERATE") == "1" and found != made:
        file.write_text(f"{before}{begin}\n{made}{end}{after}", encoding="utf-8")
        found = made
    return found
