"""What the page on the demo of topics says that happens is what the demo is made to do."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.processes import ended
from tests.transcripts.pages import ROOT, blocks_in
from tests.transcripts.shell import typed

pytestmark = pytest.mark.slow

PAGE = "docs/how-to/demo-topics.md"
FACTS = """
import json
from run import CLIENTS_COUNT, FLIGHTS_COUNT, SECONDS, TOPICS_EACH_COUNT, WORKERS_COUNT
from cluster import PROXIES_COUNT, SERVERS_COUNT
from first_demo import load_flights
from strikes import LASTS_SECONDS, STOP, STRIKES
flights = load_flights().slice(0, FLIGHTS_COUNT + 1)
hours = (flights["event_time"][-1].as_py() - flights["event_time"][0].as_py()).total_seconds() / 3600
names = set(zip(flights["origin"].to_pylist()[:-1], flights["carrier"].to_pylist()[:-1]))
print(json.dumps({
    "clients": CLIENTS_COUNT, "flights": FLIGHTS_COUNT, "seconds": SECONDS, "each": TOPICS_EACH_COUNT, "hours": hours,
    "workers": WORKERS_COUNT, "proxies": PROXIES_COUNT, "servers": SERVERS_COUNT, "topics": len(names),
    "strikes": {" ".join(what): count for what, count in STRIKES.items()}, "stopped": LASTS_SECONDS[STOP][1],
}))
"""


def test_what_is_typed_runs_the_demo_with_the_seed_that_is_given() -> None:
    (block,) = blocks_in(PAGE, "")
    plain, seeded = re.findall(r"make demo-topics(?: [A-Z]+=\d+)?", block)
    (script,) = re.findall(r"\S+/run\.py", typed(plain.replace("make", "make -n"), ROOT))
    assert "--seed 7" in typed(seeded.replace("make", "make -n"), ROOT)
    assert seeded.endswith("SEED=7")
    assert "--seed" in typed(f"{sys.executable} {script} --help", ROOT)


def test_the_numbers_on_the_page_are_those_of_the_demo() -> None:
    done = ended([sys.executable, "-c", FACTS], cwd=ROOT / "examples" / "topics")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    page = " ".join((ROOT / PAGE).read_text(encoding="utf-8").split())
    assert f"{facts['clients']} clients in {facts['workers']} processes" in page
    assert (facts["servers"], facts["proxies"], "Three servers, two proxies" in page) == (3, 2, True)
    assert f"the {facts['flights']:,} flights" in page
    assert f"`EWR.UA`; there are {facts['topics']}" in page
    assert f"gets all messages of {facts['each']} topics" in page
    # The next flight is the first one of the sixth day.
    assert (round(facts["hours"]), "the first five days of 2013" in page) == (120, True)
    assert (facts["seconds"], "a minute long" in page) == (60, True)
    strikes = facts["strikes"]
    kills = [strikes[f"kill {kind}"] for kind in ("server", "proxy", "clients")]
    assert "killed by SIGKILL {} times, proxies {} times, and processes of clients {} times".format(*kills) in page
    stops = [strikes[f"stop {kind}"] for kind in ("server", "proxy", "clients")]
    assert "{} servers, {} proxies and {} processes of clients are stopped".format(*stops) in page
    assert (facts["stopped"], "up to two and a half seconds" in page) == (2.5, True)
    assert f"{strikes['split server']} times a server is away" in page
