"""docs/how-to/observe.md lists the figures that a node shows."""

from tests.reference.pages import part_on_page, table_of
from veredus.node.figures import FIGURES, Kind


def made_table() -> str:
    rows = [
        (
            f"`{figure.name}{'_total' if figure.kind is Kind.COUNTER else ''}`",
            figure.kind.value,
            ", ".join(figure.labels),
            figure.meaning,
        )
        for figure in FIGURES
    ]
    return "\n" + table_of(("figure", "kind", "labels", "meaning"), rows) + "\n"


def test_the_page_lists_every_figure_with_its_meaning() -> None:
    made = made_table()
    assert part_on_page("../how-to/observe.md", "figures", made) == made, "REGENERATE=1 pytest tests/reference"
