"""What is lost is named with the place of the node, and with why it was not confirmed, where that is known."""

import pytest

from veredus.client.losses import Losses
from veredus.kernel.errors import Misuse, Refused, VeredusError

LOST = "1 publication (stream 's', source 'a', the last number is 7)"
NAMED = f"the node at there has not confirmed {LOST}"


class Unsent:
    """Has one publication that the node did not confirm, for it has no room."""

    failure: VeredusError | None = None
    hindrance = "the node could not store the batch [disk-full]"

    def unnamed(self) -> str:
        return LOST


@pytest.mark.parametrize(
    ("no_link", "why"),
    [("", f": {Unsent.hindrance}"), ("no process listens there", ": no process listens there")],
    ids=["what the node said", "no link"],
)
def test_what_is_lost_at_the_end_is_named_with_the_node_and_the_reason(
    capsys: pytest.CaptureFixture[str], no_link: str, why: str
) -> None:
    losses, unsent = Losses(lambda: ("there", no_link)), Unsent()
    for _ in range(2):
        losses.say([unsent], "the program ends")
    said = f"veredus: the program ends, and {NAMED}{why}. Close what you open, e.g. by `with`.\n"
    assert capsys.readouterr().err == said, "once"
    losses = Losses(lambda: ("there", no_link))
    losses.keep(unsent, LOST, Misuse("closed", "this connection was closed"))
    assert [losses.unconfirmed(lost) for lost in losses.take()] == [NAMED + why]


def test_what_has_ended_for_good_is_named_with_its_end() -> None:
    losses, unsent = Losses(lambda: ("there", "")), Unsent()
    losses.keep(unsent, LOST, Refused("stream-deleted", "stream 's' was deleted"))
    assert losses.take() == [f"{LOST}, and takes no more of it: stream 's' was deleted [stream-deleted]"]
