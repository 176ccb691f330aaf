"""A node as a source sees it, in a few lines: what it has, and what it would answer."""

from dataclasses import dataclass, field

from veredus.delivery.batch import BatchHeader, BatchLimits, read_header, token_of, verify_signature
from veredus.delivery.outbox import BatchRejected, Granted, Taken
from veredus.delivery.payload import read_rows, verify_payload
from veredus.delivery.record import ENVELOPE_SIZE

STREAM_ID, SOURCE_ID, GROUP = 7, 3, 0


@dataclass
class ModelNode:
    """Takes batches as docs/internals says a stream does: dense numbers, duplicates known, gaps refused."""

    limits: BatchLimits = field(default_factory=BatchLimits)
    bodies: list[bytes] = field(default_factory=list)
    """What was taken, by number from 1."""
    token: bytes = b""
    token_number: int = 0
    epoch: int = 1
    is_anonymous: bool = False
    attached_number: int = 0
    waiting: list[bytearray] = field(default_factory=list)
    """Offers on the present link that have no answer yet."""

    def grant(self) -> Granted:
        self.waiting.clear()
        self.attached_number = 0
        last = 0 if self.is_anonymous else len(self.bodies)
        source = 0 if self.is_anonymous else SOURCE_ID
        epoch = 0 if self.is_anonymous else self.epoch
        return Granted(STREAM_ID, source, epoch, last, last, GROUP, self.limits)

    def read(self, record: bytearray) -> tuple[BatchHeader, list[bytes], bytes]:
        _, payload_size, token_size = (
            record[0],
            *(int.from_bytes(record[at : at + 4], "little") for at in (ENVELOPE_SIZE + 12, ENVELOPE_SIZE + 16)),
        )
        batch = memoryview(record)[ENVELOPE_SIZE : ENVELOPE_SIZE + 64 + payload_size + token_size]
        header = read_header(batch)
        verify_signature(batch)
        verify_payload(batch, header, self.limits)
        return header, read_rows(batch, header).bodies, token_of(batch, header)

    def answer(self, unstored: str = "") -> Taken | BatchRejected:
        """Deal with the oldest offer; it is refused with the code `unstored`, if there is one."""
        header, bodies, token = self.read(self.waiting.pop(0))
        assert (header.stream_id, header.source_id) == (STREAM_ID, 0 if self.is_anonymous else SOURCE_ID)
        assert header.epoch == (0 if self.is_anonymous else self.epoch)
        last = self.attached_number if self.is_anonymous else len(self.bodies)
        if header.last_number <= last:
            return Taken(header.last_number, header.first_number, True, GROUP)
        if header.first_number <= last:
            return BatchRejected(header.first_number, "straddles", "cut it", last)
        if header.first_number > last + 1:
            return BatchRejected(header.first_number, "gap", "what lies between?", last)
        if unstored:
            return BatchRejected(header.first_number, unstored, "no space", last)
        self.attached_number = header.last_number
        self.bodies += bodies
        if token:
            self.token, self.token_number = token, len(self.bodies)
        return Taken(header.last_number, len(self.bodies) - header.count + 1, False, GROUP)
