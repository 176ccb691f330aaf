"""What a life wrote down is there after its death, in order, and nothing else is taken for it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.processes import Child
from veredus.kernel.errors import Misuse, Refused
from veredus.recording import Kind, Recording, digest_of, manifest_of, to_parquet


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return tmp_path / "raw"


def rows(directory: Path, kind: Kind) -> list[dict[str, Any]]:
    return pq.read_table(directory / kind).to_pylist()


def the_file(raw: Path, kind: Kind) -> Path:
    (path,) = raw.glob(f"*.{kind}.arrows")
    return path


def test_each_kind_is_written_down_as_it_was_told(raw: Path, tmp_path: Path) -> None:
    with Recording(raw, "desk") as recording:
        recording.offered("trades", "desk", 7, [b"a", "b"], [b"1", None])
        recording.acknowledged("trades", "desk", 7, 8, 100)
        recording.pushed(
            "trades",
            "main",
            [100, 101],
            ["desk", ""],
            [7, 0],
            redelivered=[False, True],
            keys=["a", "b"],
            bodies=["1", ""],
        )
        recording.settled("trades", "main", 100, 101)
        recording.pushed("trades", "main", [102], ["desk"], [9], redelivered=True, digests=[-5])
        recording.gap("trades", "main", 103, 105, "damaged")
    to_parquet(raw, tmp_path / "out")

    assert rows(tmp_path / "out", Kind.OFFERED) == [
        {"stream": "trades", "source": "desk", "number": 7, "digest": digest_of("a", "1")},
        {"stream": "trades", "source": "desk", "number": 8, "digest": digest_of(b"b", None)},
    ]
    assert rows(tmp_path / "out", Kind.ACKNOWLEDGED) == [
        {"stream": "trades", "source": "desk", "first_number": 7, "last_number": 8, "first_sequence": 100}
    ]
    subscription = {"stream": "trades", "subscription": "main", "life": recording.life}
    pushed = rows(tmp_path / "out", Kind.PUSHED)
    assert [row["place"] for row in pushed] == [1, 2, 3]
    assert [row["redelivered"] for row in pushed] == [False, True, True]
    assert pushed[2] == subscription | {
        "place": 3, "sequence": 102, "source": "desk", "number": 9, "digest": -5, "redelivered": True,
    }  # fmt: skip
    assert rows(tmp_path / "out", Kind.SETTLED) == [
        subscription | {"place": 2, "first_sequence": 100, "last_sequence": 101}
    ]
    assert rows(tmp_path / "out", Kind.GAPS) == [
        subscription | {"place": 3, "first_sequence": 103, "last_sequence": 105, "code": "damaged"}
    ]


KILLED = """
import sys
from veredus.recording import Recording
with Recording(sys.argv[1], "desk") as recording:
    number = 1
    while True:
        recording.offered("trades", "desk", number, [b"key"] * 50, [b"body"] * 50)
        number += 50
        print(number - 1, flush=True)
