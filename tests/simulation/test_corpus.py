"""Every seed that ever broke a guarantee keeps them all now."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from veredus.sim.running import run_seed
from veredus.sim.topology import DRAWN

CORPUS = tomllib.loads(Path(__file__).with_name("corpus.toml").read_text(encoding="utf-8"))["seed"]


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: str(entry["number"]))
def test_a_seed_that_once_failed_keeps_every_guarantee(entry: dict[str, object]) -> None:
    assert entry["why"]
    assert entry["mended"]
    faults = entry.get("faults")
    topology = replace(DRAWN, scene=str(entry.get("scene", "streams")))
    if faults is not None:
        topology = replace(topology, faults=tuple(faults))  # type: ignore[arg-type]
    number = entry["number"]
    assert isinstance(number, int)
    assert run_seed(number, topology).violation == ""
