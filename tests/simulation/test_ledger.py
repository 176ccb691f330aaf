"""The ledger of a campaign: it goes on where it ends, for the code that it is of."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cursus.kernel.errors import Refused
from cursus.sim import ledger as ledgers
from cursus.sim.campaign import run_seed
from cursus.sim.ledger import BEGIN, END, Campaign, Failed, Ledger, go_on, read_ledger, show, write_ledger
from cursus.streams.replay import Replay


def ignore(_: str) -> None:
    return None


def times(count: int) -> Callable[[], bool]:
    rest = iter(range(count))
    return lambda: next(rest, None) is not None


def test_a_campaign_that_was_interrupted_goes_on_where_its_ledger_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledgers, "CHUNK_COUNT", 2)
    file = tmp_path / "ledger.json"
    assert go_on(file, 5, 1, times(1), ignore).last == 2
    said: list[str] = []
    done = go_on(file, 5, 1, times(9), said.append)
    assert done.last == 5
    assert [line.split(",")[0] for line in said] == ["4 seeds", "5 seeds"]
    outcomes = [run_seed(seed) for seed in range(1, 6)]
    (campaign,) = read_ledger(file).campaigns
    assert campaign.simulated_ns == sum(outcome.simulated_ns for outcome in outcomes)
    assert campaign.counts["taken"] == sum(outcome.counts["taken"] for outcome in outcomes)
    assert campaign.failed == []


def test_other_code_begins_a_campaign_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ledger.json"
    write_ledger(file, Ledger(campaigns=[Campaign("0123", last=700)]))
    go_on(file, 1, 1, times(1), ignore)
    assert [(known.code, known.last) for known in read_ledger(file).campaigns] == [
        ("0123", 700),
        (ledgers.code_digest(), 1),
    ]


def test_a_seed_that_breaks_something_is_told_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replay, "finish", lambda *_: None)
    said: list[str] = []
    done = go_on(tmp_path / "ledger.json", 12, 1, times(1), said.append)
    assert done.failed
    assert said[0] == f"seed {done.failed[0].seed}: {done.failed[0].violation}"
    assert read_ledger(tmp_path / "ledger.json").campaigns[0].failed == done.failed


@pytest.mark.parametrize("data", [b"seeds", b"[]", b'{"format": 2, "campaigns": []}', b'{"format": 1, "campaigns": 3}'])
def test_what_is_no_ledger_or_of_another_version_is_refused_and_left_alone(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "ledger.json"
    file.write_bytes(data)
    with pytest.raises(Refused) as caught:
        go_on(file, 1, 1, times(1), ignore)
    assert caught.value.code == "bad-ledger"
    assert str(file) in caught.value.message
    assert file.read_bytes() == data


def test_a_page_shows_the_ledger_between_its_marks_and_nothing_else_is_changed(tmp_path: Path) -> None:
    page = tmp_path / "proof.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    counts = {"taken": 1_000, "pushed": 5_000, "engine events": 90_000, "fault.kill": 17, "fault.rot": 3}
    campaign = Campaign("c0de", 300, 7_200_000_000_000, 3.0, 2, counts, [Failed(17, "order: …")])
    show(Ledger(campaigns=[campaign]), page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "| `c0de` | 300 | 2 h (0.000 years) | 1,000, 5,000 | 90,000 | 15,000 | 17 |" in text
    assert "| kill | 17 |" in text
    assert "old" not in text
    page.write_text("no place")
    with pytest.raises(Refused, match="has no place for a ledger"):
        show(Ledger(), page)


def test_the_ledger_of_the_project_can_be_gone_on_with() -> None:
    file = Path(__file__).parents[2] / "docs" / "proof-ledger.json"
    assert msgspec.json.decode(file.read_bytes())["format"] == ledgers.FORMAT
    assert read_ledger(file).campaigns
