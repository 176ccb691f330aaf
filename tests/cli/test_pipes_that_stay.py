"""A command that reads from a pipe ends with what it publishes as, however long nothing comes through the pipe."""

from collections.abc import Callable
from subprocess import TimeoutExpired

import pytest

from tests.cli.test_pipes import started, wait_for_head
from tests.processes import Child, wait_until
from veredus.cli.exits import Exit
from veredus.client.embedded import Embedded

STREAM, SOURCE = "log", "tail"


def publishing(node: Embedded, *options: str) -> Child:
    """A command that has published one line of a pipe that stays open."""
    node.streams.create(STREAM)
    child = started("pub", STREAM, "--source", SOURCE, "-a", node.served.address, *options)
    assert child.stdin is not None
    child.stdin.write(b"one\n")
    child.stdin.flush()
    wait_for_head(node, STREAM, 1)
    return child


def said_by(child: Child) -> str:
    assert child.stderr is not None
    return child.stderr.read().decode()


def take_over(node: Embedded) -> None:
    with node.publisher(STREAM, source=SOURCE):
        pass


def delete(node: Embedded) -> None:
    node.streams.delete(STREAM)


@pytest.mark.parametrize("options", [(), ("--resume",)], ids=["numbers", "resume"])
@pytest.mark.parametrize(
    ("end", "code", "exit_code"),
    [(take_over, "fenced", Exit.FENCED), (delete, "stream-deleted", Exit.REFUSED)],
    ids=["fenced", "deleted"],
)
def test_who_may_not_go_on_ends_though_nothing_comes_through_the_pipe(
    node: Embedded, options: tuple[str, ...], end: Callable[[Embedded], None], code: str, exit_code: Exit
) -> None:
    with publishing(node, *options) as child:
        end(node)
        assert child.wait(20) == exit_code
        said = said_by(child)
        assert f"[{code}]" in said
        assert ("--from" in said, "run the same command" in said) == (False, False)


def test_who_is_fenced_does_not_end_well_as_the_pipe_ends(node: Embedded) -> None:
    with publishing(node) as child:
        take_over(node)
        # The node has told the older publisher before it told the newer one that it is attached.
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(20) == Exit.FENCED
        assert "[fenced]" in said_by(child)


def test_a_pipe_that_is_idle_ends_nobody_who_may_go_on(node: Embedded) -> None:
    with publishing(node) as child:
        assert child.stdin is not None
        with pytest.raises(TimeoutExpired):
            child.wait(1.5)
        child.stdin.write(b"two\n")
        child.stdin.close()
        assert child.wait(20) == Exit.OK
    wait_until(lambda: node.streams.show(STREAM)["head"] == 2)
