"""Real processes, sockets, files and clocks that fail on purpose, and an audit of what everybody saw."""
