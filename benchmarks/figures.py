"""The figures that Veredus has to reach, as data: one row each, with where its value is found in the results.

A value that needs a subject which was not measured is not reached and says so; nothing is ever filled in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.results import Results

Place = tuple[str, str, str]
"""Subject, scenario (a trial's own name for a trial) and metric."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One promise: a metric, or its ratio to the best of some others, at least or at most a bound."""

    what: str
    bound: float
    unit: str
    place: Place
    beside: tuple[Place, ...] = ()
    is_upper: bool = False

    def value(self, results: Results) -> float | None:
        """The measured value, in the figure's unit, or None where a part of it was not measured."""
        measured = results.best((self.place,), is_less_better=self.is_upper)
        if measured is None or not self.beside:
            return measured
        other = results.best(self.beside, is_less_better=self.is_upper)
        return None if other is None else measured / other

    def is_reached(self, results: Results) -> bool | None:
        """Whether the bound is kept, or None where there is no value."""
        value = self.value(results)
        if value is None:
            return None
        return value <= self.bound if self.is_upper else value >= self.bound


_RATE: Final = "rate_hz"
_PUBSUB: Final = (("pyzmq-pubsub", "throughput-100", _RATE),)
_REDIS: Final = (("redis-streams", "throughput-100", _RATE), ("redis-streams-xread", "throughput-100", _RATE))
_NATS: Final = (("nats-jetstream", "throughput-100", _RATE), ("nats-jetstream-pull", "throughput-100", _RATE))
_SMALL: Final = ("veredus", "throughput-100", _RATE)


def _latency(subject: str, metric: str) -> Place:
    return (subject, "latency-100", metric)


_NATS_P50: Final = (_latency("nats-jetstream", "p50_ns"), _latency("nats-jetstream-pull", "p50_ns"))
_NATS_P99: Final = (_latency("nats-jetstream", "p99_ns"), _latency("nats-jetstream-pull", "p99_ns"))
_REDIS_P50: Final = (_latency("redis-streams", "p50_ns"), _latency("redis-streams-xread", "p50_ns"))
_NONE_P50: Final = _latency("veredus-none", "p50_ns")
_NONE_P99: Final = _latency("veredus-none", "p99_ns")
_GROUP_P50: Final = _latency("veredus", "p50_ns")
_FRESH: Final = ("veredus-fresh", "throughput-1k", "bytes_per_s")
_RAW_ONCE: Final = (("raw-disk", "raw-disk", "fresh_bytes_per_s"),)
_RAW_GROUPED: Final = (("raw-disk", "raw-disk", "fresh_grouped_bytes_per_s"),)

_FLOWS: Final = (
    Figure("100-byte bodies, end to end, per publication", 3.5e6, "/s", _SMALL),
    Figure("the same, beside pyzmq PUB/SUB", 1, "×", _SMALL, _PUBSUB),
    Figure("the same, beside Redis Streams", 25, "×", _SMALL, _REDIS),
    Figure("the same, beside NATS JetStream", 50, "×", _SMALL, _NATS),
    Figure("with three attributes", 2e6, "/s", ("veredus", "throughput-100-attributes", _RATE)),
    Figure("Arrow batches at both ends", 8e6, "/s", ("veredus-arrow", "throughput-100", _RATE)),
    Figure("1 KiB bodies, recycled segments", 700e6, "B/s", ("veredus", "throughput-1k", "bytes_per_s")),
    Figure("1 KiB bodies, fresh segments, beside raw write, one fdatasync", 0.6, "×", _FRESH, _RAW_ONCE),
    Figure("1 KiB bodies, fresh segments, beside raw write, one every 8 MiB", 0.6, "×", _FRESH, _RAW_GROUPED),
    Figure("latency p50, sync none, beside JetStream", 1.1, "×", _NONE_P50, _NATS_P50, is_upper=True),
    Figure("latency p99, sync none, beside JetStream", 1.1, "×", _NONE_P99, _NATS_P99, is_upper=True),
    Figure("latency p50, sync group, beside Redis", 1.3, "×", _GROUP_P50, _REDIS_P50, is_upper=True),
)


def _trial(what: str, bound: float, unit: str, name: str, metric: str, is_upper: bool = False) -> Figure:
    return Figure(what, bound, unit, (name, name, metric), is_upper=is_upper)


_TRIALS: Final = (
    _trial("historical replay, unfiltered, examined", 5e6, "/s", "veredus-replay", "examined_hz"),
    _trial("historical replay, key prefix matching 1%", 10e6, "/s", "veredus-replay-filtered", "examined_hz"),
    _trial("fan-out to 100 subscribers, deliveries", 3e6, "/s", "veredus-fanout", "deliveries_hz"),
    _trial(
        "1,000 predicates: added to a publication of a batch", 2e-6, "s", "veredus-predicates", "added_1000_s", True
    ),
    _trial("10,000 predicates: the same", 10e-6, "s", "veredus-predicates", "added_10000_s", True),
    _trial("1,000 predicates: lone publication, beside none", 2, "×", "veredus-predicates", "lone_ratio_1000", True),
    _trial("10,000 predicates: the same", 2, "×", "veredus-predicates", "lone_ratio_10000", True),
    _trial("stalled subscriber: rate kept by the live one", 0.95, "×", "veredus-stalled", "rate_kept"),
    _trial("stalled subscriber: growth of the node", 64 * 2**20, "B", "veredus-stalled", "growth_size", True),
    _trial("at rest, 10 GB journal: resident", 300 * 2**20, "B", "veredus-at-rest", "resident_size", True),
    _trial("at rest: clean start", 2, "s", "veredus-at-rest", "clean_start_s", True),
    _trial("at rest: start after SIGKILL", 5, "s", "veredus-at-rest", "killed_start_s", True),
    _trial("10,000 streams once a second: sustained", 10_000, "/s", "veredus-many-streams", "rate_hz"),
    _trial("1,000 asyncio sources, bulks of 10: beside one", 0.5, "×", "veredus-many-sources", "ratio_of_10"),
    _trial("1,000 asyncio sources, bulks of 100: the same", 0.5, "×", "veredus-many-sources", "ratio_of_100"),
    _trial("10,000 streams once a second: p99 receipt", 0.1, "s", "veredus-many-streams", "receipt_p99_s", True),
    _trial("Spark source → count and sum", 3e6, "rows/s", "veredus-spark", "count_rows_hz"),
    _trial("Spark source → Parquet", 1e6, "rows/s", "veredus-spark", "parquet_rows_hz"),
    _trial("Spark sink", 0.7e6, "rows/s", "veredus-spark", "sink_rows_hz"),
)


def _beside(what: str, bound: float, ours: str, other: str, metric: str, is_upper: bool = False) -> Figure:
    return Figure(what, bound, "×", (ours, ours, metric), ((other, other, metric),), is_upper)


_TOPICS_ONE: Final = ("topics-one-client", "topics-one-async-client", "topics-one-page-client")
_TOPICS_MANY: Final = ("topics-many-clients", "topics-many-group-clients", "topics-many-page-clients")
_TOPICS: Final = (
    *(
        _beside(f"{name}: put and get, p50, beside RabbitMQ", 1.5, name, "rabbitmq-one-client", "p50_ns", True)
        for name in _TOPICS_ONE
    ),
    *(_trial(f"{name}: operations", 8_000, "/s", name, _RATE) for name in _TOPICS_MANY),
    *(_beside(f"{name}: the same, beside RabbitMQ", 1, name, "rabbitmq-many-clients", _RATE) for name in _TOPICS_MANY),
    _trial("topics in bulk: put", 200_000, "/s", "topics-bulk", "put_hz"),
    _trial("topics in bulk: got", 200_000, "/s", "topics-bulk", "get_hz"),
    _trial("topics in bulk: put and got at the same time", 200_000, "/s", "topics-bulk", "both_hz"),
    _trial("100,000 topics on a server: clean start", 5, "s", "topics-at-rest", "clean_start_s", True),
    _trial("100,000 topics on a server: resident", 500 * 2**20, "B", "topics-at-rest", "resident_size", True),
    _trial("merge of 100,000 diverged messages", 10, "s", "topics-merge", "merge_s", True),
    _trial("merge: longest wait of a client meanwhile", 1, "s", "topics-merge", "longest_wait_s", True),
)

FIGURES: Final = _FLOWS + _TRIALS + _TOPICS
