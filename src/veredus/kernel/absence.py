"""Who was away itself may not judge others by the clock: they had no answer, and what they said may lie unread."""

_PART = 4


def was_away(due_ns: int, now_ns: int, waited_ns: int) -> bool:
    """Whether who wanted to look at `due_ns` whether something had come in `waited_ns` comes so late that it must wait
    anew: it was stopped meanwhile, or its machine was, or busy with something else.

    By a part of that time, so that nobody is waited for without end where each look comes a little late.
    """
    return (now_ns - due_ns) * _PART >= waited_ns
