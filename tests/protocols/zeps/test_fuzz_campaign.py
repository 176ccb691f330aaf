"""A campaign of random input keeps what it tried, and what broke."""

from pathlib import Path

import pytest

from fuzz import campaign
from veredus.kernel.errors import Refused


def test_a_campaign_tries_what_was_tried_least_until_each_target_has_had_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.json"
    campaign.write_ledger(path, [campaign.Tried("batch", "other", cpu_s=1.5, input_count=7)])
    names = ("datagrams", "batch")
    monkeypatch.setattr(campaign, "TARGETS", {name: campaign.TARGETS[name] for name in names})
    said: list[str] = []
    campaign.go_on(path, 0.001, 1, said.append, try_s=0.1)
    rows = campaign.read_ledger(path)
    kept = {row.target: row for row in rows}
    assert kept["batch"] == campaign.Tried("batch", "other", cpu_s=1.5, input_count=7)
    assert (kept["datagrams"].cpu_s >= 0.001, kept["datagrams"].input_count > 0) == (True, True)
    assert len(rows) == 2
    assert said[-1].endswith("batch 0 min")


def test_what_breaks_a_target_is_counted_in_the_ledger_and_on_the_page() -> None:
    broken, whole = campaign.Try(), campaign.Try()
    broken.set_exception(ZeroDivisionError())
    whole.set_result((1_000, 90.0))
    ledger: list[campaign.Tried] = []
    for done in (whole, broken):
        campaign.take(ledger, "batch", "now", done)
    campaign.take(ledger, "batch", "then", whole)
    assert ledger == [
        campaign.Tried("batch", "now", 90.0, 1_000, 1),
        campaign.Tried("batch", "then", 90.0, 1_000),
    ]
    assert "| `batch` | 2,000 | 3 min | 2 | 1 |" in campaign.as_markdown(ledger)


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "proof.md"
    page.write_text("# Proof\n")
    with pytest.raises(Refused, match="has no marks"):
        campaign.put_between(page, campaign.BEGIN, campaign.END, "table")
