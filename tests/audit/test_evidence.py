"""Evidence is checked before anything rests on it, and says what of it is missing."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.audit.worlds import sound_world
from veredus.audit import CLAIMS, Evidence, Outcome, audit
from veredus.audit.evidence import side_of
from veredus.audit.report import NotWritten
from veredus.kernel.errors import Refused
from veredus.recording import SCHEMAS, Kind

pytestmark = pytest.mark.spark


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    return sound_world().write(tmp_path / "evidence", 3)


def offered(spark: SparkSession, evidence: Path) -> tuple[str, ...]:
    return side_of(spark, Kind.OFFERED, evidence / Kind.OFFERED).doubts


def test_a_side_with_all_that_its_manifest_names_is_whole(spark: SparkSession, evidence: Path) -> None:
    assert offered(spark, evidence) == ()
    assert side_of(spark, Kind.OFFERED, evidence / Kind.OFFERED).row_count == 61


def test_a_missing_file_and_missing_rows_are_doubts(spark: SparkSession, evidence: Path) -> None:
    (evidence / Kind.OFFERED / "part-1.parquet").unlink()
    (evidence / Kind.OFFERED / "part-0.parquet").write_bytes((evidence / Kind.OFFERED / "part-2.parquet").read_bytes())
    missing, fewer = offered(spark, evidence)
    assert "1 of 3 files are missing, such as part-1.parquet" in missing
    assert "part-0.parquet: the file has 19 rows, and the manifest says 21" in fewer


def test_files_that_nobody_vouches_for_are_doubted(spark: SparkSession, evidence: Path) -> None:
    (evidence / Kind.OFFERED / "_manifest.json").unlink()
    (doubt,) = offered(spark, evidence)
    assert "there is no _manifest.json or _SUCCESS" in doubt
    (evidence / Kind.OFFERED / "_SUCCESS").touch()
    assert offered(spark, evidence) == ()


def test_a_file_that_no_manifest_names_is_left_out(spark: SparkSession, evidence: Path) -> None:
    (evidence / Kind.OFFERED / "part-9.parquet").write_bytes((evidence / Kind.OFFERED / "part-0.parquet").read_bytes())
    assert side_of(spark, Kind.OFFERED, evidence / Kind.OFFERED).row_count == 61


def test_a_file_that_is_no_parquet_is_named(spark: SparkSession, evidence: Path) -> None:
    path = evidence / Kind.OFFERED / "part-1.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Refused, match="the Parquet file is damaged") as refused:
        offered(spark, evidence)
    assert refused.value.code == "damaged"
    assert str(path) in refused.value.message


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (SCHEMAS[Kind.OFFERED].remove(3), "column digest of offered is missing"),
        (SCHEMAS[Kind.OFFERED].set(2, pa.field("number", pa.string())), "column number is string, not int64"),
    ],
)
def test_a_wrong_column_is_named_with_its_file(
    spark: SparkSession, evidence: Path, schema: pa.Schema, words: str
) -> None:
    path = evidence / Kind.OFFERED / "part-1.parquet"
    pq.write_table(pa.table([pa.array([], field.type) for field in schema], schema=schema), path)
    with pytest.raises(Refused, match=words) as refused:
        offered(spark, evidence)
    assert refused.value.code == "bad-schema"
    assert str(path) in refused.value.message


def test_a_file_that_may_not_be_read_is_named_and_not_called_damaged(
    spark: SparkSession, evidence: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pq, "read_metadata", forbidden)
    with pytest.raises(OSError, match=r"cannot be read: .*Permission denied") as error:
        offered(spark, evidence)
    assert error.value.filename == str(evidence / Kind.OFFERED / "part-0.parquet")


def test_a_name_that_looks_like_a_pattern_is_that_of_its_own_file_only(spark: SparkSession, tmp_path: Path) -> None:
    sound_world(60).write(tmp_path / "run1")
    sound_world(90).write(tmp_path / "run[1]{a,b}*?\\")
    side = side_of(spark, Kind.OFFERED, tmp_path / "run[1]{a,b}*?\\" / Kind.OFFERED)
    assert side.rows.count() == side.row_count == 91


@pytest.mark.parametrize("prefix", ["file:", "file://"])
def test_a_side_may_be_named_as_a_uri(spark: SparkSession, evidence: Path, prefix: str) -> None:
    side = side_of(spark, Kind.OFFERED, f"{prefix}{evidence / Kind.OFFERED}/")
    assert side.rows.count() == side.row_count == 61


def test_a_uri_of_no_known_kind_is_refused_with_those_that_are(spark: SparkSession) -> None:
    with pytest.raises(Refused, match="gibberish://x: cannot be read") as refused:
        side_of(spark, Kind.OFFERED, "gibberish://x")
    assert refused.value.code == "bad-option"


@pytest.mark.parametrize("spoiled", [{"first_sequence": None}, {"first_sequence": 99}, {"last_sequence": 1 << 62}])
def test_a_settlement_that_makes_no_sense_is_shown_and_not_passed_over(
    spark: SparkSession, tmp_path: Path, spoiled: dict[str, int | None]
) -> None:
    world = sound_world()
    world.settled[3] |= spoiled
    evidence = world.write(tmp_path / "evidence")
    with pytest.raises(Refused, match="a row of settled is not valid: stream s, subscription main") as refused:
        audit(spark, Evidence.in_directory(evidence))
    assert refused.value.code == "bad-schema"
    assert str(evidence / Kind.SETTLED) in refused.value.message


@pytest.mark.parametrize(
    ("spoiled", "words"), [({"last_number": -3}, "ends before it begins"), ({"last_number": 1 << 62}, "more than")]
)
def test_an_acknowledgement_that_makes_no_sense_is_refused_with_its_side(
    spark: SparkSession, tmp_path: Path, spoiled: dict[str, int], words: str
) -> None:
    world = sound_world()
    world.acknowledged[3] |= spoiled
    evidence = world.write(tmp_path / "evidence")
    with pytest.raises(Refused, match=words) as refused:
        audit(spark, Evidence.in_directory(evidence))
    assert str(evidence / Kind.ACKNOWLEDGED) in refused.value.message


def test_a_report_that_cannot_be_written_takes_no_verdict_along_and_leaves_nothing_behind(
    spark: SparkSession, evidence: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    sides = Evidence(journal=evidence / Kind.JOURNAL)
    with pytest.raises(NotWritten, match="could not be written: No space left") as error:
        audit(spark, sides, claims=["order/journal"], into=tmp_path / "a" / "report")
    assert error.value.filename == str(tmp_path / "a" / "report")
    assert error.value.verdict.outcome is Outcome.HOLDS
    assert not (tmp_path / "a" / "report").exists()


def test_a_report_with_no_place_is_told_before_anything_is_read(spark: SparkSession, evidence: Path) -> None:
    told: list[str] = []
    for into, words in (
        (evidence, "exists already: name a new"),
        (evidence / "offered/_manifest.json/r", "Not a dir"),
    ):
        with pytest.raises(OSError, match=words):
            audit(spark, Evidence.in_directory(evidence), into=into, progress=told.append)
    assert told == []
    assert (evidence / Kind.OFFERED / "part-0.parquet").exists()


def test_a_damaged_manifest_is_named(spark: SparkSession, evidence: Path) -> None:
    (evidence / Kind.OFFERED / "_manifest.json").write_text("{")
    with pytest.raises(Refused, match="not a valid manifest"):
        offered(spark, evidence)


def test_a_manifest_of_another_side_is_refused(spark: SparkSession, evidence: Path) -> None:
    with pytest.raises(Refused, match="the manifest is for offered, not for journal"):
        side_of(spark, Kind.JOURNAL, evidence / Kind.OFFERED)


def test_what_makes_no_sense_is_refused_before_anything_is_read(spark: SparkSession, evidence: Path) -> None:
    sides = Evidence.in_directory(evidence, {("s", "main"): "nonsense > 5"})
    with pytest.raises(Refused, match="what main of s covers"):
        audit(spark, sides)
    with pytest.raises(Refused, match="unknown claim kept"):
        audit(spark, sides, claims=["kept"])
    with pytest.raises(Refused, match="no recordings were given"):
        audit(spark, Evidence())
    with pytest.raises(Refused, match="is not a directory of recordings"):
        audit(spark, Evidence(journal=evidence / "nowhere"), claims=list(CLAIMS))
    with pytest.raises(Refused, match="there are no recordings"):
        Evidence.in_directory(evidence / Kind.OFFERED)
