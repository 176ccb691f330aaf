"""A link that is lost is gone at once, with what was not written to it, and not when garbage is collected."""

import asyncio
import errno
import gc
import os
from pathlib import Path

import pytest

from tests.certificates import CERTIFICATES
from tests.interop.ears import Ear, Zeps1Ear, over_tcp, over_tls
from veredus.node.settings import ListenSection, NodeSection, NodeSettings, TlsSection
from veredus.runtime.serve import Node
from veredus.runtime.sockets import StreamLink, words_of_end


def links() -> int:
    return sum(isinstance(thing, StreamLink) for thing in gc.get_objects())


@pytest.mark.parametrize("listener", ["tcp", "tls"])
def test_nothing_holds_on_to_a_link_that_is_lost(tmp_path: Path, listener: str) -> None:
    settings = NodeSettings(
        node=NodeSection(directory=str(tmp_path / "node")),
        listen=ListenSection(tcp="127.0.0.1:0", tls="127.0.0.1:0", zeromq="", metrics=""),
        tls=TlsSection(certificate=str(CERTIFICATES / "node.pem"), key=str(CERTIFICATES / "node.key")),
    )

    def peer(address: str) -> Ear:
        encrypted = listener == "tls"
        return Zeps1Ear(over_tls(address, CERTIFICATES / "authority.pem") if encrypted else over_tcp(address))

    async def run() -> None:
        node = Node(settings)
        await node.start()
        before = links()
        ears = [await asyncio.to_thread(peer, node.addresses[listener]) for _ in range(3)]
        assert links() == before + 3
        for ear in ears:
            ear.close()
        while node.host.links:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert links() <= before + 1, "who goes through all links may hold the last one for a while"
        await node.stop()

    gc.collect()
    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, "closed"),
        (BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)), "closed"),
        (ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)), "Connection reset by peer"),
        (ConnectionError("Connection lost"), "Connection lost"),
    ],
)
def test_a_peer_that_leaves_before_it_has_read_all_has_closed_its_connection(
    error: Exception | None, words: str
) -> None:
    assert words_of_end(error) == words
