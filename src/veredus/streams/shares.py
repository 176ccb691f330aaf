"""How much one principal may have of each thing; and what the sources of each owner keep, which stay when nobody is
there and are read again at each start.

    source ──► its owner's share of the stream ──► its owner's share of the node

Invariants
    (1) The share of an owner is the sum of its shares of all streams that are there.
    (2) A source is in one share of its stream: that of its owner, "" for nobody in particular.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from typing import NamedTuple

from veredus.kernel.errors import Refused

from .rights import whose


class Allowance(NamedTuple):
    """Something of which one principal may have so much and no more; how that is refused."""

    code: str
    field: str
    """Of the refusal's details: the limit."""
    setting: str
    """The limit among those of the settings."""
    said: str
    """What is the case; `{whose}` and `{most}` stand for the principal and the limit."""
    cure: str
    """What to do, if not to raise the limit."""

    def check(self, owner: str, wanted: int, left: int, most: int) -> None:
        """Raise `Refused` where the owner wants more than is left to it; who wants nothing is refused nothing."""
        if wanted > max(0, left):
            raise self.refusal(owner, most)

    def refusal(self, owner: str, most: int) -> Refused:
        """The owner may have no more than `most`."""
        said = self.said.format(whose=whose(owner), most=most)
        return Refused(self.code, f"{said}: {self.cure}, or raise limits.{self.setting}", **{self.field: most})


STREAMS = Allowance(
    "too-many-streams", "streams_max", "streams_per_principal_max",
    "{whose} has created {most} streams, its limit", "delete some",
)  # fmt: skip
ATTACHED_SOURCES = Allowance(
    "too-many-sources", "sources_max", "sources_per_principal_max",
    "{whose} has {most} attached sources, its limit", "detach some",
)  # fmt: skip
SOURCES = Allowance(
    "too-many-sources", "sources_max", "kept_sources_per_principal_max",
    "the streams would know more than {most} sources of {whose}", "use the names of sources again, delete streams",
)  # fmt: skip
TOKENS = Allowance(
    "tokens-too-large", "size_max", "tokens_size_per_principal_max",
    "the resume tokens of the sources of {whose} would exceed {most} bytes", "write shorter tokens, delete streams",
)  # fmt: skip
SUBSCRIPTIONS = Allowance(
    "too-many-subscriptions", "subscriptions_max", "subscriptions_per_principal_max",
    "{whose} has {most} durable subscriptions, its limit", "remove some",
)  # fmt: skip
EPHEMERAL_SUBSCRIPTIONS = Allowance(
    "too-many-subscriptions", "subscriptions_max", "ephemeral_subscriptions_per_principal_max",
    "{whose} has {most} ephemeral subscriptions, its limit", "close some",
)  # fmt: skip
FILTERS = Allowance(
    "filters-too-large", "size_max", "filters_size_per_principal_max",
    "the filters of the durable subscriptions of {whose} would exceed {most} bytes",
    "remove some, write shorter filters",
)  # fmt: skip
TERMS = Allowance(
    "too-many-terms", "count_max", "filter_terms_per_principal_max",
    "the filters of {whose} would have more than {most} terms", "end subscriptions, write shorter filters",
)  # fmt: skip
SINKS = Allowance(
    "too-many-sinks", "sinks_max", "sinks_per_principal_max",
    "{whose} has {most} sinks, its limit", "remove some",
)  # fmt: skip
STAGES = Allowance(
    "too-many-stages", "stages_max", "stages_per_principal_max",
    "{whose} has {most} open stages, its limit", "commit or drop some",
)  # fmt: skip
COMMITS = Allowance(
    "commits-too-large", "streams_max", "committed_streams_per_principal_max",
    "the last commits of the sinks of {whose} would name more than {most} streams together",
    "remove some sinks, commit to fewer streams",
)  # fmt: skip


class Share:
    """How many sources an owner has, and the size of their resume tokens, in bytes."""

    __slots__ = ("count", "owner", "size", "whole")

    def __init__(self, owner: str, whole: Share | None = None) -> None:
        """Nothing yet; `whole` is what this one is a part of."""
        self.owner = owner
        self.count = 0
        self.size = 0
        self.whole = whole

    def add(self, count: int, size: int) -> None:
        """There are so many more of them, or fewer."""
        self.count += count
        self.size += size
        if self.whole is not None:
            self.whole.add(count, size)


class Shares:
    """Owns the shares of a node, or those of a stream in them."""

    __slots__ = ("_shares", "_whole")

    def __init__(self, whole: Shares | None = None) -> None:
        """No shares yet; `whole` are those of the node where these are a stream's."""
        self._shares: dict[str, Share] = {}
        self._whole = whole

    def of(self, owner: str) -> Share:
        """The owner's, in which there may be nothing."""
        share = self._shares.get(owner)
        if share is None:
            share = self._shares[owner] = Share(owner, None if self._whole is None else self._whole.of(owner))
        return share

    def forget(self) -> None:
        """The stream has gone, with all its sources: what the journal still says of these counts for nobody."""
        for share in self._shares.values():
            if share.whole is not None:
                share.whole.add(-share.count, -share.size)
                share.whole = None
        self._whole = None

    def amounts(self) -> dict[str, tuple[int, int]]:
        """How many sources, and bytes of tokens, each owner has who has any."""
        return {owner: (share.count, share.size) for owner, share in self._shares.items() if share.count or share.size}
