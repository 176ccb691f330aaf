"""Who may do what: `may(principal, verb, stream)`, the one question that guards every door.

A rule allows some principals some verbs on some streams. The first rule that covers a question allows it; there is no
rule that denies, and what no rule covers is denied.

    principal   a name in which `*` is any run of characters: `desk-*`
    may         verbs out of `VERBS`, or `*` for all of them
    streams     names by dot-separated tokens: `*` is exactly one token, `>` at the end one or more; `>` alone is all

A peer that proves nothing is `local` while no security is set up, `anonymous` where that was asked for by
`insecure = true`, and nobody otherwise: no rule covers nobody, not even `principal = "*"`.
Source: the design, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from veredus.kernel.errors import Refused
from veredus.matching import Pattern, compile_pattern

VERBS = ("publish", "subscribe", "create", "delete", "trim", "describe")
EVERY_VERB = "*"
EVERY_STREAM = ">"
LOCAL = "local"
ANONYMOUS = "anonymous"
NOBODY = ""
PRINCIPAL_SIZE_MAX = 255
_REMEMBERED_MAX = 1024


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Allows every principal that matches `principal` the verbs `may` on the streams that match one of `streams`."""

    principal: str
    may: tuple[str, ...]
    streams: tuple[str, ...] = (EVERY_STREAM,)


EVERYTHING_ALLOWED = (Rule(principal="*", may=(EVERY_VERB,)),)


class CompiledRule:
    """A rule made ready."""

    __slots__ = ("_parts", "_patterns", "_verbs")

    def __init__(self, rule: Rule) -> None:
        """Raises `Refused("bad-rule")` for an unknown verb, or a stream pattern that does not parse."""
        for verb in rule.may:
            if verb not in VERBS and verb != EVERY_VERB:
                raise Refused("bad-rule", f"{verb!r} is no verb: there are {', '.join(VERBS)} and {EVERY_VERB}")
        if not rule.principal or not rule.may or not rule.streams:
            raise Refused("bad-rule", "a rule names a principal, at least one verb and at least one stream")
        self._parts = rule.principal.split("*")
        self._verbs = frozenset(VERBS if EVERY_VERB in rule.may else rule.may)
        try:
            self._patterns: tuple[Pattern, ...] = tuple(compile_pattern(f"tokens:{text}") for text in rule.streams)
        except Refused as refused:
            raise Refused("bad-rule", refused.message, **refused.details) from None

    @property
    def verbs_everywhere(self) -> frozenset[str]:
        """The verbs that the rule allows on every stream."""
        return self._verbs if any(pattern.is_everything for pattern in self._patterns) else frozenset()

    def covers_principal(self, principal: str) -> bool:
        """Whether the rule speaks of this principal."""
        first, *rest = self._parts
        if not rest:
            return principal == first
        *middle, last = rest
        if len(principal) < len(first) + len(last) or not (principal.startswith(first) and principal.endswith(last)):
            return False
        place, end = len(first), len(principal) - len(last)
        for part in middle:
            found = principal.find(part, place, end)
            if found < 0:
                return False
            place = found + len(part)
        return True

    def covers(self, verb: str, stream: bytes) -> bool:
        """Whether the rule allows its principals this verb on this stream; the name is given as UTF-8."""
        return verb in self._verbs and any(pattern.matches(stream) for pattern in self._patterns)


class Access:
    """Answers `may`, and says who a peer is that proves nothing.

    `unproven` is that principal; `NOBODY` where a peer has to prove who it is before it may do anything.
    """

    __slots__ = ("_by_principal", "_rules", "unproven")

    def __init__(self, rules: Iterable[Rule], unproven: str = NOBODY) -> None:
        """Raises `Refused("bad-rule")`."""
        self.unproven = unproven
        self._rules = tuple(CompiledRule(rule) for rule in rules)
        self._by_principal: dict[str, tuple[tuple[CompiledRule, ...], frozenset[str]]] = {}
        """The rules that speak of a principal, and the verbs that it may do on every stream."""

    def may(self, principal: str, verb: str, stream: str) -> bool:
        """Whether `principal` may do `verb` on `stream`."""
        if principal == NOBODY:
            return False
        known = self._by_principal.get(principal)
        if known is None:
            if len(self._by_principal) >= _REMEMBERED_MAX:
                self._by_principal.clear()
            rules = tuple(rule for rule in self._rules if rule.covers_principal(principal))
            known = rules, frozenset().union(*(rule.verbs_everywhere for rule in rules))
            self._by_principal[principal] = known
        rules, everywhere = known
        if verb in everywhere:
            return True
        name = stream.encode()
        return any(rule.covers(verb, name) for rule in rules)
