"""Whose message an id names that the server of its topic does not know: every server is asked, the highest id first.

    GET ──► its server: does not know the id ──► each server, by descending ids ──┬── one knows it: its answer
                                                                                  └── none: its server, as from -1

A topic, and what is known of its ids, moves to lower ids only. So what is at none of the servers when it is asked, is
nowhere when all were: it was of a topic that was removed, and nothing is owed of it. That holds if all servers are
known: a proxy decides it only if they are listed, and each has said what it claims.
Source: docs/reference/wire/topics.md; docs/decisions/0012.
"""

from __future__ import annotations

from collections.abc import Collection

from .asked import Question
from .mapping import TopicMap
from .messages import Get, GetMany, StatusWord, decode_body, decode_header, encode_message, status_of, status_word_of
from .words import NO_MESSAGE_ID

_GETS = ("GET", "GET_MANY")


def is_unknown(question: Question, data: bytes) -> bool:
    """Whether a server answers that it does not know the id that is named."""
    answer = status_of(data) if question.name in _GETS else None
    return answer is not None and answer.status == StatusWord.SERVER_UNAVAILABLE and answer.message_id != ""


def asks_on(question: Question, data: bytes, topics: TopicMap, listed: Collection[str]) -> bool:
    """Whether somebody is to be asked behind this answer, whom `question` names then; else it goes to the client."""
    if not question.home:
        if not _may_begin(question, topics, listed):
            return False
        question.home, question.sought = question.server, tuple(reversed(topics.servers))
    elif question.said or not (status_word_of(data) == StatusWord.NOT_SUBSCRIBED or is_unknown(question, data)):
        return False
    question.tries = 1
    if question.sought:
        question.server, *left = question.sought
        question.sought = tuple(left)
    else:
        message = decode_body(decode_header(question.data), question.data)
        assert isinstance(message, Get | GetMany)
        question.server, question.said = question.home, encode_message(message._replace(last_id=NO_MESSAGE_ID))
    return True


def _may_begin(question: Question, topics: TopicMap, listed: Collection[str]) -> bool:
    """Whether it can be found out that nobody knows the id; while several claim the topic, the merge tells."""
    is_alone = not question.rivals and topics.claimants_of(question.topic) in ((), (question.server,))
    return is_alone and question.server in listed and sorted(listed) == topics.servers
