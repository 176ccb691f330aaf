"""A node that is told all the time to read its settings again serves its peers."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour
from tests.system.serving import ServedNode

pytestmark = pytest.mark.slow


def test_a_storm_of_sighup_leaves_the_neighbour_its_turn(tmp_path: Path, figures: Figures, is_full: bool) -> None:
    settings = tmp_path / "veredus.toml"
    rule = '[[security.rules]]\nprincipal = "{}"\nmay = ["*"]\n'
    settings.write_text("".join(rule.format(who) for who in ("anonymous", *(f"p{number}" for number in range(300)))))
    served = ServedNode(tmp_path / "journal", environment={"VEREDUS_SETTINGS": str(settings)})
    served.start().close()
    assert served.process is not None
    signals = 0
    try:
        with neighbour(served.address) as felt:
            until = time.monotonic() + (10 if is_full else 2)
            while time.monotonic() < until:
                served.process.send_signal(signal.SIGHUP)
                signals += 1
                time.sleep(0.002)
        reads = served.said().count("settings-reloaded")
    finally:
        served.kill()
    figures.attack("SIGHUPs, one after the other", f"{signals:,}").record_felt(felt)
    assert 0 < reads < signals / 4
