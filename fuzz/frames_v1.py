"""ZEPS 1: commands off a stream in two cuts, and as whole frames."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.driver import main
from veredus.kernel.errors import PeerFault
from veredus.protocols.zeps import frames

SIZE_MAX = 4096
COMMANDS = (
    frames.encode_attach("prices"),
    frames.encode_subscribe(b"regex:a.*", 1 << 40),
    frames.encode_credit(1 << 63),
    frames.encode_publish(b"a.b", b"body" * 9),
    frames.encode_deliver(7, b"k", b"v"),
    frames.PING,
    frames.encode_invalid("no"),
)
SEEDS = (*COMMANDS, b"".join(COMMANDS), COMMANDS[3] * 20)


def flat(commands: list[frames.Command]) -> list[object]:
    taken: list[object] = []
    for command in commands:
        if isinstance(command, frames.Publish):
            taken += zip(command.keys, command.bodies, strict=True)
        else:
            taken.append(command)
    return taken


def target(data: bytes) -> None:
    whole, cut_up = frames.CommandParser(SIZE_MAX), frames.CommandParser(SIZE_MAX)
    expected = flat(whole.feed(data))
    step = data[0] % 40 + 1 if data else 1
    got: list[frames.Command] = []
    for start in range(0, len(data), step):
        got += cut_up.feed(data[start : start + step])
    assert flat(got) == expected
    assert str(whole.fault) == str(cut_up.fault)
    try:
        frames.decode_command(data, SIZE_MAX)
    except PeerFault:
        return


if __name__ == "__main__":
    main("frames_v1", target, SEEDS)
