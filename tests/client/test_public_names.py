"""What `dir()`, `help()` and the tab key show of the library's objects is what its page describes, and no insides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import veredus
from veredus.client.administration import AsyncSinks, AsyncStreams, AsyncSubscriptions
from veredus.client.blocking import Sinks, Streams, Subscriptions

PAGE = (Path(__file__).parents[2] / "docs/reference/client.md").read_text()
CODE = " ".join(re.findall(r"`[^`]+`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)))
ENDS = [
    veredus.Publisher,
    veredus.AsyncPublisher,
    veredus.Stage,
    veredus.AsyncStage,
    veredus.Subscription,
    veredus.AsyncSubscription,
    veredus.Reception,
    veredus.Node,
    veredus.AsyncNode,
    veredus.Sink,
    veredus.AsyncSink,
    veredus.Run,
    veredus.AsyncRun,
    Streams,
    AsyncStreams,
    Sinks,
    AsyncSinks,
    Subscriptions,
    AsyncSubscriptions,
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_each_public_name_of_what_a_user_holds_is_on_the_page_of_the_client(end: type) -> None:
    names = [name for name in dir(end) if not name.startswith("_")]
    assert [name for name in names if not re.search(rf"\b{name}\b", CODE)] == []
    assert [name for name in names if not getattr(end, name).__doc__] == []


@pytest.mark.parametrize("end", [veredus.Subscription, veredus.AsyncSubscription], ids=lambda end: end.__name__)
def test_settling_is_a_method_that_help_shows(end: type) -> None:
    assert "settle" in vars(end)
