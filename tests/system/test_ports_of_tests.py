"""Processes of tests take no port of each other's: a killed node's port is free until it starts again."""

from __future__ import annotations

import sys

from tests.processes import Child, free_port

TAKE = "from tests.processes import free_port; print(*(free_port() for _ in range(300)), flush=True); input()"


def test_processes_that_live_at_once_are_given_no_port_twice() -> None:
    """Each takes more ports than a block has, and listens on none of them."""
    ours = {free_port() for _ in range(300)}
    with (
        Child([sys.executable, "-c", TAKE], stdin=-1, stdout=-1) as one,
        Child([sys.executable, "-c", TAKE], stdin=-1, stdout=-1) as other,
    ):
        taken = [{int(port) for port in child.stdout.readline().split()} for child in (one, other) if child.stdout]
    everybody = [ours, *taken]
    assert all(everybody)
    assert len(set[int]().union(*everybody)) == sum(map(len, everybody))
