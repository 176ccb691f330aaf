"""Whom the rules take clients of topics for: that protocol has no place for a proof."""

import pytest

from veredus.node.rules import Rule
from veredus.node.settings import NodeSettings, SecuritySection
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
