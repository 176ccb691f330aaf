"""docs/reference/audit-log.md lists every kind of record."""

from tests.reference.pages import part_on_page, table_of
from veredus.runtime.audit import KINDS, LOST


def made_table() -> str:
    rows = [(f"`{kind.name}`", kind.meaning, f"`{kind.switch}`" if kind.switch else "") for kind in KINDS]
    rows.append((f"`{LOST}`", "Records before this one could not be written; how many, and why.", ""))
    return "\n" + table_of(("kind", "what happened", "switch"), rows) + "\n"


def test_the_page_lists_every_kind_of_record() -> None:
    made = made_table()
    assert part_on_page("audit-log.md", "kinds", made) == made, "REGENERATE=1 pytest tests/reference"
