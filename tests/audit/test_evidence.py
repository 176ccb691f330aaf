"""Evidence is checked before anything rests on it, and says what of it is missing."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cursus.audit import CLAIMS, Evidence, audit
from cursus.audit.evidence import side_of
from cursus.kernel.errors import Refused
from cursus.recording import SCHEMAS, Kind
from tests.audit.worlds import sound_world

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
    assert "part-0.parquet: has 19 rows and should have 21" in fewer


def test_files_that_nobody_vouches_for_are_doubted(spark: SparkSession, evidence: Path) -> None:
    (evidence / Kind.OFFERED / "_manifest.json").unlink()
    (doubt,) = offered(spark, evidence)
    assert "neither _manifest.json nor _SUCCESS" in doubt
    (evidence / Kind.OFFERED / "_SUCCESS").touch()
    assert offered(spark, evidence) == ()


def test_a_file_that_no_manifest_names_is_left_out(spark: SparkSession, evidence: Path) -> None:
    (evidence / Kind.OFFERED / "part-9.parquet").write_bytes((evidence / Kind.OFFERED / "part-0.parquet").read_bytes())
    assert side_of(spark, Kind.OFFERED, evidence / Kind.OFFERED).row_count == 61


def test_a_file_that_is_no_parquet_is_named(spark: SparkSession, evidence: Path) -> None:
    path = evidence / Kind.OFFERED / "part-1.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Refused, match="is no sound Parquet") as refused:
        offered(spark, evidence)
    assert refused.value.code == "damaged"
    assert str(path) in refused.value.message


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (SCHEMAS[Kind.OFFERED].remove(3), "column digest is missing"),
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


def test_a_damaged_manifest_is_named(spark: SparkSession, evidence: Path) -> None:
    (evidence / Kind.OFFERED / "_manifest.json").write_text("{")
    with pytest.raises(Refused, match="is no manifest"):
        offered(spark, evidence)


def test_a_manifest_of_another_side_is_refused(spark: SparkSession, evidence: Path) -> None:
    with pytest.raises(Refused, match="is one of offered, not of journal"):
        side_of(spark, Kind.JOURNAL, evidence / Kind.OFFERED)


def test_what_makes_no_sense_is_refused_before_anything_is_read(spark: SparkSession, evidence: Path) -> None:
    sides = Evidence.in_directory(evidence, {("s", "main"): "nonsense > 5"})
    with pytest.raises(Refused, match="what main of s covers"):
        audit(spark, sides)
    with pytest.raises(Refused, match="there is no claim kept"):
        audit(spark, sides, claims=["kept"])
    with pytest.raises(Refused, match="no side was given"):
        audit(spark, Evidence())
    with pytest.raises(Refused, match="is no directory of recordings"):
        audit(spark, Evidence(journal=evidence / "nowhere"), claims=list(CLAIMS))
    with pytest.raises(Refused, match="has no directory"):
        Evidence.in_directory(evidence / Kind.OFFERED)
