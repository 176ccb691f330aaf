"""Whole worlds: their stories, campaigns of many, and planted bugs that they find."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from veredus.journal import layout
from veredus.journal.appending import Appending
from veredus.kernel.engine import Now
from veredus.node import retention
from veredus.protocols.zeps.answers import Answer, Answers
from veredus.protocols.zeps.interests import Interests
from veredus.sim import campaign
from veredus.sim.disk import SimDisk
from veredus.sim.topology import DRAWN
from veredus.streams.examine import Wanted
from veredus.streams.exchange import BatchOffered, ConfirmFilter
from veredus.streams.facts import SubscriptionOpened
from veredus.streams.flow import Flow, Taken
from veredus.streams.leases import Leases
from veredus.streams.publishing import Publishing
from veredus.streams.refiltering import Refiltering
from veredus.streams.replay import Replay
from veredus.streams.runs import Runs
from veredus.streams.subscription import Subscription
from veredus.streams.succession import refiltered


def test_the_story_of_a_world_is_told_line_by_line_and_changes_nothing() -> None:
    lines: list[str] = []
    told = campaign.run_seed(3, listen=lines.append)
    assert told == campaign.run_seed(3)
    assert any("node-1" in line and "is up" in line for line in lines)
    assert lines == sorted(lines, key=lambda line: float(line.split()[0]))


def test_worlds_run_at_once_end_as_they_do_one_by_one() -> None:
    seeds = range(1, 4)
    assert list(campaign.run_seeds(seeds, worker_count=2)) == [campaign.run_seed(seed) for seed in seeds]


def test_faults_can_be_chosen_and_unknown_ones_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    assert campaign.main(["--seeds", "2", "--workers", "1", "--faults", "crash"], said.append) == 0
    assert "zombie" not in "".join(said)
    with pytest.raises(SystemExit):
        campaign.main(["--faults", "meteor"], said.append)
    assert "there is no fault 'meteor'" in capsys.readouterr().err


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────────────


PlantedBug = Callable[[pytest.MonkeyPatch], None]


def forget_settled_ranges(plant: pytest.MonkeyPatch) -> None:
    def hand_on(subscription: Subscription, fact: SubscriptionOpened, unsettled_max: int) -> None:
        honest(subscription, fact, unsettled_max)
        subscription.excluded = ()

    honest = Subscription.hand_on
    plant.setattr(Subscription, "hand_on", hand_on)


def skip_a_sequence_now_and_then(plant: pytest.MonkeyPatch) -> None:
    def take(flow: Flow, *arguments: object) -> Taken:
        taken = honest(flow, *arguments)  # type: ignore[arg-type]
        if flow.position % 17 == 0 and flow.position < flow.stream.head_durable:
            flow.position += 1
        return taken

    honest = Flow.take
    plant.setattr(Flow, "take", take)


def mark_nothing_after_a_crash(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Replay, "finish", lambda *_: None)


def confirm_before_the_disk(plant: pytest.MonkeyPatch) -> None:
    def append(appending: Appending, event: object, now: object) -> None:
        honest(appending, event, now)  # type: ignore[arg-type]
        appending._answer([waiting for waiting in appending._queue if waiting.token == event.token])  # type: ignore[attr-defined]

    honest = Appending.append
    plant.setattr(Appending, "append", append)


def skip_the_sync_in_recovery(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(SimDisk, "sync", lambda *_: None)


def keep_the_stages_of_older_runs(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Runs, "drop_open_stages", lambda *_: None)


def lose_settled_ranges_in_a_checkpoint(plant: pytest.MonkeyPatch) -> None:
    def opened(subscription: Subscription) -> SubscriptionOpened:
        return msgspec.structs.replace(honest(subscription), settled=())

    honest = Subscription.opened
    plant.setattr(Subscription, "opened", opened)


def serve_bytes_unverified(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(layout, "is_body_sound", lambda _: True)


def confirm_a_filter_and_journal_nothing(plant: pytest.MonkeyPatch) -> None:
    def store(
        refiltering: Refiltering, flow: Flow, subscription: Subscription, wanted: Wanted, position: int, now: Now
    ) -> None:
        subscription.refilter(refiltered(subscription, wanted.filter, flow.position))
        flow.wanted = wanted
        refiltering._orders.say(ConfirmFilter(flow.session, flow.position))

    plant.setattr(Refiltering, "_store", store)


def answer_detach_before_all_is_taken(plant: pytest.MonkeyPatch) -> None:
    def owe(answers: Answers, command: bytes, ends: str = "") -> None:
        answers._waiting.append(Answer(command, 0, ends=ends))

    plant.setattr(Answers, "owe", owe)


def deliver_what_two_subscriptions_share_twice(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Interests, "covered", ())


def trim_what_cursors_need(plant: pytest.MonkeyPatch) -> None:
    def floor_of(config: object, parts: object, head: int, pins: object, wall_us: int) -> int:
        return honest(config, parts, head, (), wall_us)  # type: ignore[arg-type]

    honest = retention.floor_of
    plant.setattr(retention, "floor_of", floor_of)


def take_offers_of_an_older_epoch(plant: pytest.MonkeyPatch) -> None:
    def offer(publishing: Publishing, event: BatchOffered, now: Now) -> None:
        attachment = publishing.attachments.get(event.session)
        if attachment is not None and attachment.source is not None:
            event = replace(event, header=event.header._replace(epoch=attachment.source.epoch))
        honest(publishing, event, now)

    honest = Publishing.offer
    plant.setattr(Publishing, "offer", offer)


def begin_no_lease_after_a_crash(plant: pytest.MonkeyPatch) -> None:
    def begin(leases: Leases, *given: Any) -> None:
        honest(leases, *given)
        leases._is_begun = True

    honest = Leases.__init__
    plant.setattr(Leases, "__init__", begin)


@pytest.mark.parametrize(
    "plant_bug",
    [
        begin_no_lease_after_a_crash,
        confirm_a_filter_and_journal_nothing,
        answer_detach_before_all_is_taken,
        deliver_what_two_subscriptions_share_twice,
        trim_what_cursors_need,
        take_offers_of_an_older_epoch,
        skip_the_sync_in_recovery,
        keep_the_stages_of_older_runs,
        lose_settled_ranges_in_a_checkpoint,
        serve_bytes_unverified,
        forget_settled_ranges,
        skip_a_sequence_now_and_then,
        mark_nothing_after_a_crash,
        confirm_before_the_disk,
    ],
)
@pytest.mark.timeout(300)  # 80 worlds at most
def test_a_planted_bug_is_found(
    plant_bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_bug(monkeypatch)
    streams = replace(DRAWN, scene="streams")
    assert any(campaign.run_seed(seed, streams).violation for seed in range(1, 81))


def test_a_broken_guarantee_is_reported_with_its_seed_and_exit_code_9(monkeypatch: pytest.MonkeyPatch) -> None:
    mark_nothing_after_a_crash(monkeypatch)
    said: list[str] = []
    assert campaign.main(["--seeds", "12", "--workers", "1", "--whole"], said.append) == campaign.EXIT_VIOLATED == 9
    assert any(line.startswith("seed ") and "marked" in line for line in "".join(said).splitlines())
