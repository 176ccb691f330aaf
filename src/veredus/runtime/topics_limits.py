"""What the peers of a proxy or a server of the topic service may take."""

from __future__ import annotations

from typing import NamedTuple

from veredus.node.accounts import Accounts
from veredus.node.admission import AdmissionLimits, limits_within
from veredus.node.connections import Connections
from veredus.node.pacing import Pacing
from veredus.node.quotas import SECOND_NS, Quotas
from veredus.node.receiving import DEFAULT_LIMITS, ReceiveLimits
from veredus.node.sending import SendLimits
from veredus.node.settings import NodeSettings
from veredus.protocols.zmtp.link import Timing


class TopicsLimits(NamedTuple):
    """What the peers of a proxy or server may take."""

    admission: AdmissionLimits = limits_within(10_000, 10_000, 2_500, 2_500, 5 * SECOND_NS)
    timing: Timing = Timing(5 * SECOND_NS, 10 * SECOND_NS, 30 * SECOND_NS)
    send: SendLimits = SendLimits()
    receive: ReceiveLimits = DEFAULT_LIMITS
    requests_max: int = 10_000
    connections_per_principal_max: int = 2_000
    rates_max: tuple[int, int] = (0, 0)
    """Bytes a second of each principal, in and out; 0 for no bound."""
    wait_max_ns: int = 100_000_000
    """How long what was asked of a server may wait there until who asks much is asked for no more."""

    def accounts(self, connections: Connections | None = None, quotas: Quotas | None = None) -> Accounts:
        """Accounts with these limits; connections and quotas may be a node's."""
        return Accounts(
            connections or Connections(self.connections_per_principal_max),
            quotas or Quotas(*self.rates_max, Pacing()),
            self.requests_max,
            self.receive.size_max,
        )


def topics_limits_of(settings: NodeSettings, admission: AdmissionLimits) -> TopicsLimits:
    """The limits that settings give to the peers of a proxy or a server."""
    limits = settings.limits
    timing = Timing(limits.greeting_timeout_ns, limits.heartbeat_interval_ns, limits.silence_max_ns)
    receive = ReceiveLimits(limits.receive_size_max, limits.frame_timeout_ns)
    send = SendLimits(limits.send_size_max, limits.send_buffer_size_max, limits.silence_max_ns)
    # Half of all places at most, so that no principal keeps the others out where files are few.
    per_principal_max = min(limits.connections_per_principal_max, max(1, admission.count_max // 2))
    rates_max = limits.received_per_principal_max, limits.sent_per_principal_max
    topics = settings.topics
    return TopicsLimits(
        admission, timing, send, receive, topics.requests_max, per_principal_max, rates_max, topics.answer_ns
    )
