"""What a client says of an answer to its greeting that is none: mostly it is another listener's port."""

from __future__ import annotations

_TOO_LATE = "greeting-timeout"
_SPOKEN = {0xFF: "ZeroMQ", ord("H"): "HTTP", 0x15: "TLS"}
"""What a server speaks that answers like this."""
_CURE = (
    "the address of the node's native listener (listen.tcp, port 7071 by default; with veredus+tls:// that of"
    " listen.tls)"
)


def cause_of(octets: bytes, reason: str) -> tuple[str, str]:
    """A code, and a sentence about who answers our greeting with `octets`, which is no ATTACH-OK for this `reason`."""
    if reason.startswith(_TOO_LATE):
        # The next one may be in time.
        return _TOO_LATE, "the greeting reached the node too late"
    return "version-unknown", _told_of_stranger(octets, reason)


def _told_of_stranger(octets: bytes, reason: str) -> str:
    spoken = _SPOKEN.get(octets[0])
    if spoken is not None:
        other = "write veredus+tls:// if it is the node's listener for TLS, or" if spoken == "TLS" else "write"
        return f"the server there speaks {spoken}, not Veredus' native protocol: {other} {_CURE}"
    return f"the server there does not speak Veredus' native protocol: write {_CURE}; it answers: {reason}"
