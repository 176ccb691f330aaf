"""Who is measured: one line each, in the order of the tables.

An entry is `module:factory`; what the factory returns keeps the contract of `contender.py`. Modules are imported when
they are asked for, and must not import what may be missing before `missing()` has said that it is there.
"""

from __future__ import annotations

import importlib
from typing import Final, cast

from benchmarks.contender import Contender, Trial

CONTENDERS: Final = (
    "benchmarks.contenders.veredus:group",
    "benchmarks.contenders.veredus:arrow",
    "benchmarks.contenders.veredus:fresh",
    "benchmarks.contenders.veredus:none",
    "benchmarks.peers.pyzmq_sockets:pub_sub",
    "benchmarks.peers.pyzmq_sockets:push_pull",
    "benchmarks.peers.nats_jetstream:push_consumer",
    "benchmarks.peers.nats_jetstream:pull_consumer",
    "benchmarks.peers.redis_streams:consumer_group",
    "benchmarks.peers.redis_streams:plain_reader",
)

TRIALS: Final = (
    "benchmarks.disk:RawDisk",
    "benchmarks.relay:RawRelay",
    "benchmarks.contenders.replay:whole",
    "benchmarks.contenders.replay:filtered",
    "benchmarks.contenders.fanout:Fanout",
    "benchmarks.contenders.predicates:Predicates",
    "benchmarks.contenders.stalled:Stalled",
    "benchmarks.contenders.resting:AtRest",
    "benchmarks.contenders.many_streams:ManyStreams",
    "benchmarks.contenders.many_sources:ManySources",
    "benchmarks.contenders.spark_flows:Spark",
    "benchmarks.contenders.topics_one:blocking",
    "benchmarks.contenders.topics_one:asynchronous",
    "benchmarks.contenders.topics_one:page",
    "benchmarks.peers.rabbitmq:OneClient",
    "benchmarks.contenders.topics_many:library",
    "benchmarks.contenders.topics_many:group",
    "benchmarks.contenders.topics_many:page",
    "benchmarks.peers.rabbitmq:ManyClients",
    "benchmarks.contenders.topics_bulk:TopicsBulk",
    "benchmarks.contenders.topics_at_rest:TopicsAtRest",
    "benchmarks.contenders.topics_merge:TopicsMerge",
)


def contender(entry: str) -> Contender:
    """The contender that `entry` names."""
    return cast(Contender, _load(entry))


def trial(entry: str) -> Trial:
    """The trial that `entry` names."""
    return cast(Trial, _load(entry))


def _load(entry: str) -> object:
    module, _, factory = entry.partition(":")
    return getattr(importlib.import_module(module), factory)()
