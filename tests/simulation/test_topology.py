"""A topology: what a user fixes, and what cannot be."""

from pathlib import Path

import pytest

from veredus.kernel.errors import Refused
from veredus.sim import campaign
from veredus.sim.running import run_seed
from veredus.sim.topology import DRAWN, read_topology
from veredus.streams.replay import Replay

SMALL = """
streams = 1
sources = 2
subscribers = [1, 2]
sinks = 0
seconds = 0.5
door = "native"
sync = "group"
faults = ["pause", "partition"]

[ranges]
pause_s = [0.1, 5]
"""


def written(directory: Path, text: str) -> Path:
    file = directory / "small.toml"
    file.write_text(text)
    return file


def test_worlds_are_drawn_within_what_a_topology_says(tmp_path: Path) -> None:
    topology = read_topology(written(tmp_path, SMALL))
    for seed in range(1, 6):
        outcome = run_seed(seed, topology)
        assert outcome.violation == ""
        kinds = [name.partition("-")[0] for name in outcome.names]
        assert kinds.count("source") in (2, 3, 4), "that of the stream that is deleted comes on top, and the ward"
        assert "sink" not in kinds
        assert {fault for _, fault in outcome.strikes} <= {"pause", "partition"}


def test_what_nobody_fixed_is_drawn_as_in_every_world(tmp_path: Path) -> None:
    assert run_seed(3, read_topology(written(tmp_path, ""))) == run_seed(3, DRAWN)


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("sources = [", "", "this is not valid TOML"),
        ("sources = 2\nbrokers = 3", ":2:1: brokers", "there is no such setting; there are streams, sources"),
        ("sources = 1.5", ":1:1: sources", "1.5 is neither a whole number nor [least, most]"),
        ("sources = [3, 1]", ":1:1: sources", "ends below where it begins"),
        ("sources = 2000", ":1:1: sources", "2000 is not within 0 to 20"),
        ("sources = true", ":1:1: sources", "True is neither a whole number"),
        ("streams = 0", ":1:1: streams", "0 is not within 1 to 8"),
        ('faults = ["kill",\n "meteor"]', ":2:2: faults.1", "there is no 'meteor'; there are kill, power"),
        ('faults = "kill"', ":1:1: faults", "'kill' is no list of faults"),
        ('door = "back"', ":1:1: door", "'back' is none of any, native, plain"),
        ("[ranges]\nloss = [0, 0.9]", ":2:1: ranges.loss", "[0, 0.9] is not within 0 to 0.3"),
        ("[ranges]\npause_s = 400", ":2:1: ranges.pause_s", "400 is not within 0.001 to 120"),
        ("[ranges]\nrain = 1", ":2:1: ranges.rain", "there is no such setting; there are pause_s"),
        ("ranges = 1", ":1:1: ranges", "1 is no table"),
        ("ranges." * 100_000 + "a = 1", ":1:224", "a key may have at most 32 parts"),
        ("#" * (1 << 20) + "#", "", "a topology has at most 1048576 characters"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path: Path, text: str, place: str, what: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(Refused) as caught:
        read_topology(file)
    assert caught.value.code == "bad-topology"
    assert caught.value.message.startswith(f"{file}{place}: ")
    assert what in caught.value.message


def test_a_world_of_a_topology_that_fails_says_how_to_run_it_again_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replay, "finish", lambda *_: None)
    file = written(tmp_path, SMALL.replace('"pause", "partition"', '"kill"').replace("0.5", "3"))
    said: list[str] = []
    argv = ["--topology", str(file), "--workers", "1"]
    assert campaign.main([*argv, "--seeds", "12"], said.append) == campaign.EXIT_VIOLATED
    (again,) = (line for line in "".join(said).splitlines() if line.startswith("repeat: veredus sim run "))
    assert f"--topology {file}" in again
    assert campaign.main(again.split()[4:], said.append) == campaign.EXIT_VIOLATED
