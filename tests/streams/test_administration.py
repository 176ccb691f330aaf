"""What administration refuses: nothing of it may come to be, and the sentence says what was wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.streams.rig import Rig
from veredus.kernel.errors import Refused
from veredus.kernel.names import U63_MAX
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
        ([], "Expected `object`, got `array`"),
        (None, "Expected `object`, got `null`"),
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


@pytest.mark.parametrize("most", [U63_MAX, float(U63_MAX)])
def test_the_largest_setting_that_a_refusal_names_is_taken(most: float) -> None:
    assert isinstance(create(Rig(), {"retention_age_s": most, "retention_count": U63_MAX}), x.AnswerAdmin)


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


@pytest.mark.parametrize("limit", ["5", math.nan, None, True, -1, 1 << 63, 2.0])
@pytest.mark.parametrize("page_max", [0, 200])
def test_a_limit_that_is_no_whole_number_is_refused(limit: object, page_max: int) -> None:
    (said,) = Rig().do(x.AdminRequested(1, 1, "local", "stream.list", {"limit": limit}, page_max))
    assert isinstance(said, x.Refuse)
    assert said.code == "bad-request"


@pytest.mark.parametrize("after", [{}, [], "", b"", b"x", 5, False])
def test_a_page_behind_what_is_empty_or_another_type_is_refused(after: object) -> None:
    (said,) = Rig().do(x.AdminRequested(1, 1, "local", "stream.list", {"after": after}, 200))
    assert isinstance(said, x.Refuse)
    assert said.code == "bad-request"


def test_a_page_is_never_larger_than_it_may_be_and_has_as_many_rows_where_nobody_says_how_many() -> None:
    rig = Rig()
    for name in ("a", "b", "c"):
        rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": name}))
    for arguments, names in (({}, ["a", "b"]), ({"limit": 5}, ["a", "b"]), ({"limit": 1, "after": None}, ["a"])):
        (said,) = rig.do(x.AdminRequested(1, 1, "local", "stream.names", arguments, 2))
        assert isinstance(said, x.AnswerAdmin)
        assert said.result["rows"] == names


def test_a_request_has_sixteen_arguments_and_no_more() -> None:
    rig = Rig()
    for count in (16, 17):
        arguments: dict[str, object] = {f"a{number}": 1 for number in range(count)}
        (said,) = rig.do(x.AdminRequested(1, 1, "local", "stream.list", arguments, 200))
        if count == 16:
            assert isinstance(said, x.AnswerAdmin)
        else:
            assert isinstance(said, x.Refuse)
            assert "stream.list has 17 arguments; a request has at most 16" in said.message


@pytest.mark.parametrize("wish", [1 << 63, (1 << 64) - 1, -1])
def test_a_wish_is_a_whole_number_of_63_bits(wish: int) -> None:
    rig = Rig()
    rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": "s"}))
    arguments: dict[str, object] = {"stream": "s", "subscriber": "me", "name": "main", "wish": wish}
    (said,) = rig.do(x.AdminRequested(1, 1, "local", "subscription.remove", arguments))
    assert isinstance(said, x.Refuse)
    assert said.code == "bad-request"


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
