"""What administration refuses: nothing of it may come to be, and the sentence says what was wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.streams.rig import Rig
from veredus.kernel.errors import Refused
from veredus.streams import exchange as x
from veredus.streams import listing
from veredus.streams.places import Places


def create(rig: Rig, config: object) -> x.AnswerAdmin | x.Refuse:
    (said,) = rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": "s", "config": config}))
    assert isinstance(said, x.AnswerAdmin | x.Refuse)
    return said


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"retention_cuont": 5}, "unknown setting 'retention_cuont'; known: retention_age_s, retention_size, "),
        ({"retention_count": 5, 7: 1}, "unknown setting '7'; known: "),
        ({"retention_count": "many"}, "Expected `int`, got `str`"),
        ([1], "Expected `object`, got `array`"),
        ({"retention_age_s": math.inf}, "retention_age_s must be between 0 and 9223372036854775807"),
        ({"retention_age_s": math.nan}, "retention_age_s must be between 0 and 9223372036854775807"),
        ({"retention_size": 1 << 63}, "retention_size must be between 0 and 9223372036854775807"),
        ({"sources_max": 0}, "sources_max must be between 1 and 9223372036854775807"),
    ],
)
def test_a_stream_is_created_as_it_was_asked_for_or_not_at_all(config: object, words: str) -> None:
    rig = Rig()
    refused = create(rig, config)
    assert isinstance(refused, x.Refuse)
    assert refused.code == "bad-config"
    assert refused.message.startswith("the configuration of stream 's' is not valid: ")
    assert words in refused.message
    assert not rig.floor.tables.streams
    created = create(rig, {"retention_count": 5})
    assert isinstance(created, x.AnswerAdmin)


def listed(rig: Rig, verb: str, **arguments: object) -> object:
    (answer,) = rig.do(x.AdminRequested(1, 1, "local", verb, arguments))
    assert isinstance(answer, x.AnswerAdmin)
    return answer.result


def test_a_list_is_given_in_pages_and_each_row_once() -> None:
    rig = Rig(may=lambda principal, verb, resource: resource.name != "s3" or verb != "describe")
    for number in range(7):
        rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": f"s{number}", "config": {}}))
    names: list[str] = []
    after: object = None
    pages = 0
    while True:
        page = listed(rig, "stream.list", limit=2, after=after)
        assert isinstance(page, dict)
        assert len(page["rows"]) <= 2
        names += [row["name"] for row in page["rows"]]
        pages, after = pages + 1, page["next"]
        if after is None:
            break
    assert names == ["s0", "s1", "s2", "s4", "s5", "s6"]
    assert pages == 3


def test_a_page_that_goes_on_behind_what_is_no_place_is_refused() -> None:
    rig = Rig()
    (refused,) = rig.do(x.AdminRequested(1, 1, "local", "stream.list", {"limit": 5, "after": "s3"}))
    assert isinstance(refused, x.Refuse)
    assert (refused.code, "`next`" in refused.message) == ("bad-request", True)


def test_a_list_whose_rows_nobody_may_see_is_still_given_to_its_end() -> None:
    rig = Rig(may=lambda principal, verb, resource: verb != "describe")
    for number in range(3):
        rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": f"s{number}", "config": {}}))
    assert listed(rig, "stream.names", limit=1) == {"rows": [], "next": None}


def test_where_a_page_ends_gives_away_no_name_that_may_not_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOKED_AT_MAX", 2)
    rig = Rig(may=lambda principal, verb, resource: not resource.name.startswith("secret") or verb != "describe")
    for name in ("a", "secret-1", "secret-2", "secret-3", "z"):
        rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": name, "config": {}}))
    names, heard, after = [], "", None
    while True:
        page: Any = listed(rig, "stream.names", limit=5, after=after)
        names, heard, after = names + page["rows"], heard + str(page), page["next"]
        if after is None:
            break
    assert (names, "secret" in heard) == (["a", "z"], False)


def test_a_sealed_place_is_read_by_who_sealed_it_and_by_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iter([bytes(16), b"k" * 16])
    mine, other = Places(lambda: next(keys)), Places(lambda: next(keys))
    sealed = mine.shown(("secret",), may_see=False)
    assert isinstance(sealed, bytes)
    assert mine.read("stream.list", sealed) == ("secret",)
    assert mine.read("stream.list", mine.shown(("plain",), may_see=True)) == ("plain",)
    for spoiled in (sealed[:-1], sealed + b"\0", b"", bytes(40), 7, ["a", 1]):
        with pytest.raises(Refused, match="first page again"):
            mine.read("stream.list", spoiled)
    for reader, verb in ((other, "stream.list"), (mine, "subscription.list")):
        with pytest.raises(Refused, match="first page again"):
            reader.read(verb, sealed)
