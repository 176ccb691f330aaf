"""Whom the rules take clients of topics for that prove nothing, and as whom a server works for itself."""

import pytest

from veredus.node.rules import Rule
from veredus.node.settings import NodeSettings, SecuritySection, TopicsSection
from veredus.runtime.serve import server_settings_of
from veredus.streams.rights import ANONYMOUS, LOCAL

RULES = (Rule(principal="*", may=("*",)),)


@pytest.mark.parametrize(
    ("security", "principal"),
    [
        (SecuritySection(), LOCAL),
        (SecuritySection(insecure=True), ANONYMOUS),
        (SecuritySection(tokens="tokens", rules=RULES), ANONYMOUS),
        (SecuritySection(tokens="tokens", rules=(*RULES, Rule(principal=ANONYMOUS, may=("publish",)))), ANONYMOUS),
        (SecuritySection(tokens="tokens", rules=(*RULES, Rule(principal=LOCAL, may=("*",)))), ANONYMOUS),
    ],
)
def test_clients_of_topics_are_anonymous_as_soon_as_anything_is_set_up(
    security: SecuritySection, principal: str
) -> None:
    assert server_settings_of(NodeSettings(security=security), "127.0.0.1:1").principal == principal


def test_a_server_that_has_members_announces_and_merges_as_local() -> None:
    security = SecuritySection(tokens="tokens", rules=RULES)
    members = NodeSettings(security=security, topics=TopicsSection(members="proxy"))
    assert server_settings_of(members, "127.0.0.1:1").own_principal == LOCAL
    assert server_settings_of(NodeSettings(security=security), "127.0.0.1:1").own_principal == ""
