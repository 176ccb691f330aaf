"""The configuration of a stream as a request gives it."""

from __future__ import annotations

import msgspec

from veredus.kernel.errors import Refused, field_fault
from veredus.kernel.names import U63_MAX

from .facts import StreamConfig


def _most(value: float) -> float:
    """No float is U63_MAX: what is written so is read as the next one."""
    return float(U63_MAX) if isinstance(value, float) else U63_MAX


def read_config(stream: str, given: object, sources_max: int = StreamConfig().sources_max) -> StreamConfig:
    """How a stream is to be kept, every word of it understood: a fact that is read passes over unknown ones.

    `sources_max` is that of a configuration that does not say it. Raises `Refused("bad-config")`.
    """
    known = StreamConfig.__struct_fields__
    unknown = [str(name)[:40] for name in given if name not in known] if isinstance(given, dict) else []
    try:
        if not unknown:
            config = msgspec.convert(given, StreamConfig)
            if isinstance(given, dict) and "sources_max" not in given and config.sources_max != sources_max:
                config = msgspec.structs.replace(config, sources_max=sources_max)
            least = {name: int(name == "sources_max") for name in known}
            wrong = [name for name in known if not least[name] <= getattr(config, name) <= _most(getattr(config, name))]
            if not wrong:
                return config
            fault = f"{wrong[0]} must be between {least[wrong[0]]} and {U63_MAX}"
        else:
            fault = f"unknown setting {unknown[0]!r}; known: {', '.join(known)}"
    except msgspec.ValidationError as error:
        fault = field_fault(error)
    raise Refused("bad-config", f"the configuration of stream {stream!r} is not valid: {fault}")
