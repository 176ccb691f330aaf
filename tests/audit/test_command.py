"""`veredus audit` finds its evidence, says what it lacks before Spark starts, and ends with the code of its verdict."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.audit.worlds import sound_world
from tests.processes import free_port
from veredus.audit import CLAIMS, NodeJournal
from veredus.audit import session as sessions
from veredus.audit.verdict import Count, Verdict, judge
from veredus.cli import veredus
from veredus.cli.audit import _evidence, _say
from veredus.cli.exits import Ended, Exit, run
from veredus.client.embedded import embedded
from veredus.recording import Kind, Recording

WHOLE: dict[Kind, tuple[str, ...]] = dict.fromkeys(Kind, ())


def test_raw_recordings_are_brought_together_and_a_journal_beside_them_is_taken(tmp_path: Path) -> None:
    with Recording(tmp_path, "desk") as recording:
        recording.offered("trades", "desk", 1, [b"k"], [b"v"])
    (tmp_path / "journal").mkdir()
    with ExitStack() as stack:
        evidence = _evidence(stack, tmp_path, None, (), (), {})
        assert evidence.journal == str(tmp_path / "journal")
        assert evidence.offered is not None
        assert (Path(evidence.offered) / "_manifest.json").is_file()
    assert not Path(evidence.offered).exists()


def test_a_node_is_told_from_a_directory_and_wants_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        covers = (("trades", "risk", "number > 5"),)
        monkeypatch.delenv("VEREDUS_TOKEN", raising=False)
        evidence = _evidence(stack, None, "veredus://127.0.0.1:7071", ("trades",), covers, {"pushed": str(tmp_path)})
        assert evidence.journal == NodeJournal("veredus://127.0.0.1:7071", ("trades",))
        assert evidence.covers == {("trades", "risk"): "number > 5"}
        assert evidence.pushed == str(tmp_path)
        for directory in (str(tmp_path), "hdfs://store/journal"):
            assert _evidence(stack, None, directory, (), (), {}).journal == directory


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "there is nothing to audit"),
        (["--journal", "veredus://127.0.0.1:7071"], "name the streams of the node"),
        (["."], "there are no recordings"),
        (["--journal", "hdfs://store/journal", "--claim", "kept/jornal"], "unknown claim kept/jornal"),
    ],
)
def test_what_makes_no_sense_ends_before_spark_starts(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(veredus, ["audit", *arguments]) == Exit.USAGE
    said = capsys.readouterr()
    assert words in said.err
    assert "starting Spark" not in said.err
    assert said.out == ""


def test_without_spark_it_says_what_to_install_and_ends_as_chaos_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert run(veredus, ["audit", "."]) == Exit.REFUSED
    said = capsys.readouterr().err
    assert ("pip install 'veredus[spark]'" in said, "[no-spark]" in said) == (True, True)


def test_a_report_without_a_place_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(veredus, ["audit", "--journal", "hdfs://store/journal", "--into", str(tmp_path)]) == Exit.USAGE
    said = capsys.readouterr().err
    assert f"{tmp_path} exists already: name a new directory" in said
    assert "starting Spark" not in said


def test_a_node_that_is_not_there_or_lacks_the_stream_ends_before_spark_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veredus.cli.audit.NODE_TIMEOUT_S", 0.5)
    absent = f"veredus://127.0.0.1:{free_port()}"
    assert run(veredus, ["audit", "--journal", absent, "--stream", "trades"]) == Exit.UNAVAILABLE
    said = capsys.readouterr()
    assert absent.removeprefix("veredus://") in said.err
    with embedded() as node:
        assert run(veredus, ["audit", "--journal", node.served.address, "--stream", "trades"]) == Exit.REFUSED
    said_of_stream = capsys.readouterr()
    assert "there is no stream 'trades'" in said_of_stream.err
    assert "starting Spark" not in said.err + said_of_stream.err


def test_a_node_that_wants_to_know_who_asks_is_told_by_the_variables_of_all_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VEREDUS_TOKEN", "secret")
    monkeypatch.setenv("VEREDUS_AUTHORITIES", "/ca.pem")
    with ExitStack() as stack:
        evidence = _evidence(stack, None, "veredus://127.0.0.1:7071", ("trades",), (), {})
    assert evidence.journal == NodeJournal(
        "veredus://127.0.0.1:7071", ("trades",), {"token": "secret", "caFile": "/ca.pem"}
    )


@pytest.mark.parametrize(
    ("counts", "doubts", "code"),
    [
        ({"lost": Count(certain=1)}, WHOLE, Exit.VIOLATED),
        ({"lost": Count(uncertain=1)}, WHOLE, Exit.IN_DOUBT),
        ({}, {}, Exit.IN_DOUBT),
        ({"lost": Count(reported=1)}, WHOLE, Exit.GAP),
    ],
)
def test_the_exit_code_is_that_of_the_worst_outcome(
    counts: dict[str, Count], doubts: dict[Kind, tuple[str, ...]], code: Exit
) -> None:
    with pytest.raises(Ended) as ended:
        _say(Verdict(judge(CLAIMS, counts, doubts)), "table")
    assert ended.value.code is code


def test_a_verdict_is_one_json_object_for_programs(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    _say(Verdict(judge(CLAIMS, {}, WHOLE), rows={Kind.JOURNAL: 7}), "json")
    said = json.loads(capfdbinary.readouterr().out)
    assert said["outcome"] == "holds"
    assert said["rows"] == {"journal": 7}
    assert [claim["claim"] for claim in said["claims"]] == list(CLAIMS)


@contextmanager
def shared(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_whole_command_names_what_was_planted_and_writes_a_report(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = sound_world()
    del world.journal[10]
    for row in world.offered + world.acknowledged + world.journal:
        row["source"] = "<desk>" if row["source"] == "a" else row["source"]
    evidence = world.write(tmp_path / "evidence")
    monkeypatch.setattr(sessions, "session", lambda *_: shared(spark))
    arguments = [f"--{side}={evidence / side}" for side in ("offered", "acknowledged", "journal")]
    asked = ["--claim", "kept/journal", "--claim", "order/journal", "--into", str(tmp_path / "report")]
    assert run(veredus, ["audit", *arguments, *asked]) == Exit.VIOLATED
    assert [line.split()[:4] for line in capsys.readouterr().out.splitlines()] == [
        ["claim", "outcome", "violations", "reported"],
        ["kept/journal", "refuted", "1", "0"],
        ["order/journal", "holds", "0", "0"],
        [],
        ["violation", "counts_as", "stream", "subscription"],
        ["lost", "violation", "s", "<desk>"],
    ]
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "&lt;desk&gt;" in page
    assert "<desk>" not in page


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_command_starts_spark_by_itself_and_says_nothing_of_spark_s(tmp_path: Path) -> None:
    journal = sound_world().write(tmp_path / "evidence") / Kind.JOURNAL
    done = audit_in_a_process("--journal", str(journal), "--claim", "order/journal", "--memory", "1g")
    assert done.returncode == Exit.OK
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [["order/journal", "holds", "0", "0"]]
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["starting", "journal:", "journal:", "from"]


@pytest.mark.spark
def test_where_spark_does_not_start_its_reason_is_said_in_one_line(tmp_path: Path) -> None:
    sound_world(3).write(tmp_path / "evidence")
    done = audit_in_a_process(str(tmp_path / "evidence"), "--memory", "nonsense")
    assert done.returncode == Exit.UNAVAILABLE
    first, said = done.stderr.splitlines()
    assert first == "starting Spark"
    assert "Spark does not start at local[1]" in said
    assert "nonsense" in said


def audit_in_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "veredus", "audit", "--master", "local[1]", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "An error occurred.\n: a.SparkException: Job\n\tat a.b\nCaused by: java.io.IOException: full\n\t... 9",
            "java.io.IOException: full",
        ),
        (
            "Failed to read: Traceback (most recent):\n  File x\nveredus.kernel.errors.Refused: no stream 'nope'\n",
            "veredus.kernel.errors.Refused: no stream 'nope'",
        ),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error.\n\nJVM stacktrace:\nx.SomeException: y",
            "[PARSE_SYNTAX_ERROR] Syntax error.",
        ),
        ("", "Exception"),
    ],
)
def test_of_all_that_spark_tells_the_deepest_cause_is_said_in_one_line(text: str, reason: str) -> None:
    assert sessions.reason_of(Exception(text)) == reason
