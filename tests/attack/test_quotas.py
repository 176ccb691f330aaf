"""A principal with a quota of bytes sends and is sent no more, loses nothing, and costs nobody anything."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour
from tests.system.serving import ServedNode
from veredus.client.blocking import connect
from veredus.runtime.security import add_token

pytestmark = pytest.mark.slow

MIB = 1 << 20
RATE = 4 * MIB
BODY = bytes(64 << 10)


@pytest.mark.parametrize("direction", ["RECEIVED", "SENT"])
def test_a_principal_over_its_quota_waits_and_gets_all_the_same_what_is_its(
    tmp_path: Path, figures: Figures, is_full: bool, direction: str
) -> None:
    settings = tmp_path / "veredus.toml"
    rules = '[[security.rules]]\nprincipal = "*"\nmay = ["*"]\n'
    settings.write_text(f'[security]\ntokens = "{tmp_path}/tokens"\n{rules}')
    greedy, modest = (add_token(tmp_path / "tokens", name)[0] for name in ("greedy", "modest"))
    limits = {f"LIMITS_{direction}_PER_PRINCIPAL_MAX": str(RATE)}
    served = ServedNode(tmp_path / "journal", limits, environment={"VEREDUS_SETTINGS": str(settings)})
    count = (16 if is_full else 2) * RATE // len(BODY)
    try:
        served.start(modest).close()
        with (
            neighbour(served.address, token=modest) as felt,
            connect(served.address, token=greedy, timeout_s=20) as node,
        ):
            began = time.monotonic()
            with node.publisher("s", source="p", outbox_size_max=1 << 30) as publisher:
                for _ in range(count):
                    publisher.publish("k", BODY)
                publisher.flush(timeout_s=60)
            with node.subscribe("s", until=count + 1) as subscription:
                assert sum(1 for _ in subscription) == count
            took_s = time.monotonic() - began
            assert felt.trips_ms
    finally:
        served.kill()
    rate = count * len(BODY) / took_s
    attack = figures.attack(f"more than a quota allows, {direction.lower()}", f"{count * len(BODY) // MIB} MiB")
    attack.record("rate", rate / MIB, "MiB/s", f"at most {RATE // MIB} MiB/s and a burst of a second")
    attack.record_felt(felt)
    assert count * len(BODY) <= RATE * (took_s + 1) + 4 * MIB
