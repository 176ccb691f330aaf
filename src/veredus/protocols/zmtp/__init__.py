"""ZMTP 3.1, the wire of ZeroMQ, without sockets: greeting, frames, mechanisms, connection. Source: RFC 37 of ZeroMQ."""
