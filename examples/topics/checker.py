"""What came of it, judged twice: by the accounts of the clients, and by what the servers hold.

All subscriptions precede all puts, so each client is owed every flight of its topics, once. The first opinion holds
what each was given against what the others were told to be taken. The second one reads the streams of all servers by
the native protocol, and holds them against the puts too; and where a topic was at one server all the time, what each
client was given, id by id, against what lies there.

Order: what one server's stream gave to a client came as it lies there, which its ids tell, and what was put at one
server lies there as it was put. Where a topic was *shared* by several servers for a while, what was put at the one can
come behind what was put later at the other: that is counted apart.

What a client was given as the last thing of a topic before it was killed may come again as the first thing after: that
it had it, nobody could know but itself, and the id tells it. It is counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from accounts import FAILED, GOT, LIFE, PUT, SUBSCRIBED, Line
from cluster import Row
from first_demo import Tally

Accounts = Mapping[str, Sequence[Line]]
"""By client."""
FAULTS_SHOWN_MAX = 20
AGAIN, SHARED_OUT_OF_ORDER = "given again behind a kill", "out of order between servers"


@dataclass
class Opinion:
    """A tally, what in it is wrong, and what is counted beside it."""

    tally: Tally = field(default_factory=Tally)
    expected: int = 0
    beside: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether all is there, once, and nothing else."""
        return self.tally.is_clean and self.tally.rows == self.expected

    def fault(self, kind: str, what: str, count: int = 1) -> None:
        """Count what is `lost`, `doubled`, `out_of_order` or `wrong`."""
        if count:
            setattr(self.tally, kind, getattr(self.tally, kind) + count)
            self.faults.append(f"{kind.replace('_', ' ')}: {what}")


def puts_in(accounts: Accounts) -> dict[str, dict[int, tuple[str, str]]]:
    """By topic and flight, who put it and the digest of its body."""
    puts: dict[str, dict[int, tuple[str, str]]] = {}
    for client, lines in accounts.items():
        for line in lines:
            if line.kind == PUT:
                puts.setdefault(line.topic, {})[line.index] = client, line.digest
    return puts


def gets_in(lines: Iterable[Line]) -> tuple[dict[str, list[Line]], int]:
    """By topic, what a client was given, without what came again behind a kill; and how often that was."""
    gets: dict[str, list[Line]] = {}
    newly: set[str] = set()
    """Topics of which something was given in this life."""
    again_count = 0
    for line in lines:
        if line.kind == LIFE:
            newly.clear()
        elif line.kind == SUBSCRIBED:
            gets.setdefault(line.topic, [])
        elif line.kind == GOT:
            before = gets.setdefault(line.topic, [])
            if before and before[-1] == line and line.topic not in newly:
                again_count += 1
            else:
                before.append(line)
            newly.add(line.topic)
    return gets, again_count


def judge_puts(accounts: Accounts, flights: Mapping[str, Mapping[int, str]]) -> Opinion:
    """Whether each flight (by topic and place, its digest) was put, and told to be taken, once."""
    opinion = Opinion(expected=sum(map(len, flights.values())))
    told = Counter((line.topic, line.index) for lines in accounts.values() for line in lines if line.kind == PUT)
    opinion.tally.rows = told.total()
    for topic, indexes in flights.items():
        for index in indexes:
            count = told.pop((topic, index), 0)
            opinion.fault("lost", f"flight {index} of {topic} was never told to be taken", not count)
            opinion.fault("doubled", f"flight {index} of {topic} was put {count} times", count - 1 if count else 0)
    for (topic, index), count in told.items():
        opinion.fault("wrong", f"flight {index} was put into {topic}, where it does not belong", count)
    for topic, puts in puts_in(accounts).items():
        for index, (client, digest) in puts.items():
            is_other = index in flights.get(topic, {}) and flights[topic][index] != digest
            opinion.fault("wrong", f"{client} put another body than that of flight {index}", is_other)
    return opinion


def judge_gets(accounts: Accounts, subscriptions: Mapping[str, Sequence[str]], shared: set[str]) -> Opinion:
    """Whether each client was given all that was put into its topics, once, and in the order of each putter.

    `shared` topics were at several servers for a while: they go out in the order of each putter, not as they lie, and
    what came out of it, since later ones had been received before the merge, is counted beside.
    """
    opinion = Opinion()
    puts = puts_in(accounts)
    for client, topics in subscriptions.items():
        gets, again_count = gets_in(accounts[client])
        opinion.beside[AGAIN] += again_count
        for topic in topics:
            opinion.expected += len(puts.get(topic, {}))
            _judge_topic(opinion, f"{client} on {topic}", gets.pop(topic, []), puts.get(topic, {}), topic in shared)
        strange = sum(map(len, gets.values()))
        opinion.fault("wrong", f"{client} was given {strange} of topics that it is not subscribed to", strange)
        opinion.tally.rows += strange
    return opinion


