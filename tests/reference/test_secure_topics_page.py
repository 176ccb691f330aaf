"""docs/how-to/secure-topics.md: its settings are those of a proxy, a server and a client, and let the right ones in."""

import re
from pathlib import Path

from tests.reference.pages import REFERENCE
from veredus.node.exposure import access_of, topics_mechanisms_of
from veredus.runtime.configuration import Flag, read_configuration
from veredus.streams.rights import LOCAL, on_stream

PAGE = REFERENCE.parent / "how-to" / "secure-topics.md"


def test_the_settings_of_the_page_open_a_listener_to_other_machines_by_curve_alone(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "topics.toml"
    file.write_text(block)
    settings = read_configuration(file, flags=[Flag("topics.listen", "10.0.0.3:7091", "--listen")]).settings
    access = access_of(settings)
    assert topics_mechanisms_of(settings, access.unproven) == ("CURVE",)
    assert settings.topics.member_names == ("proxy", "server")
    assert access.may(LOCAL, "delete", on_stream("prices"))
    assert access.may("desk-1", "publish", on_stream("prices", source="desk-1"))
    assert not access.may("proxy", "publish", on_stream("prices"))
