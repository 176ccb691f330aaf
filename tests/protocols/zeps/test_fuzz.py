"""A short run of each fuzz target; `make fuzz` goes on for longer."""

import pytest

from fuzz import __main__ as fuzz
from fuzz.driver import run

RUNS = 1500
SECONDS = 280.0
"""Far more than it takes: a busy machine must not end a run."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_a_decoder_that_is_fed_garbage_faults_the_peer_and_nothing_else(name: str) -> None:
    module = fuzz.TARGETS[name]
    assert run(name, module.target, module.SEEDS, RUNS, SECONDS, seed=7) == RUNS


def test_a_target_that_breaks_leaves_its_input_behind(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # type: ignore[arg-type]

    def brittle(data: bytes) -> None:
        if len(data) != 4:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run("brittle", brittle, [b"good"], 1000, 50.0, seed=7)
    (path,) = list(tmp_path.iterdir())  # type: ignore[attr-defined]
    assert len(path.read_bytes()) != 4
