"""The ledger of a campaign: it goes on where it ends, for the code that it is of."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.processes import wait_until
from veredus.cli import veredus
from veredus.cli.exits import Exit, run
from veredus.kernel.errors import Refused
from veredus.sim import ledger as ledgers
from veredus.sim.campaign import run_seed
from veredus.sim.ledger import BEGIN, END, Campaign, Failed, Ledger, go_on, read_ledger, show, write_ledger
from veredus.streams.replay import Replay


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


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"seeds",
        b'{"format": 1, "camp',
        b'"\xff"',
        b"[]",
        b'{"format": 2, "campaigns": []}',
        b'{"format": 1, "campaigns": 3}',
    ],
)
def test_what_is_no_ledger_or_of_another_version_is_refused_and_left_alone(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "ledger.json"
    file.write_bytes(data)
    with pytest.raises(Refused) as caught:
        go_on(file, 1, 1, times(1), ignore)
    assert caught.value.code == "bad-ledger"
    assert str(file) in caught.value.message
    assert file.read_bytes() == data


def test_a_ledger_has_one_writer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ledger.json"

    def another_meanwhile() -> bool:
        with pytest.raises(Refused, match="another campaign is writing") as caught:
            go_on(file, 1, 1, times(1), ignore)
        assert caught.value.code == "bad-ledger"
        go_on(tmp_path / "other.json", 0, 1, times(0), ignore)
        return False

    go_on(file, 1, 1, another_meanwhile, ignore)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger.json", "other.json"]


def test_what_a_killed_campaign_left_behind_keeps_nobody_off(tmp_path: Path) -> None:
    (tmp_path / ".ledger.json.lock").touch()
    (tmp_path / ".ledger.json.new").write_bytes(b"half")
    assert go_on(tmp_path / "ledger.json", 1, 1, times(1), ignore).last == 1
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.json"]


def test_a_ledger_that_cannot_be_written_is_told_before_the_first_seed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "ledger.json"
    whole = msgspec.json.encode(Ledger(campaigns=[Campaign("0123", last=700)]))
    file.write_bytes(whole)
    monkeypatch.setattr(ledgers.os, "fsync", full)
    monkeypatch.setattr(ledgers, "run_seeds", lambda *_: pytest.fail("a seed was run"))
    with pytest.raises(OSError, match="No space left") as caught:
        go_on(file, 1, 1, times(1), ignore)
    assert caught.value.filename == str(file)
    assert file.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.json"]
    with pytest.raises(OSError, match="No such file") as caught:
        go_on(tmp_path / "nowhere" / "ledger.json", 1, 1, times(1), ignore)
    assert caught.value.filename == str(tmp_path / "nowhere" / "ledger.json")


def test_a_ledger_and_a_page_keep_their_mode_and_stay_where_a_link_leads(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    write_ledger(kept, Ledger())
    kept.chmod(0o640)
    link = tmp_path / "ledger.json"
    link.symlink_to(kept)
    write_ledger(link, Ledger(campaigns=[Campaign("0123")]))
    assert link.is_symlink()
    assert kept.stat().st_mode & 0o777 == 0o640
    assert [campaign.code for campaign in read_ledger(kept).campaigns] == ["0123"]


def test_workers_end_when_their_campaign_is_killed(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\nfrom veredus.sim.ledger import go_on\ngo_on(Path('l'), 9999, 2, lambda: True, print)"
    )
    running = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, start_new_session=True)
    try:
        wait_until(lambda: len(_session_of(running.pid)) == 3)
        running.kill()
        running.wait()
        wait_until(lambda: not _session_of(running.pid))
    finally:
        for pid in _session_of(running.pid):
            os.kill(pid, signal.SIGKILL)


def _session_of(session: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,sess=,stat="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in found.splitlines()]
    return [int(pid) for pid, of, stat in rows if of == str(session) and not stat.startswith("Z")]


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
    for data, words in ((b"no place", "has no marks for the ledger"), (b"\xff", "is no page in UTF-8")):
        page.write_bytes(data)
        with pytest.raises(Refused, match=words):
            show(Ledger(), page)
        assert page.read_bytes() == data


def test_the_command_tells_of_a_page_without_a_place_before_the_first_seed_and_may_have_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ledgers, "run_seeds", lambda *_: pytest.fail("a seed was run"))
    page, ledger = tmp_path / "page.md", tmp_path / "ledger.json"
    page.write_text("no place")
    command = ["sim", "campaign", "--ledger", str(ledger), "--page", str(page)]
    assert run(veredus, command) == Exit.REFUSED
    assert "has no marks for the ledger" in capsys.readouterr().err
    page.write_text(f"{BEGIN}{END}")
    done = Campaign(ledgers.code_digest(), last=1)
    write_ledger(ledger, Ledger(campaigns=[done]))
    assert run(veredus, [*command, "--seeds", "1"]) == Exit.OK
    assert "In all 1 seeds" in page.read_text()
    # What other code broke is no news of this one's.
    write_ledger(ledger, Ledger(campaigns=[Campaign("0123", last=700, failed=[Failed(17, "order: …")]), done]))
    assert run(veredus, [*command, "--seeds", "1"]) == Exit.OK
    assert run(veredus, [*command, "--hours", "-1"]) == Exit.USAGE


def test_the_ledger_of_the_project_can_be_gone_on_with() -> None:
    file = Path(__file__).parents[2] / "docs" / "proof-ledger.json"
    assert msgspec.json.decode(file.read_bytes())["format"] == ledgers.FORMAT
    assert read_ledger(file).campaigns
