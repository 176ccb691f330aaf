"""`veredus topics`: section 2 of the paper on the command line, against a server written from it."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, ran
from tests.processes import Child, free_port
from tests.topics.paper_server import Scene, scene
from veredus.cli import veredus
from veredus.cli.exits import Exit, run

COMMAND = [sys.executable, "-c", "from veredus.cli import main; main()", "topics"]
Run = Callable[..., Ran]


@pytest.fixture
def around() -> Iterator[Scene]:
    with scene() as around:
        yield around


@pytest.fixture
def config(around: Scene, tmp_path: Path) -> Path:
    file = tmp_path / "topics.toml"
    file.write_text(f'[topics]\nproxies = ["{around.addresses[0]}"]\nanswer = "1s"\ndirectory = "state"\n')
    return file


@pytest.fixture
def run_as(config: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs an operation of a client."""
    return partial(ran, capfd, "topics", "--config", config, "--id")


def test_the_four_operations_of_the_paper(run_as: Run, tmp_path: Path) -> None:
    file = tmp_path / "message"
    file.write_bytes(b"EWR 12.5\n")
    assert run_as("alice", "subscribe", "prices") == Ran(Exit.OK, "", "")
    assert run_as("bob", "put", "prices", file) == Ran(Exit.OK, "", "")
    assert run_as("alice", "get", "prices") == Ran(Exit.OK, "EWR 12.5\n", "bob-1\n")
    assert run_as("alice", "get", "prices") == Ran(Exit.ERROR, "", "no messages on prices\n")
    assert run_as("alice", "unsubscribe", "prices") == Ran(Exit.OK, "", "")
    said = run_as("alice", "get", "prices")
    assert said == Ran(
        Exit.REFUSED, "", "veredus: client alice is not subscribed to prices: subscribe first [not-subscribed]\n"
    )


def test_what_clients_remember_lies_beside_the_settings(run_as: Run, tmp_path: Path) -> None:
    run_as("alice", "subscribe", "t")
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["client_alice"]


def test_the_same_file_may_be_put_twice_and_standard_input_is_a_file_too(
    run_as: Run, tmp_path: Path, around: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "message"
    file.write_bytes(b"tick")
    for arguments in ((file,), (file,), ("-",), ()):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"tick")))
        assert run_as("alice", "put", "t", *arguments).code == Exit.OK
    assert around.server.bodies("t") == [b"tick"] * 4


def test_a_put_with_a_key_that_was_killed_or_not_may_be_run_again_and_is_put_once(
    run_as: Run, tmp_path: Path, around: Scene
) -> None:
    file = tmp_path / "message"
    file.write_bytes(b"tick")
    for key in ("order-1", "order-1", "order-2", "order-2"):
        assert run_as("alice", "put", "t", file, "--key", key).code == Exit.OK
    assert around.server.bodies("t") == [b"tick"] * 2


