"""What a client remembers, on real files: durable when it says so, whole after any crash, and nobody else's."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.journal.rig import as_killed
from tests.processes import Child, ended
from veredus.journal.checkpoint import CHECKPOINT_NAME, COPY_NAME
from veredus.kernel.errors import Refused
from veredus.protocols.topics.client_state import ClientState, Got, Putting
from veredus.protocols.topics.many import pack_numbered
from veredus.topics.states import SETTINGS, States, directory_name

States_ = dict[str, ClientState]
bodies = st.binary(max_size=40)
many = st.just(pack_numbered([b"1", b"", b"3"], [1, 2, 4]))
words = st.text("abc-1", min_size=1, max_size=5)
client_states = st.builds(
    ClientState,
    words,
    st.integers(0, 2**63 - 1),
    st.none() | st.builds(Putting, st.integers(1, 2**63 - 1), bodies, st.booleans(), st.booleans()),
    st.none() | st.builds(Got, words, bodies) | st.builds(Got, words, many, st.just(True), st.integers(0, 2)),
)
saves = st.lists(st.tuples(st.sampled_from(["t", "u", "v"]), client_states, st.booleans()), max_size=12)


def states_of(directory: Path) -> States:
    """Those of alice, below a directory."""
    return States(directory / directory_name("alice"), "client alice")


def run(directory: Path, work: Callable[[States], Coroutine[None, None, None]]) -> None:
    """Do something with the states of alice, from opening to closing them."""

    async def opened() -> None:
        states = states_of(directory)
        await states.open()
        try:
            await work(states)
        finally:
            await states.close()

    asyncio.run(opened())


def remembered(directory: Path) -> States_:
    """What is in a directory."""
    found: States_ = {}

    async def look(states: States) -> None:
        found.update({topic: states.of("alice", topic) for _, topic in states.keys})

    run(directory, look)
    return found


def known(states: States_) -> States_:
    return {topic: state for topic, state in states.items() if state != ClientState()}


def segments(directory: Path) -> list[Path]:
    return sorted((directory / "client_alice").glob("*.segment"))


def written_size(directory: Path) -> int:
    """Where the only segment's written part ends."""
    return len(segments(directory)[0].read_bytes().rstrip(b"\0"))


