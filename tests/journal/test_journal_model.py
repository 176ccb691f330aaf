"""A journal, its floor above and a disk with a nemesis: whatever happens, what was answered is there, and nothing else.

The floor is a list of what was appended, in order. After a crash, recovery must give back what the last durable
checkpoint covers and, behind that, exactly the items from there on, up to some place at or behind the last one that
was answered.
"""

import json
import random

import pytest

from tests.journal.rig import DiskOrder, MemoryDisk, Rig, batch_entry, recover_from, staged_entry
from veredus.delivery.record import ENVELOPE_SIZE, RecordKind, RecordView
from veredus.journal.exchange import (
    Appended,
    AppendRequested,
    CheckpointRequested,
    CheckpointWanted,
    Entry,
    Located,
    LocateRequested,
    ReadBytes,
    StagesPublished,
    StagesUnwanted,
    StreamDropped,
    StreamTrimmed,
    SyncMode,
    WriteGroup,
    fact_entry,
)
from veredus.journal.layout import segment_name
from veredus.journal.settings import LogSettings
from veredus.kernel.gathered import Gathered

SECTOR = 512


class CarelessDisk(MemoryDisk):
    """Remembers what was overwritten since the last sync of each segment, and may forget any sector of it."""

    def __init__(self) -> None:
        super().__init__()
        self.unsynced: list[tuple[str, int, bytes]] = []

    def carry_out(self, order: DiskOrder) -> object:
        if isinstance(order, WriteGroup):
            name = segment_name(order.segment)
            size = sum(map(len, order.buffers))
            self.unsynced.append((name, order.offset, bytes(self.files[name][order.offset : order.offset + size])))
        answer = super().carry_out(order)
        if isinstance(order, WriteGroup) and order.is_synced:
            self.unsynced = [kept for kept in self.unsynced if kept[0] != segment_name(order.segment)]
        return answer

    def lose_power(self, dice: random.Random) -> None:
        for name, offset, old in reversed(self.unsynced):
            if name not in self.files:
                continue
            for start in range(offset // SECTOR * SECTOR, offset + len(old), SECTOR):
                if dice.random() < 0.3:
                    low, high = max(start, offset), min(start + SECTOR, offset + len(old))
                    self.files[name][low:high] = old[low - offset : high - offset]
        self.unsynced = []


class Floor:
    """What the floor above asked for (`items`), and what follows from the first `count` of them."""

    def __init__(self) -> None:
        self.items: list[dict] = []

    def tables(self, count: int) -> tuple[dict[int, dict[int, str]], dict[int, int], dict[int, list]]:
        """Rows by stream and sequence, floors, and the open stages' rows."""
        rows: dict[int, dict[int, str]] = {}
        floors: dict[int, int] = {}
        stages: dict[int, list] = {}
        gone: set[int] = set()
        for item in self.items[:count]:
            match item["kind"]:
                case "batch" if item["stream"] not in gone:
                    for i in range(item["count"]):
                        rows.setdefault(item["stream"], {})[item["first"] + i] = item["text"]
                case "staged":
                    stages.setdefault(item["stage"], []).extend([item["text"]] * item["count"])
                case "publish":
                    for i, text in enumerate(stages.pop(item["stage"], [])):
                        rows.setdefault(item["stream"], {})[item["first"] + i] = text
                case "drop":
                    stages.pop(item["stage"], None)
                case "trim":
                    floors[item["stream"]] = max(floors.get(item["stream"], 1), item["floor"])
                case "gone":
                    gone.add(item["stream"])
                    rows.pop(item["stream"], None)
                    for stage in [
                        s["stage"]
                        for s in self.items[:count]
                        if s["kind"] == "staged" and s["stream"] == item["stream"]
                    ]:
                        stages.pop(stage, None)
        return rows, floors, stages


def entry_of(item: dict) -> Entry:
    match item["kind"]:
        case "batch":
            entry = batch_entry(item["stream"], item["first"], item["count"], item["time"], item["size"])
        case "staged":
            entry = staged_entry(item["stage"], item["stream"], item["number"], item["count"], item["size"])
        case _:
            return fact_entry(json.dumps(item).encode(), 1)
    return entry


def event_of(item: dict) -> object | None:
    match item["kind"]:
        case "publish":
            return StagesPublished([(item["stage"], item["stream"], item["first"])], item["time"])
        case "drop":
            return StagesUnwanted([item["stage"]])
        case "trim":
            return StreamTrimmed(item["stream"], item["floor"])
        case "gone":
            return StreamDropped(item["stream"])
    return None


class World:
    """One life after another of a log on one disk."""

    def __init__(self, seed: int, mode: SyncMode) -> None:
        self.dice = random.Random(seed)
        self.settings = LogSettings(
            segment_size=self.dice.choice((12 << 10, 24 << 10)),
            checkpoint_interval_size=self.dice.choice((20 << 10, 80 << 10)),
            group_size_max=self.dice.choice((1 << 10, 1 << 20)),
            free_count_max=self.dice.choice((0, 2)),
            rows_cache_size_max=256,
            sync=mode,
        )
        self.floor = Floor()
        self.disk = CarelessDisk()
        self.rig = Rig(self.settings, disk=self.disk)
        self.tokens: dict[int, int] = {}
        self.seen = 0
        self.answered = 0
        self.durable_least = 0
        self.heads: dict[int, int] = {}
        self.stage_rows: dict[int, int] = {}
        self.stage_streams: dict[int, int] = {}
        self.next_stage = 1
        self.next_stream = 4
        self.streams = [1, 2, 3]
        self.times = 0

    # ── what the floor does ──────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, *items: dict) -> None:
        token = self.rig.token()
        self.floor.items.extend(items)
        self.tokens[token] = len(self.floor.items)
        self.rig.tell(AppendRequested(token, [entry_of(item) for item in items]))

    def batch(self, stream: int) -> dict:
        first = self.heads.get(stream, 0) + 1
        count = self.dice.choice((1, 1, 3, 40))
        self.heads[stream] = first + count - 1
        self.times += 1
        size = self.dice.choice((20, 100, 700))
        text = f"{stream}:{first}:0"
        return {
            "kind": "batch",
            "stream": stream,
            "first": first,
            "count": count,
            "time": self.times,
            "size": size,
            "text": text,
        }

    def act(self) -> None:
        dice = self.dice
        choice = dice.random()
        if choice < 0.5:
            self.ask(*[self.batch(dice.choice(self.streams)) for _ in range(dice.choice((1, 1, 1, 3)))])
        elif choice < 0.65:
            self.stage()
        elif choice < 0.72 and self.stage_rows:
            self.close_stage()
        elif choice < 0.78:
            stream = dice.choice(self.streams)
            head = self.heads.get(stream, 0)
            self.ask({"kind": "trim", "stream": stream, "floor": dice.randint(head // 2, head) + 1})
        elif choice < 0.79:
            stream = dice.choice(self.streams)
            self.streams[self.streams.index(stream)] = self.next_stream
            self.next_stream += 1
            for stage in [s for s, meant in self.stage_streams.items() if meant == stream]:
                del self.stage_rows[stage], self.stage_streams[stage]
            late = dice.random() < 0.5
            self.ask({"kind": "gone", "stream": stream})
            if late:
                self.ask(self.batch(stream))
        elif choice < 0.8:
            self.ask()
        else:
            for _ in range(dice.randint(1, 6)):
                self.step()

    def stage(self) -> None:
        if not self.stage_rows or self.dice.random() < 0.4:
            self.stage_rows[self.next_stage] = 0
            self.stage_streams[self.next_stage] = self.dice.choice(self.streams)
            self.next_stage += 1
        stage = self.dice.choice(sorted(self.stage_rows))
        number, count = self.stage_rows[stage] + 1, self.dice.choice((1, 5))
        self.stage_rows[stage] += count
        text = f"stage {stage}:{number}"
        self.ask(
            {"kind": "staged", "stage": stage, "stream": self.stage_streams[stage], "number": number, "count": count,
             "size": self.dice.choice((20, 300)), "text": text}
        )  # fmt: skip

    def close_stage(self) -> None:
        stage = self.dice.choice(sorted(self.stage_rows))
        count, stream = self.stage_rows.pop(stage), self.stage_streams.pop(stage)
        if self.dice.random() < 0.3:
            self.ask({"kind": "drop", "stage": stage})
            return
        first = self.heads.get(stream, 0) + 1
        self.heads[stream] = first + count - 1
        self.times += 1
        self.ask({"kind": "publish", "stage": stage, "stream": stream, "first": first, "time": self.times})

    # ── what the disk does ───────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> bool:
        """Wake the log; carry out one order of one of the three threads; hear what is said."""
        rig = self.rig
        rig.time_ns += self.dice.choice((0, 1_000_000, 50_000_000))
        rig.wake()
        self.hear()
        lanes = [
            [order for order in rig.pending if isinstance(order, WriteGroup)],
            [order for order in rig.pending if isinstance(order, ReadBytes)],
            [order for order in rig.pending if not isinstance(order, WriteGroup | ReadBytes)],
        ]
        waiting = [lane[0] for lane in lanes if lane]
        if not waiting:
            return False
        order = self.dice.choice(waiting)
        rig.pending.remove(order)
        event = self.disk.carry_out(order)
        if event is not None:
            rig.tell(event)
        self.hear()
        return True

    def hear(self) -> None:
        said, self.rig.said = self.rig.said, []
        wanted = False
        for effect in said:
            if isinstance(effect, Appended):
                end = self.tokens[effect.token]
                for item in self.floor.items[self.answered : end]:
                    if (event := event_of(item)) is not None:
                        self.rig.tell(event)
                assert end >= self.answered, "in the order of the requests"
                self.answered = end
            wanted = wanted or isinstance(effect, CheckpointWanted)
        if wanted or self.dice.random() < 0.01:
            self.rig.tell(CheckpointRequested(Gathered(b"%d" % self.answered)))

    def settle(self) -> None:
        while self.step():
            pass

    # ── what must hold ───────────────────────────────────────────────────────────────────────────────────────────────

    def crash(self, is_power_lost: bool) -> None:
        dice, disk = self.dice, self.disk
        is_kept = True
        for order in list(self.rig.pending):
            if isinstance(order, WriteGroup):
                self.tear(order)
            elif not isinstance(order, ReadBytes):
                is_kept = is_kept and dice.random() < 0.6
                if is_kept:
                    disk.carry_out(order)
        if is_power_lost:
            disk.lose_power(dice)
        found = recover_from(disk, self.settings)
        disk.unsynced = []
        assert [note for note in found.notes if note.event != "journal-torn-tail"] == []
        covered = int(found.states[0]) if found.states else 0
        count = covered + self.matched(found.views, covered)
        if self.settings.sync is SyncMode.GROUP or not is_power_lost:
            assert count >= self.answered
        del self.floor.items[count:]
        self.rig = Rig(self.settings, found.recovered, disk, last_token=self.rig.last_token)
        self.answered = count
        self.tokens.clear()
        for item in self.floor.items[covered:]:
            if (event := event_of(item)) is not None:
                self.rig.tell(event)
        self.remember()

    def tear(self, order: WriteGroup) -> None:
        data, name = b"".join(order.buffers), segment_name(order.segment)
        order_kept = self.dice.random()
        for start in range(order.offset // SECTOR * SECTOR, order.offset + len(data), SECTOR):
            if self.dice.random() < order_kept:
                low, high = max(start, order.offset), min(start + SECTOR, order.offset + len(data))
                self.disk.files[name][low:high] = data[low - order.offset : high - order.offset]

    def matched(self, views: list[RecordView], covered: int) -> int:
        """How many items behind the checkpoint were replayed: these, in this order, and no others."""
        dropped = {item["stage"] for item in self.floor.items[:covered] if item["kind"] == "drop"}
        gone = {item["stream"] for item in self.floor.items[:covered] if item["kind"] == "gone"}
        items = self.floor.items[covered:]
        count = 0

        def pass_unwanted() -> int:
            """Records of what was dropped before the checkpoint need not be replayed."""
            place = count
            while place < len(items) and items[place]["kind"] in ("batch", "staged"):
                if items[place]["stream"] not in gone and items[place].get("stage") not in dropped:
                    break
                place += 1
            return place

        for view in views:
            count = pass_unwanted()
            item = items[count]
            count += 1
            body = bytes(view.body)
            if view.envelope.kind == RecordKind.FACT:
                assert json.loads(bytes(view.payload)) == item
            else:
                kind = "batch" if view.envelope.kind == RecordKind.BATCH else "staged"
                place = item["first"] if kind == "batch" else item["stage"]
                assert (kind, view.envelope.first_sequence) == (item["kind"], place)
                assert body == bytes(entry_of(item).record[ENVELOPE_SIZE : ENVELOPE_SIZE + len(body)])
        return pass_unwanted()

    def remember(self) -> None:
        """After a crash the floor goes on from what is there."""
        rows, _, stages = self.floor.tables(self.answered)
        gone = {item["stream"] for item in self.floor.items if item["kind"] == "gone"}
        streams = {item["stage"]: item["stream"] for item in self.floor.items if item["kind"] == "staged"}
        self.next_stream += 1
        self.streams = [stream for stream in range(1, self.next_stream) if stream not in gone][-3:]
        self.heads = {stream: max(held) for stream, held in rows.items()}
        for item in self.floor.items:
            if item["kind"] == "trim":
                self.heads[item["stream"]] = max(self.heads.get(item["stream"], 0), item["floor"] - 1)
        self.stage_rows = {stage: len(held) for stage, held in stages.items() if streams[stage] in self.streams}
        self.stage_streams = {stage: streams[stage] for stage in self.stage_rows}

    def verify(self) -> None:
        self.settle()
        rows, floors, _ = self.floor.tables(self.answered)
        for stream, held in rows.items():
            floor = floors.get(stream, 1)
            expected = {sequence: text for sequence, text in held.items() if sequence >= floor}
            found: dict[int, str] = {}
            for record in self.rig.read_all(stream, floor, self.dice.choice((100, 3000, 1 << 20))):
                for i in range(record.count):
                    if record.first_sequence + i >= floor:
                        found[record.first_sequence + i] = record_text(record.memory)
                assert (
                    record.first_sequence
                    == RecordView(0, envelope_of(record.memory), record.memory).envelope.first_sequence
                )
            assert found == expected, stream
            self.verify_times(stream, floor)

    def verify_times(self, stream: int, floor: int) -> None:
        records = self.rig.read_all(stream, floor)
        for time_us in (0, self.times // 2, self.times + 1):
            token = self.rig.token()
            self.rig.tell(LocateRequested(token, stream, time_us))
            self.rig.settle()
            answer = self.rig.answer(token)
            assert isinstance(answer, Located)
            later = [max(floor, r.first_sequence) for r in records if r.append_time_us >= time_us]
            extent = self.rig.log.extent(stream)
            assert answer.sequence == min(later, default=max(floor, extent.last_sequence + 1))


def envelope_of(memory: memoryview) -> object:
    from veredus.delivery.record import read_envelope

    return read_envelope(memory)


def record_text(memory: memoryview) -> str:
    """What the first body says."""
    return bytes(memory[ENVELOPE_SIZE + 64 :]).split(b".")[0].rstrip(b"\0").decode()


@pytest.mark.parametrize("mode", list(SyncMode))
@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_what_was_answered_is_there_and_nothing_else(seed: int, mode: SyncMode) -> None:
    world = World(seed, mode)
    for life in range(4):
        for _ in range(world.dice.choice((10, 150))):
            world.act()
        if life % 2:
            world.verify()
        world.crash(is_power_lost=world.dice.random() < 0.5)
    world.verify()
