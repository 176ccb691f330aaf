"""Clients that are killed at any step, and run again: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path
from time import sleep

import pytest

from tests.processes import Child
from tests.topics.paper_server import Scene, scene
from veredus.cli import veredus
from veredus.cli.exits import Exit, run

BODIES = ["one", "two", "three"]
KILLED = -signal.SIGKILL
LIVES_MAX = 10


class Lives:
    """Lives of one client in one directory, with what they wrote down."""

    def __init__(self, zygote: Child, around: Scene, directory: Path) -> None:
        self.zygote, self.around, self.directory = zygote, around, directory
        self.log = directory / "log"
        self.pid = 0

    def begin(self, step: int, mode: str, bodies: Sequence[str]) -> None:
        told = {
            "step": step,
            "mode": mode,
            "log": str(self.log),
            "directory": str(self.directory),
            "proxies": self.around.addresses,
            "bodies": bodies,
        }
        assert self.zygote.stdin is not None
        self.zygote.stdin.write(json.dumps(told).encode() + b"\n")
        self.zygote.stdin.flush()
        assert self.zygote.stdout is not None
        self.pid = int(self.zygote.stdout.readline())

    def end(self) -> int:
        assert self.zygote.stdout is not None
        return int(self.zygote.stdout.readline())

    def live(self, step: int = 0, mode: str = "", bodies: Sequence[str] | None = None) -> int:
        """One life, which puts `bodies`, or else what was not reported yet; how it ended."""
        if bodies is None:
            reported = [words[1] for words in self.written() if words[0] == "put"]
            bodies = [body for body in BODIES if body not in reported]
        self.begin(step, mode, bodies)
        return self.end()

    def written(self) -> list[list[str]]:
        return [line.split(" ") for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def check(self) -> None:
        """Each was put once, in order, and handed over; again only to a life that followed on one that was killed."""
        assert self.around.server.bodies("t") == [body.encode() for body in BODIES]
        written = self.written()
        assert [words[1] for words in written if words[0] == "put"] == BODIES
        got = [tuple(words[1:]) for words in written if words[0] == "got"]
        assert [body for _, body in dict.fromkeys(got)] == BODIES
        last = None
        is_new_life = True
        for words in written:
            if words[0] == "life":
                is_new_life = True
            elif words[0] == "got":
                assert words != last or is_new_life, "handed over twice in one life"
                last, is_new_life = words, False


@pytest.fixture(scope="module")
def zygote() -> Iterator[Child]:
    arguments = [sys.executable, str(Path(__file__).with_name("lives.py"))]
    with Child(arguments, life_s=300, stdin=-1, stdout=-1) as process:
        yield process


@pytest.fixture
def lives(zygote: Child, tmp_path: Path) -> Iterator[Lives]:
    with scene() as around:
        yield Lives(zygote, around, tmp_path)


@pytest.mark.parametrize("mode", ["before", "torn", "after"])
def test_a_client_that_is_killed_at_any_write_or_sync_and_run_again_loses_and_doubles_nothing(
    zygote: Child, tmp_path: Path, mode: str
) -> None:
    with scene() as around:
        counting = Lives(zygote, around, tmp_path)
        assert counting.live() == 0
        counting.check()
        step_count = int(counting.written()[-1][1])
        assert step_count > 15
        killed_count = 0
        for step in range(1, step_count + 1):
            around.server.topics.clear()
            directory = tmp_path / str(step)
            directory.mkdir()
            lives = Lives(zygote, around, directory)
            killed_count += lives.live(step, mode) == KILLED
            assert lives.live() == 0
            lives.check()
        # How many steps there are depends on whether a mark of its own comes before the next save.
        assert killed_count >= step_count - 5


def test_what_a_client_leaves_that_is_killed_at_any_write_or_sync_is_sound_to_those_who_look_into_it(
    zygote: Child, tmp_path: Path
) -> None:
    with scene() as around:
        for step in count(1):
            around.server.topics.clear()
            (tmp_path / str(step)).mkdir()
            lives = Lives(zygote, around, tmp_path / str(step))
            end = lives.live(step, "torn")
            directory = lives.directory / "client_alice"
            # Who is killed before the first file has its name has begun no journal.
            is_begun = any(path.name != "lock" and path.suffix != ".tmp" for path in directory.iterdir())
            for command in ("verify", "dump"):
                assert run(veredus, ["journal", command, str(directory)]) == (Exit.OK if is_begun else Exit.REFUSED)
            if end != KILLED:
                break
        assert step > 15


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_client_that_is_killed_while_it_waits_for_any_answer_and_run_again_loses_and_doubles_nothing(
    lives: Lives, is_heard: bool
) -> None:
    server = lives.around.server
    # Every third question kills whoever asks it, and each life begins with a SUBSCRIBE: so it hits puts and gets.
    count = 0

    def kill(data: bytes) -> bytes:
        nonlocal count
        count += 1
        if count % 3 == 0 and count // 3 < LIVES_MAX:
            answer = server.answer_well(data) if is_heard else b""
            os.kill(lives.pid, signal.SIGKILL)
            return answer or server.status("INTERNAL_ERROR")
        return server.answer_well(data)

    server.answer = kill
    ends = []
    for _ in range(3 * LIVES_MAX):
        ends.append(lives.live())
        if ends[-1] == 0:
            break
    assert ends[-1] == 0
    assert ends.count(KILLED) >= 2
    lives.check()


def test_a_life_that_is_killed_again_and_again_comes_to_an_end(lives: Lives) -> None:
    ends = [lives.live(step, mode) for step in range(8, 40, 3) for mode in ("torn", "before", "after")]
    assert KILLED in ends
    assert lives.live() == 0
    lives.check()


def test_what_must_not_be_forgotten_is_on_the_platter_before_anybody_is_told_or_a_message_handed_over(
    lives: Lives,
) -> None:
    assert lives.live(mode="told") == 0
    written = lives.written()
    before = [before for before, words in pairwise(written) if words[0] in ("put", "got")]
    assert before == [["step", "pwritev"], ["step", "fdatasync"]] * len(BODIES), "that a put is told is not synced"
    puts = [written[:place] for place, words in enumerate(written) if words[0] == "put"]
    assert all(["step", "fdatasync"] in lines[-4:] for lines in puts), "what is put is"
    steps = [words[1] for words in written if words[0] == "step"]
    assert steps[-1] == "fdatasync", "what was told and handed over is kept at the end"
    assert steps.count("fdatasync") <= 2 * len(BODIES) + 2, "one for each put and each get, and those of the end"
    lives.check()


def test_a_message_that_was_given_to_a_process_that_did_nothing_more_comes_again_with_the_same_id(lives: Lives) -> None:
    assert lives.live(mode="got") == KILLED
    assert lives.live() == 0
    got = [words[1:] for words in lives.written() if words[0] == "got"]
    assert got == [["alice-1", "one"], ["alice-1", "one"], ["alice-2", "two"], ["alice-3", "three"]]


def test_the_same_body_is_put_anew_by_a_process_that_follows_on_one_that_was_told(lives: Lives) -> None:
    assert lives.live(mode="put", bodies=["tick"]) == KILLED
    assert lives.live(bodies=["tick"]) == 0
    assert lives.around.server.bodies("t") == [b"tick", b"tick"]


def test_equal_bodies_that_are_acknowledged_are_puts_of_their_own_however_soon_their_processes_are_killed(
    lives: Lives,
) -> None:
    for _ in range(3):
        assert lives.live(mode="put-at-once", bodies=["tick"]) == KILLED
    assert lives.around.server.bodies("t") == [b"tick"] * 3
    assert [words for words in lives.written() if words[0] == "put"] == [["put", "tick"]] * 3


def test_a_put_with_the_key_of_the_last_one_is_that_put_though_it_was_acknowledged(lives: Lives) -> None:
    for _ in range(2):
        assert lives.live(mode="put-at-once", bodies=["keyed"]) == KILLED
    assert lives.around.server.bodies("t") == [b"keyed"]


@pytest.mark.parametrize("mode", ["before", "torn", "after"])
def test_a_process_that_follows_one_that_was_killed_puts_no_other_body_under_the_same_key(
    zygote: Child, tmp_path: Path, mode: str
) -> None:
    with scene() as around:
        for step in count(1):
            around.server.topics.clear()
            around.server.answer = around.server.answer_strictly
            (tmp_path / str(step)).mkdir()
            lives = Lives(zygote, around, tmp_path / str(step))
            assert lives.live(bodies=["k0:zero"]) == 0
            end = lives.live(step, mode, bodies=["k:one"])
            lives.live(bodies=["k:two"])
            put = [words[1].encode() for words in lives.written() if words[0] == "put"]
            assert around.server.bodies("t") == (put if len(put) > 1 else [*put, b"k:one"]), f"killed at step {step}"
            if end != KILLED:
                break
        assert step > 5


def test_the_same_body_is_the_same_put_to_a_process_that_follows_on_one_that_was_not_told(lives: Lives) -> None:
    server = lives.around.server

    def kill(data: bytes) -> bytes:
        answer = server.answer_well(data)
        if data.startswith(b"PUT") and lives.written() == [["life"]]:
            os.kill(lives.pid, signal.SIGKILL)
        return answer

    server.answer = kill
    assert lives.live(bodies=["tick"]) == KILLED
    assert lives.live(bodies=["tick"]) == 0
    assert lives.around.server.bodies("t") == [b"tick"]


def test_a_put_that_a_killed_process_left_is_finished_before_another_one(lives: Lives) -> None:
    server = lives.around.server
    killed: list[bytes] = []

    def kill(data: bytes) -> bytes:
        if data.startswith(b"PUT") and not killed:
            while lives.written()[-1] != ["step", "fdatasync"]:
                sleep(0.01)
            killed.append(data)
            os.kill(lives.pid, signal.SIGKILL)
            return server.status("INTERNAL_ERROR")
        return server.answer_well(data)

    server.answer = kill
    assert lives.live(mode="told", bodies=["left"]) == KILLED
    assert lives.live(bodies=["other"]) == 0
    assert lives.around.server.bodies("t") == [b"left", b"other"]


def test_a_put_that_a_killed_process_asked_and_did_not_write_down_keeps_its_counter_from_another_one(
    lives: Lives, tmp_path: Path
) -> None:
    server = lives.around.server

    def tell_bodies_apart(data: bytes) -> bytes:
        answer, bodies = server.answer_well(data), server.bodies("t")
        is_anothers = data.startswith(b"PUT") and not data.endswith(bodies[-1])
        return server.status(f"REFUSED {len(bodies)}") if is_anothers else answer

    server.answer = tell_bodies_apart
    assert lives.live(bodies=["left"]) == 0
    lives.directory = tmp_path / "another"
    assert lives.live(bodies=["other"]) == 0
    assert server.bodies("t") == [b"left", b"other"]