@given(saves, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_after_a_crash_with_any_part_of_what_was_written_all_that_was_saved_before_is_there(
    saved: list[tuple[str, ClientState, bool]], random: object
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        before, after = Path(temporary, "before"), Path(temporary, "after")
        history: list[tuple[int, States_]] = []

        async def save_all(states: States) -> None:
            current: States_ = {}
            for topic, state, is_synced in saved:
                await states.save("alice", topic, state, is_synced)
                current[topic] = state
                history.append((written_size(before), known(current)))
            as_killed(before, after)

        run(before, save_all)
        assert remembered(before) == (history[-1][1] if history else {}), "a directory that was closed"
        if not history:
            return
        (segment,) = segments(after)
        cut = random.randint(0, history[-1][0])  # type: ignore[attr-defined]
        with segment.open("r+b") as file:
            file.seek(cut)
            file.write(bytes(history[-1][0] - cut))
        whole = [states for end, states in history if end <= cut]
        later = [{}, *(states for _, states in history)][len(whole) :]
        assert remembered(after) in later


def test_saves_that_come_together_are_one_group_with_one_sync(tmp_path: Path) -> None:
    async def save_together(states: States) -> None:
        await states.save("alice", "first", ClientState("1"))
        before = written_size(tmp_path)
        await asyncio.gather(*(states.save("alice", f"t{n}", ClientState(str(n))) for n in range(50)))
        written = segments(tmp_path)[0].read_bytes()[before:]
        # The magic and the kind of a record that opens a group.
        assert written.count(b"\xda\xc0\x01") <= 2, "the first is under way when the others come"

    run(tmp_path, save_together)
    assert len(remembered(tmp_path)) == 51


def test_a_body_that_is_larger_than_a_segment_is_kept_and_the_directory_stays_small(tmp_path: Path) -> None:
    body = os.urandom(3 << 20)

    async def put_and_get(states: States) -> None:
        for number in range(1, 13):
            await states.save(
                "alice", "t", ClientState(str(number), number, Putting(number, body), Got(str(number), body))
            )
            await states.save("alice", "t", ClientState(str(number), number), is_synced=False)
        await states.save("alice", "u", ClientState("1", 1, Putting(1, body)))

    run(tmp_path / "before", put_and_get)
    left = as_killed(tmp_path / "before", tmp_path / "after")
    assert remembered(left) == {"t": ClientState("12", 12), "u": ClientState("1", 1, Putting(1, body))}
    size = sum(file.stat().st_size for file in (left / "client_alice").iterdir())
    assert size < SETTINGS.held_back_size + 10 * len(body)


def test_many_short_lives_keep_the_directory_small_too(tmp_path: Path) -> None:
    body = os.urandom(60 << 10)
    for life in range(80):

        async def save_one(states: States, life: int = life) -> None:
            assert states.of("alice", "t").last_put_counter == life
            await states.save("alice", "t", ClientState("-1", life + 1, Putting(life + 1, body)))

        run(tmp_path, save_one)
    assert sum(file.stat().st_size for file in segments(tmp_path)) < 2 * SETTINGS.checkpoint_interval_size
    checkpoint, copy = (tmp_path / "client_alice" / name for name in (CHECKPOINT_NAME, COPY_NAME))
    assert checkpoint.read_bytes() == copy.read_bytes(), "a checkpoint that was begun is ended"


def test_a_topic_of_which_nothing_is_remembered_takes_no_place(tmp_path: Path) -> None:
    async def come_and_go(states: States) -> None:
        await states.save("alice", "t", ClientState("1"))
        await states.save("alice", "t", ClientState())
        assert states.keys == []

    run(tmp_path, come_and_go)
    assert remembered(tmp_path) == {}


def test_a_second_process_of_a_client_is_refused_with_the_number_of_the_first(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom veredus.topics.states import States\n"
        "async def hold():\n    states = States(Path(sys.argv[1], 'client_alice'), 'client alice')\n"
        "    await states.open()\n"
        "    print('open', flush=True)\n    sys.stdin.read()\n    await states.close()\n"
        "asyncio.run(hold())\n"
    )
    with Child([sys.executable, "-c", script, str(tmp_path)], stdin=-1, stdout=-1) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"open\n"
        with pytest.raises(Refused) as raised:
            remembered(tmp_path)
        assert raised.value.code == "client-in-use"
        assert raised.value.message == (
            f"client alice is in use by process {first.pid} (in {tmp_path}/client_alice): stop that process, or use"
            " another id"
        )
    assert remembered(tmp_path) == {}


def test_what_was_handed_over_of_messages_that_damage_took_is_passed_over(tmp_path: Path) -> None:
    got = Got("s-1..4", pack_numbered([b"1", b"lost", b"3"], [1, 2, 4]), True)

    async def hand_over(states: States) -> None:
        await states.save("alice", "u", ClientState("1"))
        await states.save("alice", "t", ClientState("s-1..4", got=got))
        await states.save("alice", "t", ClientState("s-1..4", got=replace(got, done_count=2)))
        await states.save("alice", "v", ClientState("2"))

    run(tmp_path / "before", hand_over)
    left = as_killed(tmp_path / "before", tmp_path / "after")
    (segment,) = segments(left)
    data = bytearray(segment.read_bytes())
    data[data.index(b"lost")] ^= 1
    segment.write_bytes(data)
    assert remembered(left) == {"u": ClientState("1"), "v": ClientState("2")}


def test_what_finds_no_room_is_not_remembered_and_what_comes_when_there_is_room_again_is(tmp_path: Path) -> None:
    script = (
        "import asyncio, resource, sys\nfrom pathlib import Path\n"
        "from veredus.kernel.errors import Unavailable\nfrom veredus.protocols.topics.client_state import *\n"
        "from veredus.topics.states import States\n"
        "async def fill():\n"
        "    states = States(Path(sys.argv[1], 'client_alice'), 'client alice')\n"
        "    await states.open()\n"
        "    await states.save('alice', 't', ClientState('1', 1))\n"
        "    limits = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (300 << 10, limits[1]))\n"
        "    try:\n"
        "        await states.save('alice', 't', ClientState('2', 2, Putting(2, bytes(400 << 10))))\n"
        "    except Unavailable as error:\n        print(error.code, states.of('alice', 't') == ClientState('1', 1))\n"
        "    await states.save('alice', 'u', ClientState('3', 3))\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, limits)\n"
        "    while states.of('alice', 't').last_put_counter != 4:\n"
        "        try:\n            await states.save('alice', 't', ClientState('4', 4, Putting(4, bytes(400 << 10))))\n"
        "        except Unavailable:\n            await asyncio.sleep(0.05)\n"
        "    await states.close()\n"
        "asyncio.run(fill())\n"
    )
    done = ended([sys.executable, "-c", script, str(tmp_path)])
    assert (done.returncode, done.stdout) == (0, "disk-full True\n"), done.stderr
    found = remembered(tmp_path)
    assert found["u"] == ClientState("3", 3)
    assert found["t"].last_put_counter == 4


def test_a_checkpoint_that_cannot_be_written_is_told_and_costs_nothing_that_was_saved(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from veredus.protocols.topics.client_state import *\n"
        "from veredus.topics.states import States\n"
        "async def fill():\n"
        "    states = States(Path(sys.argv[1], 'client_alice'), 'client alice')\n"
        "    await states.open()\n"
        "    Path(sys.argv[1], 'client_alice', 'checkpoint.tmp').mkdir()\n"
        "    for i in range(1, 12):\n"
        "        await states.save('alice', 't', ClientState('1', i, Putting(i, bytes(100 << 10))))\n"
        "    await states.close()\n"
        "asyncio.run(fill())\n"
    )
    done = ended([sys.executable, "-c", script, str(tmp_path)])
    assert done.returncode == 0, done.stderr
    assert "checkpoint-failed" in done.stderr
    assert "there is a directory in place of a regular file" in done.stderr
    (tmp_path / "client_alice" / "checkpoint.tmp").rmdir()
    assert remembered(tmp_path)["t"].last_put_counter == 11


def test_a_sync_that_fails_ends_the_client_and_the_next_one_has_what_was_saved_before(tmp_path: Path) -> None:
    script = (
        "import asyncio, os, sys\nfrom pathlib import Path\n"
        "real, is_broken = os.fdatasync, False\n"
        "def fdatasync(descriptor):\n"
        "    if is_broken:\n        raise OSError(5, 'Input/output error')\n    real(descriptor)\n"
        "os.fdatasync = fdatasync\n"
        "from veredus.kernel.errors import Unavailable\nfrom veredus.protocols.topics.client_state import ClientState\n"
        "from veredus.topics.states import States\n"
        "async def fail():\n"
        "    global is_broken\n"
        "    states = States(Path(sys.argv[1], 'client_alice'), 'client alice')\n"
        "    await states.open()\n"
        "    await states.save('alice', 't', ClientState('1', 1))\n"
        "    is_broken = True\n"
        "    for _ in range(2):\n"
        "        try:\n            await states.save('alice', 't', ClientState('2', 2))\n"
        "        except Unavailable as error:\n"
        "            print(error.message, states.of('alice', 't') == ClientState('1', 1))\n"
        "        is_broken = False\n"
        "    await states.close()\n"
        "asyncio.run(fail())\n"
    )
    done = ended([sys.executable, "-c", script, str(tmp_path)])
    said = f"a write or sync in {tmp_path}/client_alice failed (io-error: Input/output error): the client has stopped"
    assert (done.returncode, done.stdout) == (0, f"{said}; close it and open it again True\n" * 2), done.stderr
    assert remembered(tmp_path)["t"] in (ClientState("1", 1), ClientState("2", 2))


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("alice", "client_alice"),
        ("desk-A", "client_desk-%41"),
        ("../x", "client_..%2fx"),
        ("10.0.0.7:99", "client_10.0.0.7%3a99"),
        ("é", "client_%c3%a9"),
        ("50%41", "client_50%2541"),
    ],
)
def test_the_directory_of_a_client_is_named_after_it(client: str, name: str) -> None:
    assert directory_name(client) == name


def test_long_ids_that_begin_alike_have_directories_of_their_own() -> None:
    names = {directory_name("x" * 255 + end) for end in ("", "1", "2")}
    assert len(names) == 3
    assert max(map(len, names)) <= 255


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Refused) as raised:
        remembered(tmp_path / "file")
    assert raised.value.code == "journal-directory"
    assert str(tmp_path / "file") in raised.value.message


@pytest.mark.parametrize("delay_s", [0, 0.001, 0.003, 0.01])
def test_whoever_is_cancelled_while_it_opens_or_closes_a_directory_leaves_it_to_the_next(
    tmp_path: Path, delay_s: float
) -> None:
    async def opened() -> None:
        states = states_of(tmp_path)
        await states.open()
        await states.close()

    async def cancelled() -> None:
        opening = asyncio.ensure_future(opened())
        await asyncio.sleep(delay_s)
        opening.cancel()
        await asyncio.wait((opening,))

    async def again_and_again() -> None:
        for _ in range(5):
            await cancelled()
            await opened()

    asyncio.run(again_and_again())
