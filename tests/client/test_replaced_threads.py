"""Threads that gevent or eventlet has put in the place of the system's."""

import _thread

import pytest

from veredus.client.loops import LoopThread
from veredus.kernel.errors import Misuse


@pytest.mark.parametrize(
    ("module", "cure"),
    [
        ("gevent.thread", r"gevent.monkey.patch_all\(thread=False\)"),
        ("eventlet.green.thread", r"eventlet.monkey_patch\(thread=False\)"),
    ],
)
def test_who_connects_is_told_how_to_keep_the_threads(monkeypatch: pytest.MonkeyPatch, module: str, cure: str) -> None:
    def start_new_thread(*_: object) -> None: ...

    start_new_thread.__module__ = module
    monkeypatch.setattr(_thread, "start_new_thread", start_new_thread)
    with pytest.raises(Misuse, match=cure) as refused:
        LoopThread()
    assert refused.value.code == "replaced-threads"
