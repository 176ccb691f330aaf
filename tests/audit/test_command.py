"""`cursus audit` finds its evidence, says what it lacks before Spark starts, and ends with the code of its verdict."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from cursus.audit import CLAIMS, NodeJournal
from cursus.audit.verdict import Count, Verdict, judge
from cursus.cli import cursus
from cursus.cli.audit import _evidence, _say
from cursus.cli.exits import Ended, Exit, run
from cursus.recording import Kind, Recording

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


def test_a_node_is_told_from_a_directory_and_wants_streams(tmp_path: Path) -> None:
    with ExitStack() as stack:
        covers = (("trades", "risk", "number > 5"),)
        evidence = _evidence(stack, None, "cursus://127.0.0.1:7071", ("trades",), covers, {"pushed": str(tmp_path)})
        assert evidence.journal == NodeJournal("cursus://127.0.0.1:7071", ("trades",))
        assert evidence.covers == {("trades", "risk"): "number > 5"}
        assert evidence.pushed == str(tmp_path)
        for directory in (str(tmp_path), "hdfs://store/journal"):
            assert _evidence(stack, None, directory, (), (), {}).journal == directory


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "there is nothing to judge"),
        (["--journal", "cursus://127.0.0.1:7071"], "name the streams of the node"),
        (["."], "has no directory"),
    ],
)
def test_what_makes_no_sense_ends_before_spark_starts(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cursus, ["audit", *arguments]) == Exit.USAGE
    said = capsys.readouterr()
    assert words in said.err
    assert "starting Spark" not in said.err
    assert said.out == ""


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
