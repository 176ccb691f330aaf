"""What a client says of a server that does not speak the native protocol: mostly it is another listener's port."""

from __future__ import annotations

_SPOKEN = {0xFF: "ZeroMQ", ord("H"): "HTTP", 0x15: "TLS"}
"""What a server speaks that answers like this."""
_CURE = (
    "the address of the node's native listener (listen.tcp, port 7071 by default; with veredus+tls:// that of"
    " listen.tls)"
)


def told_of_stranger(octets: bytes, reason: str) -> str:
    """A sentence about who answers our greeting with `octets`, which cannot be read for this `reason`."""
    spoken = _SPOKEN.get(octets[0])
    if spoken is not None:
        other = "write veredus+tls:// if it is the node's listener for TLS, or" if spoken == "TLS" else "write"
        return f"the server there speaks {spoken}, not Veredus' native protocol: {other} {_CURE}"
    return f"the server there does not speak Veredus' native protocol: write {_CURE}; it answers: {reason}"
