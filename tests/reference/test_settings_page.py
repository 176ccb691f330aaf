"""docs/reference/settings.md says what the table of settings says."""

import inspect

from tests.reference.pages import part_on_page, table_of
from veredus.node.settings import SECTIONS, SETTINGS, STREAM_SETTINGS
from veredus.node.specs import Setting, Unit


def unit_of(setting: Setting) -> str:
    spec = setting.spec
    if spec.unit is Unit.CHOICE:
        return ", ".join(f"`{choice}`" for choice in spec.choices)
    if spec.unit not in (Unit.SIZE, Unit.DURATION, Unit.COUNT):
        return spec.unit.value
    name = {Unit.SIZE: "size", Unit.DURATION: "duration", Unit.COUNT: "count"}[spec.unit]
    bounds = [f"from {setting.format(spec.least)}"] if spec.least else []
    bounds += [f"to {setting.format(spec.most)}"] if spec.most is not None else []
    return f"{name}, {' '.join(bounds)}" if bounds else name


def rows_of(settings: tuple[Setting, ...]) -> list[tuple[str, ...]]:
    return [
        (
            f"`{setting.name}`",
            unit_of(setting),
            f"`{shown}`" if (shown := setting.format(setting.default)) else "none",
            setting.spec.meaning,
        )
        for setting in settings
    ]


def made_page() -> str:
    header = ("setting", "written as", "default", "meaning")
    parts = []
    for section, kind in SECTIONS.items():
        settings = tuple(setting for setting in SETTINGS if setting.section == section)
        parts.append(f"\n## [{section}]\n\n{inspect.getdoc(kind)}\n\n{table_of(header, rows_of(settings))}")
    parts.append(
        '\n## [stream."name"]\n\nHow the stream of this name is kept; what is not said here is as in [streams].\n\n'
    )
    parts.append(table_of(header, rows_of(STREAM_SETTINGS)))
    return "".join(parts)


def test_the_page_of_settings_says_what_the_table_says() -> None:
    made = made_page()
    assert part_on_page("settings.md", "settings", made) == made, "REGENERATE=1 pytest tests/reference makes it anew"


def test_the_page_of_settings_would_differ_if_a_setting_did() -> None:
    assert "`segment_size` | size, from 64 KiB to 4 GiB | `128 MiB`" in made_page()
