"""An error keeps its code, its sentence and its details wherever it goes."""

import pickle

import pytest

from veredus.kernel.errors import Fenced, InvariantBroken, Misuse, PeerFault, Refused, Unavailable, VeredusError

KINDS = (Misuse, Refused, Fenced, Unavailable, PeerFault)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_the_way_to_another_process(kind: type[VeredusError]) -> None:
    error = kind("number-gap", "number 7 does not follow 4: offer 5 next", last=4)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (again.code, again.message, again.details) == ("number-gap", error.message, {"last": 4})
    assert str(again) == "number 7 does not follow 4: offer 5 next [number-gap]"


def test_a_broken_invariant_is_not_caught_with_the_errors_of_others() -> None:
    assert not issubclass(InvariantBroken, VeredusError)


def test_each_kind_of_fault_is_told_apart() -> None:
    assert [kind for kind in KINDS for other in KINDS if kind is not other and issubclass(kind, other)] == []
