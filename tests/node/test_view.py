"""The figures of single streams and subscriptions are read in turns, and these come and go meanwhile."""

from types import SimpleNamespace
from typing import cast

import pytest

from tests.streams.rig import Rig
from veredus.node.engine import NodeEngine
from veredus.node.view import _streams, _subscriptions
from veredus.streams import exchange as x


@pytest.mark.parametrize(("read", "count"), [(_streams, 3), (_subscriptions, 4)])
def test_a_stream_may_go_and_another_come_between_two_figures(read: object, count: int) -> None:
    rig = Rig()
    rig.attach(1)
    rig.subscribe(2, "bob")
    rig.subscribe(3, "eve")
    assert callable(read)
    figures = read(cast("NodeEngine", SimpleNamespace(floor=rig.floor, log=rig.log)))
    next(figures)
    rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "s"}))
    rig.attach(4, stream="other")
    rig.give_turns()
    assert len(list(figures)) >= count - 1
