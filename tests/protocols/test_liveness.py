"""Silence: pinged, then let go; never while the node itself does not read."""

from veredus.protocols.liveness import Liveness, Verdict

SECOND = 1_000_000_000


def begun() -> Liveness:
    liveness = Liveness(10 * SECOND, 30 * SECOND)
    liveness.begin(0)
    return liveness


def verdicts(liveness: Liveness, end_s: int) -> list[tuple[int, Verdict]]:
    """What is said whenever the deadline comes, up to `end_s`."""
    said = []
    while (at := liveness.deadline()) is not None and at <= end_s * SECOND:
        said.append((at // SECOND, liveness.look(at)))
        after = liveness.deadline()
        assert after is None or after > at
    return said


def test_a_silent_peer_is_pinged_each_interval_and_then_let_go() -> None:
    assert verdicts(begun(), 100) == [(10, Verdict.PING), (20, Verdict.PING), (30, Verdict.SILENT)]


def test_a_peer_that_talks_is_not_pinged() -> None:
    liveness = begun()
    for second in range(1, 60, 9):
        liveness.hear(second * SECOND)
        assert {verdict for _, verdict in verdicts(liveness, second + 9)} <= {Verdict.WELL}


def test_a_peer_that_answers_each_ping_lives() -> None:
    liveness = begun()
    for second in range(10, 200, 10):
        assert verdicts(liveness, second) == [(second, Verdict.PING)]
        liveness.hear(second * SECOND)
        liveness.look(second * SECOND)


def test_a_peer_is_not_silent_while_nobody_reads_from_it() -> None:
    liveness = begun()
    liveness.pause()
    assert {verdict for _, verdict in verdicts(liveness, 100)} == {Verdict.WELL}
    liveness.resume(100 * SECOND)
    assert verdicts(liveness, 200)[-1] == (130, Verdict.SILENT)


def test_nothing_is_due_before_it_begins_and_after_it_ended() -> None:
    liveness = Liveness(10 * SECOND, 30 * SECOND)
    assert (liveness.deadline(), liveness.look(99 * SECOND)) == (None, Verdict.WELL)
    liveness.begin(0)
    liveness.end()
    assert (liveness.deadline(), liveness.look(99 * SECOND)) == (None, Verdict.WELL)


def test_for_how_long_the_node_comes_late_to_look_is_not_silence() -> None:
    liveness = begun()
    assert liveness.look(500 * SECOND) is Verdict.PING
    assert [at for at, _ in verdicts(liveness, 1000)] == [510, 520]
    assert liveness.deadline() is None


def test_late_or_not_a_peer_that_was_heard_meanwhile_is_not_pinged() -> None:
    liveness = begun()
    liveness.hear(500 * SECOND)
    assert liveness.look(500 * SECOND) is Verdict.WELL
    assert liveness.deadline() == 510 * SECOND
