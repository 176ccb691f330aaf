"""A command whose node goes away says so, and says when it is back; a node that is back at once is not worth a word."""

import time

import pytest

from tests.cli.conftest import Veredus
from tests.cli.test_pipes import started
from tests.client.cutter import Cutter
from tests.processes import Child
from veredus.cli.exits import Exit
from veredus.cli.link import SILENCE_S
from veredus.client.embedded import Embedded

STREAM = "trades"


def next_said(child: Child) -> str:
    assert child.stderr is not None
    return child.stderr.readline().decode()


@pytest.mark.parametrize("verb", ["sub", "pub"])
def test_a_node_that_goes_and_comes_back_is_told_once_each_time(node: Embedded, verb: str) -> None:
    node.streams.create(STREAM)
    with node.publisher(STREAM) as publisher, Cutter(node.served.address) as cutter:
        publisher.wait(publisher.publish("", "one"))
        with started(verb, STREAM, "-a", cutter.address, *(("--count", "2") if verb == "sub" else ())) as child:
            assert child.stdin is not None
            if verb == "sub":
                assert child.stdout is not None
                assert child.stdout.readline() == b"one\n"
            else:
                child.stdin.write(b"two\n")
                child.stdin.flush()
                while node.streams.show(STREAM)["head"] < 2:
                    time.sleep(0.01)
            for _ in range(2):
                cutter.is_open = False
                cutter.cut()
                assert next_said(child) == f"the connection to {cutter.address} is lost: trying again\n"
                cutter.is_open = True
                assert next_said(child) == f"connected to {cutter.address} again\n"
            cutter.cut()
            time.sleep(SILENCE_S / 2)
            publisher.publish("", "two")
            child.stdin.close()
            assert child.wait(20) == Exit.OK
            assert next_said(child) == ""


def test_who_leaves_a_node_is_not_told_that_it_has_gone(run_veredus: Veredus, node: Embedded) -> None:
    for _ in range(2):
        assert run_veredus("stream", "ls").err == ""
        time.sleep(SILENCE_S * 0.75)
