"""A principal that may publish makes up sources, with the largest resume tokens that there may be, in stream after
stream: all of them stay when it has gone, and are read again at each start.
"""

from __future__ import annotations

from pathlib import Path

from tests.attack.by_hand import Peer
from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour, resident_size
from tests.system.serving import ServedNode
from veredus.protocols.zeps import messages as m

TOKEN = bytes(4096)
AT_ONCE = 100


def test_sources_that_nobody_uses_again_end_at_their_bound_also_over_a_restart(
    tmp_path: Path, figures: Figures, is_full: bool
) -> None:
    count, most, size_mib = (40_000, 20_000, 16) if is_full else (1_200, 1_000, 2)
    served = ServedNode(
        tmp_path / "node",
        {"LIMITS_KEPT_SOURCES_PER_PRINCIPAL_MAX": str(most), "LIMITS_TOKENS_SIZE_PER_PRINCIPAL_MAX": f"{size_mib} MiB"},
        life_s=280,
    )
    with served.start():
        pass
    assert served.process is not None
    before = resident_size(served.process.pid)
    made = stored = 0
    with neighbour(served.address) as felt:
        for first in range(0, count, AT_ONCE):
            with Peer(served.port) as peer:
                for number in range(1, AT_ONCE + 1):
                    peer.send(number, m.AttachSource(f"s{first % 7}", f"{first + number}", bytes(16)))
                answers = [peer.hear() for _ in range(AT_ONCE)]
                codes = {said.code for said in answers if isinstance(said, m.Refusal)}
                assert codes <= {"too-many-sources"}
                made += sum(isinstance(said, m.SourceAttached) for said in answers)
                if codes:
                    continue
                for number in range(1, AT_ONCE + 1):
                    peer.send(number, m.StoreToken(1, 0, TOKEN))
                answers = [peer.hear() for _ in range(AT_ONCE)]
                assert {said.code for said in answers if isinstance(said, m.Refusal)} <= {"tokens-too-large"}
                stored += sum(isinstance(said, m.Reply) for said in answers)
    # The neighbour of these, who proves nothing either, has one of the sources.
    assert made == most - 1
    # What is on its way to the disk when the bound is reached may exceed it.
    assert 0 <= stored - (size_mib << 20) // len(TOKEN) < AT_ONCE
    grown = resident_size(served.process.pid) - before
    served.kill()
    with served.start() as node:
        grown_again = resident_size(served.process.pid) - before
        with node.publisher("s0", source="1") as publisher:
            publisher.publish("k", b"again")
    attack = figures.attack("sources that nobody uses again, with tokens of 4 KiB", f"{count:,}")
    attack.record("known", made, bound=f"{most:,}, kept_sources_per_principal_max")
    attack.record("tokens", stored * len(TOKEN) / 2**20, "MiB", f"{size_mib} MiB, tokens_size_per_principal_max")
    attack.record("growth", grown / 2**20, "MiB")
    attack.record("growth after a kill and a start", grown_again / 2**20, "MiB")
    attack.record_felt(felt)
    served.kill()
