"""One place has one spelling, however Spark lets it be written; two places have two."""

from pathlib import Path

import pytest

from veredus.spark.checkpoints import place_of, this_machine


def place(location: str, session: str = "", query: str = "", default_fs: str = "", machine: str = "host") -> str:
    return place_of(location, session, query, default_fs, machine)


@pytest.mark.parametrize("spelling", ["/ck/", "file:/ck", "file:///ck", "FILE:/ck//", "/x/../ck/.", "//ck", " /ck "])
def test_a_local_directory_is_one_place_however_it_is_written(spelling: str) -> None:
    assert place(spelling) == place("/ck")


def test_a_relative_directory_and_a_link_are_what_they_lead_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    assert place("link/ck") == place("there/ck") == place(str(tmp_path / "there" / "ck"))


def test_the_same_path_on_two_machines_is_two_places() -> None:
    assert place("/ck", machine="one") != place("/ck", machine="two")
    assert this_machine() == this_machine() != ""


def test_a_shared_file_system_is_the_same_from_every_machine() -> None:
    for spelling in ("hdfs://name/ck", "HDFS://NAME/ck/"):
        assert place(spelling, machine="one") == place("hdfs://name/ck", machine="two")
    assert place("s3://bucket/ck") == place("s3a://bucket//ck/") != place("s3a://other/ck")


def test_a_path_without_a_scheme_lies_in_the_default_file_system() -> None:
    assert place("/ck/", default_fs="hdfs://name:8020/") == place("hdfs://name:8020/ck")
    assert place("file:/ck", default_fs="hdfs://name:8020") == place("/ck")


def test_the_sessions_location_counts_with_the_querys_name_alone() -> None:
    assert place("", session="/cks/", query="daily") == place("/cks/daily")
    assert place("/ck", session="/cks", query="daily") == place("/ck")
    assert place("", session="/cks") == place("") == "", "Spark makes a fresh directory at each start"


def test_text_that_no_file_system_would_take_is_a_place_all_the_same() -> None:
    assert place("http://[broken") == place("http://[broken") != ""
