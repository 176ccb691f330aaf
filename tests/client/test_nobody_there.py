"""Where nobody listens, the caller hears so soon; where somebody comes in time, all is well."""

import inspect
import re
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import veredus
from tests.certificates import CERTIFICATES
from tests.processes import beside
from veredus.client.embedded import Embedded
from veredus.kernel.errors import Refused, Unavailable
from veredus.protocols.zeps.frames import encode_invalid
from veredus.runtime.security import client_context


def refusing_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_ports_that_refuse_end_the_attempt_long_before_the_timeout() -> None:
    addresses = [f"127.0.0.1:{refusing_port()}", "unix:///nowhere/at/all"]
    began = time.monotonic()
    with pytest.raises(Unavailable, match="no process listens there") as caught:
        veredus.connect(*addresses, timeout_s=30, refused_s=0.2)
    assert caught.value.code == "unreachable"
    assert time.monotonic() - began < 10


def test_a_port_that_refuses_is_given_up_after_two_seconds_unless_said_otherwise() -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"no process listens there.*tried for 2 s") as caught:
        veredus.connect(f"127.0.0.1:{refusing_port()}")
    assert caught.value.code == "unreachable"
    assert 2 <= time.monotonic() - began < 5
    for opening in (veredus.connect, veredus.connect_async):
        assert inspect.signature(opening).parameters["refused_s"].default == 2.0


def test_a_longer_time_for_a_node_that_starts_is_used_where_no_other_limit_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("veredus.client.node.TIMEOUT_S", 0.3)
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"no process listens there \(tried for 1 s\)"):
        veredus.connect(f"127.0.0.1:{refusing_port()}", refused_s=1)
    assert time.monotonic() - began >= 1
    with pytest.raises(Unavailable, match=r"no process listens there \(tried for 0\.2 s\)"):
        veredus.connect(f"127.0.0.1:{refusing_port()}", refused_s=1, timeout_s=0.2)


def test_a_node_that_comes_within_that_time_is_found(node: Embedded, tmp_path: Path) -> None:
    place = tmp_path / "late.socket"
    late = threading.Timer(0.2, lambda: place.symlink_to(node.served.address.removeprefix("unix://")))
    late.start()
    with veredus.connect(f"unix://{place}", refused_s=10) as far:
        assert far.name == node.name
    late.join()


def test_a_node_is_found_by_a_path_that_is_longer_than_an_address_of_a_socket(node: Embedded, tmp_path: Path) -> None:
    place = tmp_path / ("d" * 100) / ("e" * 100) / "far.socket"
    with pytest.raises(Unavailable, match="this path does not exist"):
        veredus.connect(f"unix://{place}", refused_s=0.1)
    place.parent.mkdir(parents=True)
    place.symlink_to(node.served.address.removeprefix("unix://"))
    with veredus.connect(f"unix://{place}", refused_s=10) as far:
        assert far.name == node.name


@pytest.mark.parametrize(("host", "authority"), [("127.0.0.1", ""), ("127.0.0.2", "authority.pem")])
def test_a_certificate_that_is_not_accepted_is_told_at_once_with_the_address(host: str, authority: str) -> None:
    section = {"certificate": str(CERTIFICATES / "node.pem"), "key": str(CERTIFICATES / "node.key")}
    with veredus.embedded(listen={"tls": f"{host}:0"}, tls=section) as node:
        place = f"veredus+tls://{node.served.addresses['tls']}"
        tls = client_context(str(CERTIFICATES / authority)) if authority else None
        with pytest.raises(Refused, match=f"^{re.escape(place)}: the node's certificate is not accepted") as told:
            veredus.connect(place, tls=tls, timeout_s=60)
        assert told.value.code == "bad-certificate"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\xff" + bytes(9), "the server there speaks ZeroMQ, not Veredus' native protocol"),
        (b"HTTP/1.1 400 Bad Request\r\n", "the server there speaks HTTP, not Veredus' native protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "the server there speaks TLS, not Veredus' native protocol"),
        (b"220 mail", "the server there does not speak Veredus' native protocol"),
        (encode_invalid("version 2 is not spoken here"), "the server there does not speak Veredus' native protocol"),
    ],
    ids=["ZeroMQ", "HTTP", "TLS", "SMTP", "ZEPS 1 alone"],
)
def test_a_port_of_another_protocol_is_named_with_its_address_and_the_listener_that_is_meant(
    answer: bytes, said: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            link, _ = listener.accept()
            with link, suppress(ConnectionResetError):
                link.recv(100)
                link.sendall(answer)
                link.recv(1)

        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with beside(speak), pytest.raises(Refused, match=f"^{address}: {said}.*listen.tcp, port 7071") as told:
            veredus.connect("unix:///nowhere/at/all", address, timeout_s=60)
        assert told.value.code == "version-unknown"
        assert "ZEPS" not in told.value.message


def test_a_request_that_no_node_answers_names_the_addresses_and_the_call(tmp_path: Path) -> None:
    with veredus.embedded() as node, veredus.connect(node.served.address, timeout_s=0.3) as far:
        node.close()
        where = re.escape(node.served.address)
        said = rf"^no node answered streams\.list\(\) in 0\.3 s, at {where}: "
        with pytest.raises(Unavailable, match=said) as told:
            far.streams.list()
        assert told.value.code == "no-answer"


def test_one_address_that_does_not_refuse_keeps_the_attempt_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        addresses = [f"127.0.0.1:{refusing_port()}", f"127.0.0.1:{silent.getsockname()[1]}"]
        with pytest.raises(Unavailable, match="no node answered") as caught:
            veredus.connect(*addresses, timeout_s=0.6, refused_s=0.1)
    assert "nobody listens" not in caught.value.message


MAY_BE = (
    "the node may be stopping, or down behind a forwarder or load balancer, or expect TLS (write veredus+tls://);"
    " or something else listens there"
)


def test_who_closes_the_connection_before_an_answer_is_not_said_to_want_tls_for_sure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    listener.accept()[0].close()

        place = f"veredus://127.0.0.1:{listener.getsockname()[1]}"
        hanging_up = threading.Thread(target=hang_up)
        hanging_up.start()
        try:
            with pytest.raises(Unavailable) as caught:
                veredus.connect(place, timeout_s=0.5)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            hanging_up.join()
    assert caught.value.code == "unreachable"
    known = "the connection was accepted; before an answer came, the connection was lost"
    assert re.fullmatch(rf"no node answered at {place}: {known} \([^()]+\); {re.escape(MAY_BE)}", caught.value.message)


def test_who_accepts_the_connection_and_says_nothing_is_told_with_the_time_that_was_waited() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"veredus://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(Unavailable) as caught:
            veredus.connect(place, timeout_s=1)
    assert caught.value.code == "unreachable"
    said = rf"no node answered at {place}: the connection was accepted; no answer came in [\d.]+ s; {re.escape(MAY_BE)}"
    assert re.fullmatch(said, caught.value.message)


def test_a_path_that_accepts_and_says_nothing_is_not_said_to_want_tls(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        with pytest.raises(Unavailable, match="down behind a forwarder or load balancer; or something") as caught:
            veredus.connect(f"unix://{tmp_path}/s", timeout_s=1)
    assert "TLS" not in caught.value.message
