"""The page on retries is done as it is written: the worker's program, and what is typed around it."""

import shutil
from pathlib import Path

import pytest

import veredus
from tests.transcripts.pages import blocks_in
from tests.transcripts.shell import check_block

pytestmark = pytest.mark.slow
PAGE = "docs/how-to/retry.md"
WRITTEN_ADDRESS = "veredus://127.0.0.1:7071"


def test_what_is_done_on_the_page_on_retries_gives_what_it_shows(tmp_path: Path) -> None:
    if shutil.which("jq") is None:
        pytest.skip("there is no jq")
    (worker,) = blocks_in(PAGE, "python")
    assert WRITTEN_ADDRESS in worker
    with veredus.embedded(journal={"sync": "none"}) as node:
        (tmp_path / "worker.py").write_text(worker.replace(WRITTEN_ADDRESS, node.served.address))
        for block in blocks_in(PAGE, "console"):
            check_block(block, tmp_path, VEREDUS_ADDRESS=node.served.address)
