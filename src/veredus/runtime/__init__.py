"""The hands: sockets, disk, clocks, and the loop that drives the engines."""
