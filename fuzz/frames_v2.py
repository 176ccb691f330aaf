"""The native protocol: frames off a stream in two cuts, and every body by every decoder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.driver import main
from fuzz.samples import columns_record, rows_record
from veredus.delivery.batch import BatchLimits
from veredus.kernel.errors import PeerFault
from veredus.matching import Filter
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps import native
from veredus.protocols.zeps.native import Frame
from veredus.protocols.zeps.parsing import FrameParser

SIZE_MAX = 1 << 20
LIMITS = BatchLimits(batch_size_max=1 << 16, body_size_max=1 << 16)
FRAMES = (
    native.encode_message(0, m.Hello("client", "token")),
    native.encode_message(1, m.AttachSource("s", "me", bytes(16))),
    native.encode_message(2, m.Subscribe("s", "a", "b", Filter(("prefix:a",), "a > 1"), incarnation=bytes(16))),
    native.encode_message(0, m.Request(1, "stream.create", {"name": "s", "config": {"retention_size": 5}})),
    native.encode_message(3, m.Commit(1, "sink", 1, 1, (1, 2, 3))),
    native.encode_message(0, m.Refusal("code", "message", {"floor": 3})),
    native.encode_receipt(1, 5, 6, False, 0),
    native.encode_settle(2, ((1, 2), (4, 9))),
    *native.encode_settled(2, 4, ((6, 7),)),
    native.encode_credit(2, 1 << 20),
    b"".join(native.encode_offer(1, rows_record())),
    b"".join(native.encode_offer(1, columns_record())),
    b"".join(native.encode_offer(1, columns_record("zstd"))),
    native.encode_frame(native.Kind.PING, 0, b"echo"),
)
SEEDS = (*FRAMES, b"".join(FRAMES))
DECODERS = (
    native.decode_message,
    native.decode_deliver,
    native.decode_receipts,
    native.decode_credit,
    native.decode_settle,
    native.decode_settled,
    native.check_ping,
    lambda frame: native.decode_offer(frame, LIMITS),
)


def target(data: bytes) -> None:
    whole, cut_up = FrameParser(SIZE_MAX), FrameParser(SIZE_MAX)
    expected = whole.feed(data)
    step = data[0] % 40 + 1 if data else 1
    got: list[Frame] = []
    for start in range(0, len(data), step):
        got += cut_up.feed(data[start : start + step])
    assert got == expected
    assert str(whole.fault) == str(cut_up.fault)
    for frame in expected:
        for decode in DECODERS:
            try:
                decode(frame)
            except PeerFault:
                continue


if __name__ == "__main__":
    main("frames_v2", target, SEEDS)
