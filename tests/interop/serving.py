"""A whole node on real sockets and files, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from veredus.node.settings import JournalSection, ListenSection, NodeSection, NodeSettings
from veredus.runtime.serve import Node

TIMEOUT_S = 30


class Serving:
    """Owns a node; `addresses` says where its doors are."""

    def __init__(self, directory: Path, zeromq: str = "tcp://127.0.0.1:0") -> None:
        self.directory = directory
        self._zeromq = zeromq
        self.addresses: dict[str, str] = {}
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(TIMEOUT_S)
        if self._failure is not None:
            raise self._failure

    @property
    def tcp(self) -> tuple[str, int]:
        host, _, port = self.addresses["tcp"].rpartition(":")
        return host, int(port)

    def _serve(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        settings = NodeSettings(
            node=NodeSection(directory=str(self.directory)),
            listen=ListenSection(tcp="127.0.0.1:0", zeromq=self._zeromq, metrics=""),
            journal=JournalSection(segment_size=4 << 20),
        )
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            node = Node(settings)
            await node.start()
            self.addresses = node.addresses
        except BaseException as error:  # noqa: BLE001 the test that waits is to see it
            self._failure = error
            return
        finally:
            self._ready.set()
        await self._stopping.wait()
        await node.stop()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
