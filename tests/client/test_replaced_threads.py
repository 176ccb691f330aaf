"""What a program has put in the place of Python's own: threads of gevent or eventlet, and a file named as a module."""

import _thread
import sys
from pathlib import Path

import pytest

from tests.processes import ended
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


CONNECTS = "import veredus\nveredus.connect('127.0.0.1:9', refused_s=0.1)\n"


@pytest.mark.parametrize("arguments", [("queue.py",), ("-c", CONNECTS)], ids=["the program", "beside it"])
def test_a_file_that_hides_a_module_of_python_is_named_and_nobody_waits_for_ever(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    pytest.importorskip("uvloop", reason="its import leads to that of queue")
    (tmp_path / "queue.py").write_text(CONNECTS, encoding="utf-8")
    done = ended([sys.executable, *arguments], cwd=tmp_path)
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert f"the import of 'queue' has run {tmp_path / 'queue.py'}, which hides that module" in said
    assert said.endswith("rename the file [shadowed-module]")
