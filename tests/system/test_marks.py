"""The file that marks a journal as restored, where it is no file, or one that nobody can remove."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import ran
from tests.processes import wait_until
from tests.system.serving import ServedNode
from veredus.cli.exits import Exit


def publish(served: ServedNode, count: int) -> None:
    with served.start() as node, node.publisher("s") as publisher:
        publisher.publish_many(["k"] * count, [b"x"] * count)


def test_a_mark_that_is_no_file_is_refused_at_the_start_and_by_verify_and_begins_no_term(
    served: ServedNode, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(served, 3)
    assert served.stop() == 0
    mark = served.directory / "restored"
    mark.mkdir()
    assert served.spawn().wait(20) == Exit.REFUSED
    assert f"'{mark}' is no file" in served.said()
    assert "[journal-directory]" in served.said()
    for command in ("verify", "restored"):
        done = ran(capfd, "journal", command, served.directory)
        assert done.code == Exit.REFUSED
        assert f"'{mark}' is no file" in done.err
        assert "[journal-directory]" in done.err
    mark.rmdir()
    with served.start() as node:
        assert node.streams.show("s")["term"] == 1


def test_a_node_goes_on_with_a_mark_that_it_cannot_remove_and_says_that_the_next_start_begins_a_term_again(
    served: ServedNode, capfd: pytest.CaptureFixture[str], untouchable: Callable[[Path], None]
) -> None:
    publish(served, 3)
    assert served.stop() == 0
    assert ran(capfd, "journal", "restored", served.directory).code == Exit.OK
    untouchable(served.directory / "restored")
    terms = []
    for _ in range(2):
        with served.start() as node:
            wait_until(lambda: "restored-not-removed" in served.said())
            with node.publisher("s") as publisher:
                publisher.wait(publisher.publish("k", b"x"), timeout_s=20)
            terms.append(node.streams.show("s")["term"])
        assert served.stop() == 0
        assert '"reason": "Operation not permitted (restored)"' in served.said().replace('":"', '": "')
        served.log.write_text("")
    assert terms[0] < terms[1]
    done = ran(capfd, "journal", "verify", served.directory)
    assert (done.code, done.err.endswith("sound\n")) == (Exit.OK, True)
