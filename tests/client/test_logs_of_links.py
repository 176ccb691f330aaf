"""Who reads the log hears that a node is gone, and that it is back; each once, and nothing where the program closes."""

import logging

import pytest

import veredus


def lines_of(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "veredus"]


def test_the_log_says_once_that_the_node_is_gone_and_once_that_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with veredus.embedded() as node:
        served = node.served
        served.stop()
        with pytest.raises(veredus.Unavailable):
            veredus.connect(served.address, refused_s=0.5)
        where = f"the connection to the node at {served.address} is"
        assert lines_of(caplog) == [
            (logging.WARNING, f"{where} lost, and is tried again: the node is stopping"),
        ]
        served.start()
        node.streams.list()
        assert lines_of(caplog)[1:] == [(logging.INFO, f"{where} back")]
        caplog.clear()
    assert lines_of(caplog) == []
