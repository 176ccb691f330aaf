"""docs/how-to/secure.md: its rules are rules, and allow what it says; its table of rights is the one in the code."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.reference.pages import REFERENCE, part_on_page, table_of
from veredus.node.rules import Access
from veredus.runtime.configuration import read_configuration
from veredus.streams.rights import ANONYMOUS, LOCAL, RIGHTS, VERBS, on_sink, on_stream

PAGE = REFERENCE.parent / "how-to" / "secure.md"


def made_table() -> str:
    rows = [(f"`{r.request}`", f"`{r.verb}`", f"{r.on}, where {r.when}" if r.when else r.on) for r in RIGHTS]
    return table_of(("request", "right", "on"), rows)


def test_the_table_of_rights_says_what_the_code_asks() -> None:
    made = made_table()
    assert part_on_page("../how-to/secure.md", "rights", made) == made, "REGENERATE=1 pytest tests/reference"


def test_every_verb_has_a_line_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    explained = "".join(re.findall(r"^\| (`[^|]+`) \| to ", text, re.MULTILINE))
    assert sorted(re.findall(r"`([a-z-]+)`", explained)) == sorted(VERBS)


@pytest.fixture
def access(tmp_path: Path) -> Access:
    """What the rules of the page allow, all of them in one file."""
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    rules = "".join(block for block in blocks if "[[security.rules]]" in block)
    assert len(tomllib.loads(rules)["security"]["rules"]) >= 5
    file = tmp_path / "veredus.toml"
    file.write_text(rules)
    return Access(read_configuration(file).settings.security.rules)


def test_a_desk_publishes_to_a_new_stream_under_its_own_names(access: Access) -> None:
    for verb in ("publish", "create", "describe"):
        assert access.may("desk-1", verb, on_stream("trades.new", source="desk-1")), verb
    assert not access.may("desk-1", "publish", on_stream("trades.new", source="risk"))
    assert not access.may("desk-1", "subscribe", on_stream("trades.new", subscriber="desk-1"))
    assert not access.may("desk-1", "publish", on_stream("orders", source="desk-1"))


def test_what_the_page_denies_is_denied(access: Access) -> None:
    assert access.may("risk", "subscribe", on_stream("trades.eu", subscriber="risk"))
    assert not access.may("risk", "subscribe", on_stream("payroll.eu", subscriber="risk"))
    assert access.may("operator", "take-over", on_sink("spark/1"))


def test_spark_writes_by_its_own_sinks_alone(access: Access) -> None:
    assert access.may("spark", "publish", on_sink("spark-batch/flights/5c1"))
    assert not access.may("spark", "publish", on_sink("spark-batch/trades/5c1"))
    assert access.may("spark", "publish", on_sink("spark-place/5c1"))
    assert access.may("spark", "publish", on_sink("spark/5c1"))
    assert not access.may("spark", "publish", on_sink("other"))
    assert access.may("spark", "create", on_stream("flights"))


def test_who_proves_nothing_may_what_is_said_of_it_by_name(access: Access) -> None:
    assert access.may(ANONYMOUS, "subscribe", on_stream("public.news", subscriber=""))
    assert not access.may(ANONYMOUS, "subscribe", on_stream("trades.eu", subscriber=""))
    assert not access.may(LOCAL, "describe", on_stream("trades.eu"))