"""


def test_what_a_call_returned_from_outlives_a_kill(raw: Path, tmp_path: Path) -> None:
    with Child([sys.executable, "-c", KILLED, str(raw)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(20):
            child.stdout.readline()
        child.kill()
        told = [int(line) for line in child.stdout.read().splitlines() if line.endswith(b"0")]
    to_parquet(raw, tmp_path / "out")
    written = [row["number"] for row in rows(tmp_path / "out", Kind.OFFERED)]
    assert written == list(range(1, len(written) + 1))
    assert len(written) >= max(told, default=1000)


def test_only_a_call_that_was_torn_off_is_missing(raw: Path, tmp_path: Path) -> None:
    with Recording(raw, "desk") as recording:
        recording.offered("trades", "desk", 1, [b"a"], [b"1"])
        whole = the_file(raw, Kind.OFFERED).stat().st_size
        recording.offered("trades", "desk", 2, [b"b"], [b"2"])
    content = the_file(raw, Kind.OFFERED).read_bytes()
    for size in range(whole, len(content), 7):
        the_file(raw, Kind.OFFERED).write_bytes(content[:size])
        out = tmp_path / f"out-{size}"
        manifest = to_parquet(raw, out)[Kind.OFFERED]
        assert [row["number"] for row in rows(out, Kind.OFFERED)] == [1]
        assert manifest.torn == (size > whole)


def test_damage_is_told_with_its_file_and_place(raw: Path, tmp_path: Path) -> None:
    with Recording(raw, "desk") as recording:
        first = the_file(raw, Kind.PUSHED).stat().st_size
        for number in range(3):
            recording.pushed("trades", "main", [number], ["desk"], [number], redelivered=False, digests=[0])
    path = the_file(raw, Kind.PUSHED)
    content = bytearray(path.read_bytes())
    content[first : first + 8] = b"\x01\x02\x03\x04\x05\x00\x00\x00"
    path.write_bytes(content)
    with pytest.raises(Refused, match="offset") as refused:
        to_parquet(raw, tmp_path / "out")
    assert refused.value.code == "damaged"
    assert str(path) in refused.value.message
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.iterdir()) == [raw]


def test_no_flipped_bit_takes_anything_along_that_was_written_before_or_after_it(raw: Path, tmp_path: Path) -> None:
    with Recording(raw, "desk") as recording:
        for number in (1, 2):
            recording.acknowledged("trades", "desk", number, number)
        path = the_file(raw, Kind.ACKNOWLEDGED)
        last = path.stat().st_size
        recording.acknowledged("trades", "desk", 3, 3)
    content = path.read_bytes()
    outcomes = set()
    for place in range(0, last, 3):
        spoiled = bytearray(content)
        spoiled[place] ^= 1 << (place % 8)
        path.write_bytes(spoiled)
        outcomes.add(row_count_or_code(raw, tmp_path / f"out-{place}"))
    assert outcomes == {3, "damaged", "bad-schema"}


def row_count_or_code(raw: Path, out: Path) -> int | str:
    try:
        return to_parquet(raw, out)[Kind.ACKNOWLEDGED].rows
    except Refused as error:
        return error.code


def test_a_file_that_is_something_else_is_no_call_that_was_torn_off(raw: Path, tmp_path: Path) -> None:
    with Recording(raw, "desk") as recording:
        recording.acknowledged("trades", "desk", 1, 1)
    the_file(raw, Kind.ACKNOWLEDGED).write_bytes(b"a note to myself\n" * 9)
    with pytest.raises(Refused, match="cannot be read from offset 0 on: no message begins there"):
        to_parquet(raw, tmp_path / "out")


def test_a_disk_that_is_full_is_named_and_what_comes_later_can_be_read(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int, __: memoryview) -> int:
        raise OSError(28, "No space left on device")

    with Recording(raw, "desk") as recording:
        for _ in range(2):
            with monkeypatch.context() as meanwhile:
                meanwhile.setattr(os, "write", full)
                with pytest.raises(OSError, match="No space left") as error:
                    recording.offered("trades", "desk", 1, [b"a"], [b"1"])
            assert error.value.filename == str(raw / f"{recording.life}.offered.arrows")
            recording.offered("trades", "desk", 1, [b"a"], [b"1"])
    assert to_parquet(raw, tmp_path / "out")[Kind.OFFERED].rows == 2


def test_lives_are_in_order_though_the_clock_was_set_back(raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = []
    for clock_ns in (5_000_000, 3_000_000, 5_000_000, 4_000_000):
        monkeypatch.setattr("time.time_ns", lambda now=clock_ns: now)
        with Recording(raw, "main") as recording:
            lives.append(recording.life)
    assert lives == sorted(lives)
    assert len(set(lives)) == 4


def test_the_manifest_says_what_should_be_there(raw: Path, tmp_path: Path) -> None:
    for who in ("one", "two"):
        with Recording(raw, who) as recording:
            recording.offered("trades", who, 1, [b"a"] * 3, [b"b"] * 3)
    to_parquet(raw, tmp_path / "out")
    manifest = manifest_of(tmp_path / "out" / Kind.OFFERED)
    assert manifest is not None
    assert (manifest.rows, manifest.lives, manifest.torn) == (6, 2, 0)
    assert manifest.files == {"part-00000.parquet": 6}
    assert manifest_of(tmp_path) is None
    gaps = manifest_of(tmp_path / "out" / Kind.GAPS)
    assert gaps is not None
    assert gaps.rows == 0


def test_a_large_recording_becomes_several_parts(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veredus.recording.conversion._ROWS_PER_GROUP", 10)
    monkeypatch.setattr("veredus.recording.conversion._ROWS_PER_PART", 40)
    with Recording(raw, "desk") as recording:
        for number in range(1, 100, 5):
            recording.offered("trades", "desk", number, [b"a"] * 5, [b"b"] * 5)
    manifest = to_parquet(raw, tmp_path / "out")[Kind.OFFERED]
    assert manifest.files == {"part-00000.parquet": 40, "part-00001.parquet": 40, "part-00002.parquet": 20}
    assert [row["number"] for row in rows(tmp_path / "out", Kind.OFFERED)] == list(range(1, 101))


def test_columns_of_different_lengths_are_refused_and_write_nothing(raw: Path, tmp_path: Path) -> None:
    with Recording(raw, "desk") as recording:
        with pytest.raises(Misuse, match="differ in length"):
            recording.offered("trades", "desk", 1, [b"a"], [])
        with pytest.raises(Misuse, match="differ in length"):
            recording.pushed("trades", "main", [1, 2], ["desk"], [1, 2], redelivered=False, digests=[1, 2])
        with pytest.raises(Misuse, match="differ in length"):
            recording.pushed("trades", "main", [1], ["desk"], [1], redelivered=[], digests=[1])
        recording.pushed("trades", "main", [1], ["desk"], [1], redelivered=False, digests=[1])
    to_parquet(raw, tmp_path / "out")
    assert [row["place"] for row in rows(tmp_path / "out", Kind.PUSHED)] == [1]
    assert rows(tmp_path / "out", Kind.OFFERED) == []


def test_a_name_that_names_no_file_is_refused(raw: Path) -> None:
    with pytest.raises(Refused, match="cannot name a file"):
        Recording(raw, "../desk")


def test_a_directory_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no recording"):
        to_parquet(tmp_path, tmp_path / "out")


def test_the_digest_is_the_one_that_spark_is_known_to_give() -> None:
    assert digest_of(None, None) == 42
    assert [digest_of("k", "body"), digest_of(None, b""), digest_of(b"", b"")] == SPARK_DIGESTS


SPARK_DIGESTS = [-3530849247729873369, -7444071767201028348, 6372822119346140258]


def test_a_recording_that_is_closed_says_so(raw: Path) -> None:
    with Recording(raw, "desk") as recording:
        recording.pushed("trades", "main", [1], ["desk"], [1], redelivered=False, digests=[0])
    for use in (
        lambda: recording.settled("trades", "main", 1, 1),
        lambda: recording.pushed("trades", "main", [2], ["desk"], [2], redelivered=False, digests=[0]),
    ):
        with pytest.raises(Misuse, match="this recording was closed") as told:
            use()
        assert told.value.code == "closed"
    recording.close()


@pytest.mark.parametrize("who", [5, None, "", "a/b", "x" * 101])
def test_who_cannot_name_a_file_is_refused(raw: Path, who: Any) -> None:
    with pytest.raises(Refused, match="cannot name a file") as told:
        Recording(raw, who)
    assert told.value.code == "bad-name"