def _judge_topic(
    opinion: Opinion, who: str, got: Sequence[Line], put: Mapping[int, tuple[str, str]], is_shared: bool
) -> None:
    opinion.tally.rows += len(got)
    counts = Counter(line.index for line in got)
    for index in put:
        opinion.fault("lost", f"{who} was never given flight {index}", not counts[index])
    for index, count in counts.items():
        opinion.fault("doubled", f"{who} was given flight {index} {count} times", count - 1)
    for line in got:
        _, digest = put.get(line.index, ("", ""))
        opinion.fault("wrong", f"{who} was given as flight {line.index} what nobody put", digest != line.digest)
    newest: dict[str, int] = {}
    for line in got:
        stream, _, sequence = line.message_id.partition("-")
        is_back = int(sequence) <= newest.get(stream, 0) and not is_shared
        opinion.fault("out_of_order", f"{who} was given {line.message_id} behind {newest.get(stream)}", is_back)
        newest[stream] = int(sequence)
    last: dict[str, int] = {}
    for line in got:
        putter, _ = put.get(line.index, ("", ""))
        is_late = line.index < last.get(putter, -1)
        if is_late and is_shared:
            opinion.beside[SHARED_OUT_OF_ORDER] += 1
        else:
            opinion.fault("out_of_order", f"{who} was given flight {line.index} late", is_late)
        last[putter] = line.index


def judge_streams(
    rows: Mapping[str, Sequence[Row]],
    accounts: Accounts,
    subscriptions: Mapping[str, Sequence[str]],
    shared: set[str],
) -> Opinion:
    """Whether the servers' streams hold each put once, as it was put, and in the order in which all were given it."""
    opinion = Opinion()
    puts = puts_in(accounts)
    for topic in sorted({*rows, *puts}):
        put, held = puts.get(topic, {}), rows.get(topic, ())
        opinion.expected += len(put)
        opinion.tally.rows += len(held)
        servers = {row.server for row in held}
        opinion.fault("wrong", f"{topic} is at {', '.join(sorted(servers))}", len(servers) > 1)
        counts = Counter(row.index for row in held)
        for index in put:
            opinion.fault("lost", f"flight {index} is nowhere in {topic}", not counts[index])
        for index, count in counts.items():
            opinion.fault("doubled", f"flight {index} is {count} times in {topic}", count - 1)
        for row in held:
            is_wrong = put.get(row.index) != (row.client, row.digest)
            opinion.fault("wrong", f"{topic} holds as flight {row.index} what {row.client} did not put", is_wrong)
        _judge_counters(opinion, topic, [row for row in held if topic not in shared or not row.was_moved])
        if topic not in shared:
            _judge_order(opinion, topic, [row.message_id for row in held], accounts, subscriptions)
    return opinion


def _judge_counters(opinion: Opinion, topic: str, held: Sequence[Row]) -> None:
    for client in dict.fromkeys(row.client for row in held):
        counters = [row.counter for row in held if row.client == client]
        late_count = sum(after <= before for before, after in pairwise(counters))
        opinion.fault("out_of_order", f"puts of {client} lie in {topic} in another order", late_count)


def _judge_order(
    opinion: Opinion,
    topic: str,
    ids: Sequence[str],
    accounts: Accounts,
    subscriptions: Mapping[str, Sequence[str]],
) -> None:
    for client in (client for client, topics in subscriptions.items() if topic in topics):
        given = [line.message_id for line in gets_in(accounts[client])[0].get(topic, [])]
        for message_id in dict.fromkeys((*ids, *given)):
            if message_id not in given:
                opinion.fault("lost", f"{client} was never given {message_id} of {topic}")
            elif message_id not in ids:
                opinion.fault("wrong", f"{client} was given {message_id} of {topic}, which is not there")
        places = {message_id: place for place, message_id in enumerate(ids)}
        given_places = [places[message_id] for message_id in given if message_id in places]
        late_count = sum(after <= before for before, after in pairwise(given_places))
        opinion.fault("out_of_order", f"{client} was not given {topic} as it lies there", late_count)


def failures_in(accounts: Accounts) -> Counter[str]:
    """How often clients were told that something cannot be had now, by operation and code."""
    return Counter(line.topic for lines in accounts.values() for line in lines if line.kind == FAILED)
