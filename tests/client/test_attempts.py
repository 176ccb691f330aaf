"""Applications that die of what they are handed, as processes: what is tried too often is parked, and nothing else."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import veredus
from veredus.client.embedded import Embedded

LIFE = """
import os, sys
import veredus
address, poison, settled_max, rest = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
node = veredus.connect(address)
jobs = node.subscribe("jobs", subscriber="worker", mode="individual", attempts_max=2, parked_to="dead", window_size=1,
                      until=rest)
for count, job in enumerate(jobs):
    if job.sequence == poison:
        os._exit(3)
    if count == settled_max:
        os._exit(4)
    jobs.settle(job)
    jobs.wait_settled(job)
jobs.close()
os._exit(0)
"""

LIFE_ASYNC = """
import asyncio, os, sys
import veredus
address, poison, settled_max, rest = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
async def live():
    node = await veredus.connect_async(address)
    jobs = await node.subscribe("jobs", subscriber="worker", mode="individual", attempts_max=2, parked_to="dead",
                                window_size=1, until=rest)
    count = 0
    async for job in jobs:
        if job.sequence == poison:
            os._exit(3)
        if count == settled_max:
            os._exit(4)
        jobs.settle(job)
        await jobs.wait_settled(job)
        count += 1
    await jobs.close()
asyncio.run(live())
os._exit(0)
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Embedded]:
    with veredus.embedded(journal={"sync": "none"}, listen={"tcp": "127.0.0.1:0"}) as node:
        yield node


@pytest.fixture(params=[LIFE, LIFE_ASYNC], ids=["blocking", "asyncio"])
def run(served: Embedded, request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """One life of a worker that dies of the poison, or after so many; its exit code."""
    for name in ("jobs", "dead"):
        if name in [stream["name"] for stream in served.streams.list()]:
            served.streams.delete(name)
        served.streams.create(name)
    with served.publisher("jobs", source="p") as publisher:
        publisher.publish_many([b""] * 100, [b"x"] * 100)

    def live(poison: int, settled_max: int) -> int:
        command = [sys.executable, "-c", request.param, served.served.address, str(poison), str(settled_max), "101"]
        return subprocess.run(command, check=False, timeout=30).returncode

    return live


def parked(node: Embedded) -> list[int]:
    head = node.streams.show("dead")["head"]
    if not head:
        return []
    with node.subscribe("dead", until=head + 1) as dead:
        return [int(publication.attributes["veredus.sequence"]) for publication in dead]  # type: ignore[arg-type]


def test_a_job_that_no_application_was_handed_is_never_parked(served: Embedded, run: Callable[[int, int], int]) -> None:
    for _ in range(3):
        assert run(0, 10) == 4
    assert parked(served) == []
    assert served.subscriptions.show("jobs", "worker")["floor"] == 30


def test_a_job_that_kills_each_process_that_takes_it_is_parked_alone(
    served: Embedded, run: Callable[[int, int], int]
) -> None:
    codes = [run(5, 1000)]
    while codes[-1] == 3:
        codes.append(run(5, 1000))
    assert codes[-1] == 0
    assert codes[:-1] in ([3, 3], [3, 3, 3]), "two attempts that the node heard of, and one at most that it did not"
    assert parked(served) == [5]
