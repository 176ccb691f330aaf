"""Historical replay: one subscriber reads from the journal what was published before it came."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contender import Effort
from benchmarks.contenders import serving

_KEYS = [b"hot.key", *[b"cold.%02d" % index for index in range(1, 100)]]
"""One in a hundred matches the prefix."""
_COUNT_PER_SECOND = 2_000_000


@dataclass(frozen=True, slots=True)
class Replay:
    """Publishes, starts the node again so that nothing is in its memory, and reads all of it from the head."""

    name: str
    mode: str
    keys: str | None
    rounds_max: int = 3
    timeout_s: float = 120.0

    def missing(self) -> str | None:
        """Nothing: it is what is measured."""
        return None

    def versions(self) -> Mapping[str, str]:
        """The version of the node and its client, which are one package."""
        return serving.versions()

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Publications examined and received a second."""
        import veredus

        node = serving.start_node(workdir, workdir / "journal", {})
        try:
            with veredus.connect(serving.url(node.address)) as connection:
                count = serving.fill(connection, "bench", round(_COUNT_PER_SECOND * effort.seconds), _KEYS)
        finally:
            node.stop()
        node = serving.start_node(workdir, workdir / "journal", {})
        try:
            with veredus.connect(serving.url(node.address)) as connection:
                start_s, received_count = time.perf_counter(), 0
                subscription = connection.subscribe(
                    "bench", keys=self.keys, start=veredus.beginning(), until=count + 1, window_size=16 << 20
                )
                for batch in subscription.batches():
                    received_count += len(batch)
                seconds = time.perf_counter() - start_s
                subscription.close()
        finally:
            node.stop()
        wanted_count = count if self.keys is None else -(-count // len(_KEYS))
        if received_count != wanted_count:
            raise RuntimeError(f"{received_count} publications received, {wanted_count} expected")
        return {"examined_hz": count / seconds, "received_hz": received_count / seconds}


_MODE = "100-byte bodies, read from the journal (its pages cached) by one new subscriber through `batches()`"


def whole() -> Replay:
    """Everything."""
    return Replay("veredus-replay", f"{_MODE}, unfiltered, each batch verified", None)


def filtered() -> Replay:
    """What a key prefix leaves: one in a hundred."""
    return Replay("veredus-replay-filtered", f"{_MODE}, by a key prefix that matches one in a hundred", "prefix:hot.")
