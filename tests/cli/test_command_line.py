"""The command line starts quickly, says what is wrong in one sentence, and ends with the code that fits."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from tests.processes import Child, ended
from veredus.cli import VERBS, LazyGroup, veredus
from veredus.cli.exits import Ended, Exit, run
from veredus.kernel.errors import Fenced, Misuse, Refused, Unavailable

HEAVY = (
    "asyncio",
    "numpy",
    "pyarrow",
    "rich",
    "structlog",
    "prometheus_client",
    "msgspec",
    "zmq",
    "ssl",
)


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom veredus.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit as end:\n"
        "    print(end.code, [name for name in sys.argv[1].split(',') if name in sys.modules], file=sys.stderr)\n"
    )
    asked = ended([sys.executable, "-c", script, ",".join(HEAVY)])
    assert asked.stderr.strip() == "0 []"
    assert all(verb in asked.stdout for verb in VERBS)


def test_every_verb_can_be_imported_and_explains_itself(capfd: pytest.CaptureFixture[str]) -> None:
    assert isinstance(veredus, LazyGroup)
    for verb in VERBS:
        assert run(veredus, [verb, "--help"]) == Exit.OK
        assert f"veredus {verb}" in capfd.readouterr().out


def test_an_unknown_verb_is_a_usage_error_with_the_nearest_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(veredus, ["strem"]) == Exit.USAGE
    assert "Did you mean 'stream'?" in capfd.readouterr().err


def raising(error: BaseException) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("unknown-stream", "there is no stream"), Exit.REFUSED),
        (Refused("bad-settings", "veredus.toml:1:1: no"), Exit.USAGE),
        (Misuse("bad-address", "no address"), Exit.USAGE),
        (Fenced("fenced", "a newer one took over"), Exit.FENCED),
        (Unavailable("unreachable", "no node"), Exit.UNAVAILABLE),
        (OSError(28, "No space left on device", "out"), Exit.ERROR),
        (KeyboardInterrupt(), Exit.INTERRUPTED),
        (Ended(Exit.VIOLATED), Exit.VIOLATED),
        (click.UsageError("no"), Exit.USAGE),
    ],
)
def test_each_kind_of_end_has_its_exit_code_and_no_traceback(
    error: BaseException, code: Exit, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(raising(error), []) == code
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err


def test_an_error_is_told_with_its_code_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    run(raising(Refused("forbidden", "desk-1 may not publish 'trades'")), [])
    assert capfd.readouterr().err == "veredus: desk-1 may not publish 'trades' [forbidden]\n"


def test_a_reader_that_has_had_enough_is_no_failure() -> None:
    script = (
        "import sys\nfrom veredus.cli import veredus\nfrom veredus.cli.exits import run\nimport click\n"
        "@click.command()\ndef loud():\n    while True:\n        click.echo('x' * 1000)\n"
        "sys.exit(run(loud, []))\n"
    )
    with Child([sys.executable, "-c", script], stdout=-1, stderr=-1) as loud:
        assert loud.stdout is not None
        assert loud.stderr is not None
        loud.stdout.readline()
        loud.stdout.close()
        assert loud.wait(20) == Exit.OK
        assert loud.stderr.read() == b""


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_verb(capfd: pytest.CaptureFixture[str]) -> Run:
    def run_it(*arguments: str) -> tuple[int, str, str]:
        code = run(veredus, list(arguments))
        shown = capfd.readouterr()
        return code, shown.out, shown.err

    return run_it


def test_serve_check_explains_every_setting_and_its_origin(run_verb: Run, tmp_path: Path) -> None:
    file = tmp_path / "veredus.toml"
    file.write_text('[journal]\nsync = "none"\n[stream.trades]\nretention_age = "1h"\n')
    code, out, _ = run_verb("serve", "--settings", str(file), "--tcp", "127.0.0.1:0", "--check", "-o", "json")
    rows = {row["setting"]: row for row in json.loads(out)}
    assert code == Exit.OK
    assert rows["journal.sync"] == {
        "setting": "journal.sync",
        "value": "none",
        "default": "group",
        "unit": "one of group, interval, none",
        "from": f"{file}:2:1",
        "meaning": rows["journal.sync"]["meaning"],
    }
    assert (rows["listen.tcp"]["value"], rows["listen.tcp"]["from"]) == ("127.0.0.1:0", "flag --tcp")
    assert rows["stream.trades.retention_age"]["value"] == "1h"
    assert rows["limits.body_size_max"]["unit"] == "bytes"


def test_serve_refuses_bad_settings_with_their_places(run_verb: Run, tmp_path: Path) -> None:
    file = tmp_path / "veredus.toml"
    file.write_text("[journal]\nsegment_sise = 5\n")
    code, out, err = run_verb("serve", "--settings", str(file), "--check")
    assert (code, out) == (Exit.USAGE, "")
    assert f"{file}:2:1: [journal] has no setting 'segment_sise'; did you mean segment_size?" in err
    code, _, err = run_verb("serve", "--set", "listen.tcp=0.0.0.0:7071", "--check")
    assert code == Exit.USAGE
    assert "security.insecure = true" in err
    assert run_verb("serve", "--set", "nonsense", "--check")[0] == Exit.USAGE


def test_a_token_is_printed_once_listed_by_its_id_and_revoked(run_verb: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "tokens")
    code, token, err = run_verb("token", "add", "desk-1", "--file", file)
    token_id = token.split("_")[1]
    assert code == Exit.OK
    assert token_id in err
    assert token.strip() not in err
    _, listed, _ = run_verb("token", "ls", "--file", file, "-o", "jsonl")
    assert json.loads(listed).keys() == {"id", "principal", "created", "expires"}
    assert json.loads(listed)["id"] == token_id
    assert run_verb("token", "rm", token_id, "--file", file)[0] == Exit.OK
    assert run_verb("token", "ls", "--file", file, "-o", "json")[1] == "[]\n"
    assert run_verb("token", "rm", token_id, "--file", file)[0] == Exit.REFUSED
