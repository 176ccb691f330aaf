"""A principal that asks a listener of topics for all that it can: others are answered meanwhile, and soon."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import zmq

from tests.attack.figures import Figures
from tests.attack.neighbour import forget_peak, resident_size, resident_size_peak
from tests.interop.serving_topics_secured import PLAIN, SecuredService, Shown
from tests.system.serving_topics import said
from veredus.runtime.security import add_token

pytestmark = pytest.mark.slow

MIB = 1 << 20
WORST_S = 5.0
"""Where little else runs it is less than one; without shares it was a quarter of a minute."""
RATE = MIB
GREEDY = """
[[security.rules]]
principal = "greedy*"
may = ["*"]
"""


@pytest.fixture(scope="module")
def service_with(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], SecuredService]]:
    """One service for all that ask for the same limits; each finds it as the one before has left it."""
    started: dict[str, SecuredService] = {}

    def service_with(limits: str) -> SecuredService:
        if limits not in started:
            service = started[limits] = SecuredService(tmp_path_factory.mktemp("greedy"), PLAIN, "100ms", life_s=300)
            service.shown["greedy"] = Shown(add_token(service.tokens, "greedy")[0])
            with service.config.open("a") as config:
                config.write(GREEDY + limits)
            service.start()
        return started[limits]

    yield service_with
    for service in started.values():
        service.end()


@contextmanager
def flooded(address: str, token: str, count: int, size: int, seconds: float, reads: bool) -> Iterator[list[int]]:
    """While somebody floods; how many answers he read, and how many said to try again, once the block is left."""
    told: list[int] = []
    command = [sys.executable, "-m", "tests.attack.flooding_topics", address, token]
    with subprocess.Popen(
        [*command, str(count), str(size), str(seconds), str(int(reads))], stdout=subprocess.PIPE, text=True
    ) as flooder:
        assert flooder.stdout is not None
        assert flooder.stdout.readline() == "ready\n"
        try:
            yield told
            told += map(int, flooder.stdout.readline().split())
        finally:
            flooder.kill()


def put(service: SecuredService, address: str) -> None:
    """A PUT of alice's, under a number of its own."""
    number = time.time_ns() // 1000
    assert service.ask(f"PUT alice attacked {number}", b"hers", address=address).status == "OK"


def worst_put_s(service: SecuredService, address: str, seconds: float) -> float:
    """The longest that a PUT of alice's took, one after the other."""
    worst_s, end_s = 0.0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        began_s = time.monotonic()
        put(service, address)
        worst_s = max(worst_s, time.monotonic() - began_s)
    return worst_s


def place_of(service: SecuredService, place: str) -> tuple[str, int]:
    """The address of a listener of topics, and the number of its process."""
    process = service.proxy.process if place == "proxy" else service.nodes[0].process
    assert process is not None
    return service.proxy.address if place == "proxy" else service.servers[0], process.pid


@pytest.mark.parametrize("place", ["proxy", "server"])
@pytest.mark.parametrize(("size", "reads"), [(10, True), (10, False), (200_000, True)])
def test_who_asks_without_a_pause_keeps_nobody_waiting(
    place: str,
    size: int,
    reads: bool,
    service_with: Callable[[str], SecuredService],
    figures: Figures,
    is_full: bool,
) -> None:
    seconds, count = (20.0, 100) if is_full else (1.5, 20)
    service = service_with("")
    address, pid = place_of(service, place)
    put(service, address)
    forget_peak(pid)
    before = resident_size(pid)
    with flooded(address, service.shown["greedy"].token, count, size, seconds + 1, reads):
        time.sleep(0.5)
        worst_s = worst_put_s(service, address, seconds)
    rise = resident_size_peak(pid) - before
    attack = figures.attack(
        f"topics: PUTs of one principal at a {place}, {'small' if size < 100 else 'large'}, answers"
        f" {'' if reads else 'un'}read",
        f"{count} connections, bodies of {size:,} bytes",
    )
    attack.record("longest PUT of a neighbour", worst_s * 1000, "ms", f"at most {WORST_S:g} s")
    attack.record("growth", rise / MIB, "MiB")
    assert worst_s < WORST_S


@pytest.mark.parametrize("place", ["proxy", "server"])
@pytest.mark.parametrize("direction", ["received", "sent"])
def test_a_principal_over_its_quota_is_told_to_try_again_and_its_neighbour_is_not(
    place: str, direction: str, service_with: Callable[[str], SecuredService], figures: Figures
) -> None:
    quota = RATE if direction == "received" else 1000
    service = service_with(f"[limits]\n{direction}_per_principal_max = {quota}\n")
    address, _ = place_of(service, place)
    put(service, address)
    with flooded(address, service.shown["greedy"].token, 2, 50_000, 2, True) as told:
        time.sleep(1)
        worst_s = worst_put_s(service, address, 0.5)
    answered, refused = told
    taken = (answered - refused) * 50_000
    attack = figures.attack(f"topics: more than a quota allows, {direction}, at a {place}")
    attack.record("longest PUT of a neighbour", worst_s * 1000, "ms", f"at most {WORST_S:g} s")
    assert refused > 0
    assert worst_s < WORST_S
    if direction == "received":
        assert taken <= RATE * 4


def test_a_proxy_does_not_hide_whose_bytes_they_are_from_the_quotas_of_a_server(
    service_with: Callable[[str], SecuredService],
) -> None:
    service = service_with("[limits]\nreceived_per_principal_max = 1000000\n")
    assert service.ask("PUT alice attacked 1", b"hers").status == "OK"
    # As the proxy itself: what it asks is asked for whom it names.
    with service.socket(service.servers[0], service.shown["proxy"], zmq.DEALER) as member:

        def put_for(principal: str, counter: int, size: int) -> str:
            question = f"PUT {principal} counted {counter}\r\n\r\n".encode() + bytes(size)
            member.send_multipart((b"for " + principal.encode(), b"", question))
            assert member.poll(10_000)
            return said(member.recv_multipart()[-1]).status

        assert [put_for("greedy", counter, 900_000) for counter in (1, 2, 3)] == ["OK", "OK", "SERVER_UNAVAILABLE"]
        assert put_for("alice", 1, 10) == "OK"


@pytest.mark.parametrize("place", ["proxy", "server"])
def test_a_principal_has_no_more_connections_for_topics_than_it_may(
    place: str, service_with: Callable[[str], SecuredService]
) -> None:
    service = service_with("[limits]\nconnections_per_principal_max = 3\n")
    address, _ = place_of(service, place)
    held = [service.socket(address, service.shown["greedy"], zmq.DEALER) for _ in range(6)]
    try:
        for socket in held:
            socket.send_multipart((b"", b"SUBSCRIBE greedy many\r\n\r\n"))
        service.wait_for(lambda: sum(socket.poll(0) > 0 for socket in held) >= 3, "three are answered")
        time.sleep(0.5)
        assert sum(socket.poll(0) > 0 for socket in held) == 3
        assert service.ask("SUBSCRIBE alice attacked", address=address).status in ("OK", "ALREADY_SUBSCRIBED")
    finally:
        for socket in held:
            socket.close()
