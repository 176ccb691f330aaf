"""What administration refuses: nothing of it may come to be, and the sentence says what was wrong."""

from __future__ import annotations

import pytest

from tests.streams.rig import Rig
from veredus.streams import exchange as x


def create(rig: Rig, config: object) -> x.AnswerAdmin | x.Refuse:
    (said,) = rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": "s", "config": config}))
    assert isinstance(said, x.AnswerAdmin | x.Refuse)
    return said


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"retention_cuont": 5}, "there is no 'retention_cuont', but retention_age_s, retention_size, "),
        ({"retention_count": 5, 7: 1}, "there is no '7', but "),
        ({"retention_count": "many"}, "Expected `int`, got `str`"),
        ([1], "Expected `object`, got `array`"),
    ],
)
def test_a_stream_is_created_as_it_was_asked_for_or_not_at_all(config: object, words: str) -> None:
    rig = Rig()
    refused = create(rig, config)
    assert isinstance(refused, x.Refuse)
    assert refused.code == "bad-config"
    assert refused.message.startswith("the configuration of stream 's' is not right: ")
    assert words in refused.message
    assert not rig.floor.tables.streams
    created = create(rig, {"retention_count": 5})
    assert isinstance(created, x.AnswerAdmin)
