"""What whoever has a name no more is told of that."""

from __future__ import annotations


def fenced(who: str, what: str, epoch: int, own: int = 0) -> str:
    """Why `who` of the epoch `own`, 0 where that is not said, has `what` no more, which the journal has at `epoch`."""
    if own <= epoch:
        return f"another {who} has taken over {what} (epoch {epoch}): this one must stop"
    # Nobody has taken over: it was granted by what the journal is no more.
    return (
        f"{what} has epoch {epoch} here, and this {who} was granted epoch {own}: the stream was created again, or the"
        " node was put back to an older copy. Start the program again, and check what is left of what it had done"
    )


def fenced_run(sink: str, epoch: int) -> str:
    """Why a run of the sink, or who writes a stage of it, must stop: there is one of this epoch."""
    return f"a newer run (epoch {epoch}) of sink {sink!r} was opened: this one must stop"


def fenced_source(name: str, epoch: int, own: int = 0) -> str:
    """As `fenced`, for a publisher."""
    return fenced("publisher", f"source {name!r}", epoch, own)
