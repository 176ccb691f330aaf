"""Questions of our own: asked a few times, answered once or given up."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.engine import Now
from veredus.protocols.topics.exchange import Ask
from veredus.protocols.topics.messages import Get, Status, encode_message
from veredus.protocols.topics.questions import Questions

ANSWER_NS, RETRIES_MAX = 100, 2
OK = encode_message(Status("there", "OK"))


class Scene:
    """Questions, the clock, and what was ordered and told."""

    def __init__(self) -> None:
        self.asked: list[Ask] = []
        self.told: list[tuple[str, Status | None]] = []
        self.questions = Questions(self.asked.append)
        self.now_ns = 0

    @property
    def now(self) -> Now:
        return Now(self.now_ns, self.now_ns)

    def ask(self, data: str, address: str = "there") -> None:
        self.questions.ask(
            address,
            data.encode(),
            lambda status, now: self.told.append((data, status)),
            self.now,
            ANSWER_NS,
            RETRIES_MAX,
        )

    def answer(self, token: int, data: bytes = OK) -> None:
        self.questions.answer(token, data, self.now)

    def pass_time(self, ns: int) -> None:
        end_ns = self.now_ns + ns
        while (at := self.questions.deadline()) is not None and at <= end_ns:
            self.now_ns = at
            self.questions.wake(self.now)
            following = self.questions.deadline()
            assert following is None or following > at
        self.now_ns = end_ns


def test_an_answer_is_told_once_and_nothing_is_due_any_more() -> None:
    scene = Scene()
    scene.ask("q")
    (ask,) = scene.asked
    assert (ask.address, ask.data) == ("there", b"q")
    scene.answer(ask.token)
    scene.answer(ask.token)
    assert scene.told == [("q", Status("there", "OK"))]
    assert scene.questions.deadline() is None


def test_what_is_not_answered_is_asked_again_a_few_times_and_given_up_then() -> None:
    scene = Scene()
    scene.ask("q")
    scene.pass_time(ANSWER_NS - 1)
    assert len(scene.asked) == 1
    scene.pass_time(1 + ANSWER_NS)
    assert scene.asked == [scene.asked[0]] * 3
    scene.pass_time(ANSWER_NS - 1)
    assert scene.told == []
    scene.pass_time(1)
    assert scene.told == [("q", None)]
    assert scene.questions.deadline() is None
    scene.answer(scene.asked[0].token)
    assert scene.told == [("q", None)], "it comes too late"


def test_an_answer_to_the_first_try_counts_while_another_is_under_way() -> None:
    scene = Scene()
    scene.ask("q")
    scene.pass_time(ANSWER_NS)
    scene.answer(scene.asked[0].token)
    scene.pass_time(10 * ANSWER_NS)
    assert scene.told == [("q", Status("there", "OK"))]
    assert len(scene.asked) == 2


def test_what_is_no_status_is_no_answer() -> None:
    scene = Scene()
    scene.ask("q")
    for wrong in (b"", b"garbage", b"STATUS\r\n\r\n", encode_message(Get("a", "t", "-1")), b"\xff\r\n\r\n"):
        scene.answer(scene.asked[0].token, wrong)
    assert scene.told == []
    scene.answer(scene.asked[0].token + 7)
    assert scene.told == []
    scene.answer(scene.asked[0].token)
    assert len(scene.told) == 1


def test_whoever_is_told_may_ask_again_at_once() -> None:
    scene = Scene()

    def ask_on(status: Status | None, now: Now) -> None:
        scene.ask("second")

    scene.questions.ask("there", b"first", ask_on, scene.now, ANSWER_NS, 0)
    scene.pass_time(ANSWER_NS)
    assert [ask.data for ask in scene.asked] == [b"first", b"second"]
    scene.answer(scene.asked[1].token)
    assert scene.told == [("second", Status("there", "OK"))]


class Step(NamedTuple):
    """Time passes, something is asked, or the question with this index is answered."""

    what: str
    value: int


@given(st.lists(st.builds(Step, st.sampled_from(["ask", "answer", "pass"]), st.integers(0, 150)), max_size=40))
def test_each_question_is_told_once_and_asked_no_more_than_it_may_be(steps: list[Step]) -> None:
    scene = Scene()
    count = 0
    for what, value in steps:
        if what == "ask":
            scene.ask(str(count))
            count += 1
        elif what == "answer" and scene.asked:
            scene.answer(scene.asked[value % len(scene.asked)].token)
        else:
            scene.pass_time(value)
    scene.pass_time((RETRIES_MAX + 1) * ANSWER_NS)
    assert sorted(int(data) for data, _ in scene.told) == list(range(count))
    for number in range(count):
        tries = [ask for ask in scene.asked if ask.data == str(number).encode()]
        assert 1 <= len(tries) <= RETRIES_MAX + 1
        assert len({ask.token for ask in tries}) == 1
    assert scene.questions.deadline() is None
