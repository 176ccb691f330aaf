"""A relay between a client and a node, over real sockets, that can be cut: after so many bytes, or at once."""

import asyncio
import contextlib
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from veredus.client.loops import LoopThread


class Cutter:
    """Owns a Unix socket, and relays each connection to it to the node at `target`.

    `limits` says, for each connection in turn, after how many bytes from the client and to the client it is cut; the
    connections that follow are let be.
    """

    def __init__(self, target: str, limits: list[tuple[int, int]] | None = None) -> None:
        self.target = target.removeprefix("unix://")
        self.limits = list(limits or [])
        self.connection_count = 0
        self.is_open = True
        self.answers: list[bytes] = []
        """What the next connections are answered, each in turn, and closed."""
        self.damages = b""
        """Where these bytes pass, their last bit is turned, once."""
        self._directory = tempfile.TemporaryDirectory(prefix="veredus-")
        self.path = Path(self._directory.name) / "relay.socket"
        self.address = f"unix://{self.path}"
        self._thread = LoopThread()
        self._writers: list[asyncio.StreamWriter] = []
        self._thread.run(self._listen)

    async def _listen(self) -> None:
        self._server = await asyncio.start_unix_server(self._relay, str(self.path))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        self._writers.append(writer)
        if not self.is_open:
            writer.close()
            return
        if self.answers:
            answer = self.answers.pop(0)
            await reader.read(100)
            writer.write(answer)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                await reader.read()  # who writes to what is closed may not see the answer any more
            writer.close()
            return
        up_max, down_max = self.limits.pop(0) if self.limits else (1 << 60, 1 << 60)
        far_reader, far_writer = await asyncio.open_unix_connection(self.target)
        self._writers.append(far_writer)
        ways = [
            asyncio.ensure_future(self._copy(reader, far_writer, up_max)),
            asyncio.ensure_future(self._copy(far_reader, writer, down_max)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for end in (writer, far_writer):
            end.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size_max: int) -> None:
        left = size_max
        with contextlib.suppress(ConnectionError):
            while left and (data := await reader.read(min(left, 65_536))):
                if self.damages and (at := data.find(self.damages)) >= 0:
                    end = at + len(self.damages)
                    data = data[: end - 1] + bytes((data[end - 1] ^ 1,)) + data[end:]
                    self.damages = b""
                writer.write(data)
                await writer.drain()
                left -= len(data)

    def cut(self) -> None:
        """Cut all connections that are open."""
        self._thread.run(self._cut)

    async def _cut(self) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()

    def close(self) -> None:
        self._thread.run(self._close)
        self._thread.stop()
        self._directory.cleanup()

    async def _close(self) -> None:
        """Whoever still comes is turned away, and all have gone before the loop does."""
        self.is_open = False
        self._server.close()
        await self._cut()
        await self._server.wait_closed()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
