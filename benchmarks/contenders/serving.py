"""A node in a process of its own: started by its command line, with the settings that a measurement names."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.broker import Broker, free_port, serve

if TYPE_CHECKING:
    import pyarrow as pa

    import veredus

TIMEOUT_S: Final = 20.0
BODY_SIZE: Final = 100
_FILL_COUNT: Final = 8_000


def start_node(workdir: Path, directory: Path, settings: Mapping[str, str]) -> Broker:
    """Start a node on the journal in `directory` and wait until it listens; its log goes to `workdir`."""
    port = free_port()
    chosen = {
        "node.directory": str(directory),
        "listen.tcp": f"127.0.0.1:{port}",
        "listen.zeromq": "",
        "listen.metrics": "",
        "log.level": "warning",
        **settings,
    }
    argv = [str(Path(sys.executable).with_name("veredus")), "serve"]
    for name, value in chosen.items():
        argv += ["--set", f"{name}={value}"]
    return serve(argv, port, workdir)


def url(address: str) -> str:
    """What the client library is given for a node at `address`."""
    return f"veredus://{address}"


def versions() -> Mapping[str, str]:
    """The version of the node and its client, which are one package."""
    return {"veredus": importlib.metadata.version("veredus")}


def table(count: int, keys: list[bytes]) -> pa.RecordBatch:
    """Publications with bodies of `BODY_SIZE` bytes that do not compress, and these keys in turn."""
    import pyarrow as pa

    octets = np.random.default_rng(0).bytes(count * BODY_SIZE)
    bodies = [octets[start : start + BODY_SIZE] for start in range(0, len(octets), BODY_SIZE)]
    chosen = [keys[index % len(keys)] for index in range(count)]
    columns = [pa.array(chosen, pa.binary()), pa.array(bodies, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["key", "body"])


def fill(connection: veredus.Node, stream: str, count: int, keys: list[bytes]) -> int:
    """Publish at least `count` publications with these keys in turn, wait until they are durable; how many they are."""
    rows = table(_FILL_COUNT, keys)
    published_count = 0
    with connection.publisher(stream) as publisher:
        while published_count < count:
            publisher.publish_table(rows, key="key", body="body")
            published_count += len(rows)
    return published_count


def memory(pid: int, field: str) -> int:
    """A line of a process's memory in bytes: `VmRSS` for what is resident now, `VmHWM` for the most there was."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) << 10
    raise LookupError(f"process {pid} has no {field}")
