"""What the tutorial, the reference and the example say works as they say it."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_in(page: str) -> list[str]:
    return BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))


def test_the_blocks_of_the_tutorial_run_one_after_the_other() -> None:
    blocks = blocks_in("tutorial.md")
    assert len(blocks) > 10
    session: dict[str, object] = {}
    for block in blocks:
        exec(block, session)


def test_the_sink_of_the_reference_commits_what_it_says() -> None:
    (sinks, _) = blocks_in("reference/client.md")
    exec(sinks, {})


def test_the_quickstart_prints_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "number 1001 has sequence 1001, durable: GROUP"
    assert lines[-2].endswith("the next one is number 1002")
    assert lines[-1] == "[(1001, b'stock.IBM'), (1002, b'stock.SUN')]"