def test_another_body_under_the_key_of_the_last_put_is_not_put_whether_that_was_acknowledged_or_not(
    run_as: Run, tmp_path: Path, around: Scene
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    refused = Ran(
        Exit.USAGE,
        "",
        "veredus: the last put on t has this key and another body, and that was put: this body was not. If you meant to"
        " try again, it is done; for another message, use a new key [key-used]\n",
    )
    assert run_as("alice", "put", "t", one, "--key", "order-1").code == Exit.OK
    assert run_as("alice", "put", "t", two, "--key", "order-1") == refused
    around.server.answer = lambda _: around.server.status("SERVER_UNAVAILABLE")
    assert run_as("alice", "put", "t", one, "--key", "order-2").code == Exit.IN_DOUBT
    said = run_as("alice", "put", "t", two, "--key", "order-2")
    assert (said.code, "and that one must be finished first" in said.err) == (Exit.IN_DOUBT, True)
    around.server.answer = around.server.answer_well
    assert run_as("alice", "put", "t", two, "--key", "order-2") == refused
    assert around.server.bodies("t") == [b"1", b"1"]


def test_a_key_is_for_one_message(run_as: Run, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"1\n2\n")
    said = run_as("alice", "put", "t", file, "--lines", "--key", "order-1")
    assert (said.code, "--key is for one message: use it without --lines" in said.err) == (Exit.USAGE, True)


def test_an_empty_key_is_no_key_with_or_without_lines(run_as: Run, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"1\n2\n")
    for arguments in ((), ("--lines",)):
        said = run_as("alice", "put", "t", file, "--key", "", *arguments)
        assert (said.code, "--key is empty: give it at least one character" in said.err) == (Exit.USAGE, True)


def test_a_message_for_each_line_is_put_at_once(run_as: Run, tmp_path: Path, around: Scene) -> None:
    file = tmp_path / "lines"
    for content, bodies in ((b"one\n\nthree", [b"one", b"", b"three"]), (b"four\n", [b"four"])):
        file.write_bytes(content)
        before = len(around.server.bodies("t"))
        assert run_as("bob", "put", "t", file, "--lines") == Ran(Exit.OK, "", "")
        assert around.server.bodies("t")[before:] == bodies
    file.write_bytes(b"")
    said = run_as("bob", "put", "t", file, "--lines")
    assert (said.code, "there are no lines in the input: nothing was put" in said.err) == (Exit.OK, True)


def test_several_messages_are_told_apart_as_was_asked(run_as: Run, tmp_path: Path) -> None:
    run_as("alice", "subscribe", "t")
    file = tmp_path / "message"
    for body in (b"one", b"two", b"three", b"four", b"five"):
        file.write_bytes(body)
        run_as("bob", "put", "t", file)
    assert run_as("alice", "get", "t", "-n", "2").out == "onetwo"
    assert run_as("alice", "get", "t", "-n", "1", "--format", "prefixed").out == "\0\0\0\5three"
    assert run_as("alice", "get", "t", "-n", "3", "--format", "lines") == Ran(
        Exit.ERROR, "four\nfive\n", "bob-4\nbob-5\nno messages on t\n"
    )
    run_as("bob", "put", "t", file)
    assert run_as("alice", "get", "t", "--loop", "--wait", "50ms") == Ran(Exit.OK, "five", "bob-6\n")


def test_a_loop_ends_when_its_reader_has_gone_though_no_message_comes(
    run_as: Run, config: Path, tmp_path: Path
) -> None:
    run_as("alice", "subscribe", "t")
    file = tmp_path / "one"
    file.write_bytes(b"one")
    run_as("bob", "put", "t", file)
    arguments = [*COMMAND, "--config", str(config), "--id", "alice", "get", "t", "--loop", "--format", "lines"]
    with Child(arguments, stdout=-1, stderr=-1) as loop:
        assert loop.stdout is not None
        assert loop.stdout.readline() == b"one\n"
        loop.stdout.close()
        assert loop.wait(20) == Exit.OK
    assert run_as("alice", "get", "t").code == Exit.ERROR


def test_a_loop_is_ended_by_a_signal_and_what_it_wrote_is_not_written_again(
    around: Scene, run_as: Run, config: Path, tmp_path: Path
) -> None:
    run_as("alice", "subscribe", "t")
    file = tmp_path / "message"
    file.write_bytes(b"one")
    run_as("bob", "put", "t", file)
    arguments = [*COMMAND, "--config", str(config), "--id", "alice", "get", "t", "--loop", "--format", "lines"]
    with Child(arguments, stdout=-1, stderr=-1) as loop:
        assert loop.stdout is not None
        assert loop.stdout.readline() == b"one\n"
        file.write_bytes(b"two")
        run_as("bob", "put", "t", file)
        assert loop.stdout.readline() == b"two\n"
        loop.send_signal(signal.SIGINT)
        assert loop.wait(20) == Exit.INTERRUPTED
    assert run_as("alice", "get", "t").err == "no messages on t\n"


def test_a_message_that_could_not_be_written_is_left_to_the_next_run(run_as: Run, config: Path, tmp_path: Path) -> None:
    run_as("alice", "subscribe", "t")
    file = tmp_path / "message"
    file.write_bytes(b"one")
    run_as("bob", "put", "t", file)
    arguments = [*COMMAND, "--config", str(config), "--id", "alice", "get", "t"]
    with Path("/dev/full").open("wb") as full, Child(arguments, stdout=full, stderr=-1) as cut_off:
        assert cut_off.wait(20) == Exit.ERROR
    reading, writing = os.pipe()
    os.close(reading)
    with Child(arguments, stdout=writing, stderr=-1) as cut_off:
        os.close(writing)
        assert cut_off.wait(20) == Exit.OK
    assert run_as("alice", "get", "t") == Ran(Exit.OK, "one", "bob-1\n")


def test_flags_are_stronger_than_the_file(run_as: Run, around: Scene, tmp_path: Path, config: Path) -> None:
    dead = f"127.0.0.1:{free_port()}"
    told = ["--proxy", dead, "--directory", str(tmp_path / "other")]
    assert run_as("alice", "subscribe", "t").code == Exit.OK
    code = run(veredus, ["topics", "--config", str(config), "--id", "alice", *told, "subscribe", "t"])
    assert code == Exit.UNAVAILABLE
    told += ["--proxy", around.addresses[0]]
    code = run(veredus, ["topics", "--config", str(config), "--id", "alice", *told, "subscribe", "t"])
    assert code == Exit.OK
    assert (tmp_path / "other" / "client_alice").is_dir()


@pytest.mark.parametrize("words", ["TEAPOT", "ok", "NO_MESSAGES"])
def test_a_put_whose_answer_is_none_that_a_put_can_have_is_in_doubt(
    run_as: Run, tmp_path: Path, around: Scene, words: str
) -> None:
    file = tmp_path / "message"
    file.write_bytes(b"tick")
    around.server.answer = lambda _: around.server.status(words)
    said = run_as("alice", "put", "t", file)
    assert (said.code, "it is not known whether the message was put" in said.err) == (Exit.IN_DOUBT, True)
    around.server.answer = around.server.answer_well
    assert run_as("alice", "put", "t", file).code == Exit.OK
    assert around.server.bodies("t") == [b"tick"]


def test_who_waits_for_a_message_waits_for_a_proxy_too(tmp_path: Path) -> None:
    waiting = ["topics", "--id", "alice", "--proxy", f"127.0.0.1:{free_port()}", "--directory", str(tmp_path)]
    began_s = time.monotonic()
    assert run(veredus, [*waiting, "get", "t", "--wait", "2s"]) == Exit.UNAVAILABLE
    assert time.monotonic() - began_s > 1


def test_where_no_proxy_is_there_that_is_said_in_one_sentence(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    dead = f"127.0.0.1:{free_port()}"
    code = run(
        veredus, ["topics", "--id", "alice", "--proxy", dead, "--directory", str(tmp_path), "put", "t", "/dev/null"]
    )
    assert code == Exit.IN_DOUBT
    assert capfd.readouterr().err == (
        f"veredus: no proxy could handle the request: {dead} does not accept the connection: check that a proxy"
        " runs there. Then try again (it is not known whether the message was put; retrying is idempotent)"
        " [no-proxy]\n"
    )


def test_a_client_needs_an_id_and_its_settings_make_sense(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, run_as: Run
) -> None:
    assert run(veredus, ["topics", "get", "t"]) == Exit.USAGE
    assert "--id" in capfd.readouterr().err
    file = tmp_path / "wrong.toml"
    file.write_text("[topics]\nproxy = 1\n")
    assert run(veredus, ["topics", "--config", str(file), "--id", "a", "get", "t"]) == Exit.USAGE
    assert "did you mean proxies?" in capfd.readouterr().err
    assert run_as("two words", "get", "t").code == Exit.USAGE
    large = tmp_path / "large"
    large.write_bytes(bytes((1 << 20) + 1))
    assert run_as("alice", "put", "t", large).err == (
        f"veredus: {large} has more than 1048576 bytes (topics.body_size_max) [too-large]\n"
    )


def test_a_second_run_of_a_client_at_the_same_time_is_refused(around: Scene, run_as: Run, config: Path) -> None:
    run_as("alice", "subscribe", "t")
    arguments = [*COMMAND, "--config", str(config), "--id", "alice", "get", "t", "--loop"]
    heard_count = len(around.server.heard)
    with Child(arguments) as first:
        while len(around.server.heard) == heard_count:
            assert first.poll() is None
            time.sleep(0.01)
        said = run_as("alice", "get", "t")
        assert said.code == Exit.REFUSED
        assert f"is in use by process {first.pid} " in said.err
    assert run_as("alice", "get", "t").err == "no messages on t\n"


def test_a_file_of_lines_that_one_put_does_not_hold_is_put_in_several_which_is_said(
    run_as: Run, around: Scene, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    lines = [f"{number:0999}".encode() for number in range(2500)]
    file.write_bytes(b"\n".join(lines) + b"\n")
    said = run_as("bob", "put", "t", file, "--lines")
    assert (said.code, said.out) == (Exit.OK, "")
    assert said.err.splitlines() == ["2090 lines were put, in 2 puts", "2500 lines were put, in 3 puts"]
    assert around.server.bodies("t") == lines


def test_a_line_that_no_put_holds_is_named_with_how_far_the_file_was_put(run_as: Run, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"\n".join([b"x" * 700_000, b"y" * 700_000, b"z" * 2_000_000]))
    said = run_as("bob", "put", "t", file, "--lines")
    assert said.code == Exit.USAGE
    assert "line 3 of" in said.err
    assert "the first line was put: retry with only the lines from line 2 on" in said.err


def test_show_asks_the_servers_of_the_configuration_that_are_here(
    run_as: Run, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config.write_text(config.read_text() + 'servers = ["127.0.0.1:7091"]\n')
    said = ran(capfd, "topics", "--config", config, "show")
    assert said.code == Exit.OK
    assert "not on this machine, or not in this directory: 127.0.0.1:7091" in said.err


def test_a_command_of_topics_imports_no_columns(config: Path, tmp_path: Path) -> None:
    listed = ("numpy", "pyarrow", "re2", "structlog", "rich", "veredus.streams.exchange", "veredus.streams.tables")
    heavy = f"[name for name in {listed} if name in sys.modules]"
    put = f"run(veredus, ['topics', '--config', {str(config)!r}, '--id', 'bob', 'put', 't', {str(config)!r}])"
    imports = "import sys; from veredus.cli import veredus; from veredus.cli.exits import run"
    code = f"{imports}; assert {put} == 0; print({heavy})"
    with Child([sys.executable, "-c", code], life_s=30, stdout=-1, cwd=tmp_path) as child:
        assert child.stdout is not None
        assert child.stdout.read() == b"[]\n"


def test_what_was_got_last_is_forgotten_where_its_server_is_lost(run_as: Run, around: Scene, tmp_path: Path) -> None:
    file = tmp_path / "message"
    file.write_bytes(b"one")
    assert run_as("alice", "subscribe", "t").code == Exit.OK
    assert run_as("bob", "put", "t", file).code == Exit.OK
    assert run_as("alice", "get", "t").out == "one"
    assert run_as("alice", "forget", "t") == Ran(Exit.OK, "", "")
    around.server.heard.clear()
    assert run_as("alice", "get", "t").out == "one", "this server still has it"
    assert around.server.heard[0].startswith(b"GET alice t -1\r\n")


def test_a_command_of_topics_makes_few_dataclasses(config: Path, tmp_path: Path) -> None:
    """Each is compiled from text at every start, which costs a millisecond; 80 of them were half of a command's CPU."""
    counted = "import dataclasses as d; kept = d._process_class; made = []"
    count = "d._process_class = lambda cls, *rest, **more: (made.append(cls), kept(cls, *rest, **more))[1]"
    put = f"run(veredus, ['topics', '--config', {str(config)!r}, '--id', 'bob', 'put', 't', {str(config)!r}])"
    imports = "from veredus.cli import veredus; from veredus.cli.exits import run"
    code = f"{counted}; {count}; {imports}; assert {put} == 0; print(len(made) <= 30 or made)"
    with Child([sys.executable, "-c", code], life_s=30, stdout=-1, cwd=tmp_path) as child:
        assert child.stdout is not None
        assert child.stdout.read() == b"True\n"
