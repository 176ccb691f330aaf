"""Whoever has tokens checked without end, which costs a processor 10 ms each on purpose, keeps nobody else out."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.attack.by_hand import Peer
from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour
from tests.system.serving import ServedNode
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m
from veredus.runtime.security import add_token


@contextmanager
def flooding(port: int, count: int, greeting: bytes) -> Iterator[None]:
    """Connections of another address, each of which has said its greeting."""
    with ExitStack() as held:
        for _ in range(count):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", port), 20, ("127.0.0.2", 0)))
            connection.sendall(greeting)
        yield


def test_a_flood_of_wrong_tokens_from_one_address_keeps_nobody_at_another_from_proving_himself(
    tmp_path: Path, figures: Figures, is_full: bool
) -> None:
    settings, tokens = tmp_path / "veredus.toml", tmp_path / "tokens"
    settings.write_text(f'[security]\ntokens = "{tokens}"\n[[security.rules]]\nprincipal = "*"\nmay = ["*"]\n')
    # A token that was proved once is not hashed again: each victim comes for the first time.
    victims = [add_token(tokens, f"victim-{number}")[0] for number in range(40 if is_full else 5)]
    first, known = add_token(tokens, "first")[0], add_token(tokens, "careless")[1]
    # Ten times as dear as usual, so that the flood is still there when the victims come, however slow it was.
    lines = tokens.read_text().splitlines(keepends=True)
    tokens.write_text("".join(line.replace("scrypt:12:", "scrypt:15:") if known.id in line else line for line in lines))
    wrong = m.Hello(token=f"veredus_{known.id}_{'x' * 43}")
    greeting = frames.encode_attach("", native.VERSION) + native.encode_message(0, wrong)
    served = ServedNode(tmp_path / "journal", {"SETTINGS": str(settings)})
    try:
        served.start(first).close()
        count = 900 if is_full else 250
        with neighbour(served.address, token=first) as felt, flooding(served.port, count, greeting):
            for token in victims:
                with Peer(served.port, token):
                    pass
            assert felt.trips_ms
        attack = figures.attack("wrong tokens from one address", f"{count} at once, {len(victims)} victims")
        attack.record("victims let in", len(victims), bound="all")
        attack.record_felt(felt)
    finally:
        served.kill()
