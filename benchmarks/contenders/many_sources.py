"""Hundreds of sources in one asyncio process: each publishes a few, and waits for the receipt of the last."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.contender import Effort
from benchmarks.contenders import serving

if TYPE_CHECKING:
    import veredus

SOURCES: Final = (1, 100, 1_000)
BULKS: Final = (10, 100)
_COUNT_PER_SECOND: Final = 40_000
_BODY: Final = bytes(100)


@dataclass(frozen=True, slots=True)
class ManySources:
    """One connection; every `publish` is awaited, and behind each bulk its last receipt."""

    name: str = "veredus-many-sources"
    mode: str = (
        "1, 100 and 1,000 sources on one stream, one connection of one asyncio process (uvloop); each source awaits"
        " `publish` of 10 or 100 publications (100-byte bodies), then the receipt of the last, again and again;"
        " `sync group`"
    )
    rounds_max: int = 3
    timeout_s: float = 180.0

    def missing(self) -> str | None:
        """Nothing: it is what is measured."""
        return None

    def versions(self) -> Mapping[str, str]:
        """The version of the node and its client, which are one package."""
        return serving.versions()

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Publications a second by sources and bulk, and what 1,000 sources do of what one does."""
        import uvloop

        node = serving.start_node(workdir, workdir / "journal", {"limits.channels_max": "2000"})
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                figures = runner.run(_measure(node.address, effort.seconds))
        finally:
            node.stop()
        for bulk in BULKS:
            figures[f"ratio_of_{bulk}"] = figures[f"rate_hz_1000_of_{bulk}"] / figures[f"rate_hz_1_of_{bulk}"]
        return figures


async def _measure(address: str, seconds: float) -> dict[str, float]:
    import veredus

    figures: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    async with veredus.connect_async(serving.url(address), timeout_s=60) as node:
        for sources in SOURCES:
            publishers = [await node.publisher("bench", source=f"{sources}-{index}") for index in range(sources)]
            for bulk in BULKS:
                rounds = max(2, round(_COUNT_PER_SECOND * seconds / sources / bulk))
                await asyncio.gather(*(_published(publisher, bulk, 2) for publisher in publishers))
                began_s = loop.time()
                await asyncio.gather(*(_published(publisher, bulk, rounds) for publisher in publishers))
                figures[f"rate_hz_{sources}_of_{bulk}"] = sources * bulk * rounds / (loop.time() - began_s)
    return figures


async def _published(publisher: veredus.AsyncPublisher, bulk: int, rounds: int) -> None:
    for _ in range(rounds):
        for _ in range(bulk):
            number = await publisher.publish(b"key", _BODY)
        await publisher.wait(number)
