"""What the page on the demo says that happens is what the demo is made to do; the demo itself takes minutes."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter

import pytest

from tests.processes import ended
from tests.transcripts.pages import ROOT, blocks_in
from tests.transcripts.shell import typed

pytestmark = pytest.mark.slow

PAGE = "docs/how-to/demo.md"
FACTS = """
import json
from flights import LEAD, WATERMARK, carriers_of, load_flights
from kills import VICTIMS
from run import PUBLISHERS_COUNT, PUBLISH_SECONDS
flights = load_flights()
print(json.dumps({
    "flights": len(flights), "airlines": len(carriers_of(flights)), "victims": VICTIMS, "lead": LEAD.days,
    "watermark": WATERMARK.days, "publishers": PUBLISHERS_COUNT, "seconds": PUBLISH_SECONDS,
}))
"""


def test_what_is_typed_runs_the_demo_with_the_seed_that_is_given() -> None:
    (block,) = blocks_in(PAGE, "")
    plain, seeded = re.findall(r"make demo(?: [A-Z]+=\d+)?", block)
    (script,) = re.findall(r"\S+/run\.py", typed(plain.replace("make", "make -n"), ROOT))
    assert "--seed 7" in typed(seeded.replace("make", "make -n"), ROOT)
    assert seeded.endswith("SEED=7")
    assert "--seed" in typed(f"{sys.executable} {script} --help", ROOT)


def test_the_numbers_on_the_page_are_those_of_the_demo() -> None:
    done = ended([sys.executable, "-c", FACTS], cwd=ROOT / "examples" / "demo")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    page = " ".join((ROOT / PAGE).read_text(encoding="utf-8").split())
    assert f"The {facts['flights']:,} flights" in page
    assert f"each of the {facts['airlines']} airlines" in page
    assert f"no source may be more than {facts['lead']} days ahead" in page
    assert f"The watermark allows {facts['watermark']} days" in page
    assert (facts["publishers"], "by three processes" in page) == (3, True)
    assert (facts["seconds"], "published in a minute" in page) == (60, True)
    told = "the node twice, publishers twice, and once Spark's driver"
    assert (Counter(facts["victims"]), told in page) == ({"node": 2, "publisher": 2, "driver": 1}, True)
