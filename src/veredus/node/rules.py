"""Who may do what: `may(principal, verb, resource)`, the one question that guards every listener.

Rules are an ordered list. The first rule that covers a question decides it; what no rule covers is denied.

    principal     a name in which `*` is any run of characters: `desk-*`
    may           verbs out of `VERBS` that the rule allows, or `*` for all of them
    deny          verbs that it denies, before it looks at `may`
    streams       patterns of names, as below; so are the next three
    sinks
    sources       as which sources of these streams; limits the verbs whose request names a source
    subscribers   as which subscribers of these streams; likewise

A rule that names neither streams nor sinks covers all of both; one that names either covers no other kind. Names are
taken apart at `.` and `/`: in a pattern, `*` is any run of characters within one token, `>` at the end one or more
tokens, and `>` alone is every name.

`*` in a principal covers those alone who have proved who they are. Peers that prove nothing have names of their own,
which a rule must give literally: `anonymous`; `local` for peers on the machine: those of the Unix socket, and all while
no security is set up; and `multicast`, which is everybody who hears the group. Where no rule names `anonymous`, such a
peer is nobody, and is told to prove who it is.
Source: docs/internals/DESIGN.md, "Rights".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from veredus.kernel.errors import Refused, field_fault
from veredus.streams.rights import ANONYMOUS, LOCAL, MULTICAST, NOBODY, SINK, STREAM, UNPROVEN, VERBS, Resource

if TYPE_CHECKING:
    from veredus.matching import Pattern

EVERY_VERB = "*"
EVERY_NAME = ">"
PRINCIPAL_SIZE_MAX = 255
_REMEMBERED_MAX = 8192
_JOINED_MAX = 1024
_NAME_PATTERN = re.compile(r"[A-Za-z0-9_.:@/+=*>-]+", re.ASCII)
_Names: TypeAlias = tuple[str, ...]


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Allows every principal that matches `principal` the verbs `may`, and denies it the verbs `deny`, on what matches
    one of `streams` or `sinks`. None: the rule does not name such things.
    """

    principal: str
    may: _Names = ()
    deny: _Names = ()
    streams: _Names | None = None
    sinks: _Names | None = None
    sources: _Names | None = None
    subscribers: _Names | None = None

    def __str__(self) -> str:
        said = [f"may {', '.join(self.may)}"] * bool(self.may) + [f"may not {', '.join(self.deny)}"] * bool(self.deny)
        names = [f"{kind} {', '.join(given)}" for kind in KINDS if (given := getattr(self, kind)) is not None]
        return f"{self.principal} {', '.join(said)} on {'; '.join(names) or 'all streams and sinks'}"


KINDS = ("streams", "sinks", "sources", "subscribers")
EVERYTHING_ALLOWED = tuple(Rule(principal=who, may=(EVERY_VERB,)) for who in ("*", LOCAL, ANONYMOUS, MULTICAST))


class NamePatterns:
    """A set of names of streams, sinks, sources or subscribers: those that match any of some patterns."""

    __slots__ = ("_patterns",)

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises `Refused("bad-rule")`, with a line for each text that is no pattern of names."""
        faults = [fault for text in texts if (fault := _fault_of(text))]
        if faults:
            raise Refused("bad-rule", "\n".join(faults))
        self._patterns: Sequence[Pattern] | None = None
        if EVERY_NAME not in texts:
            self._patterns = _joined(tuple(map(_regex_of, texts)))

    def match(self, name: str) -> bool:
        """Whether the name is in the set."""
        if self._patterns is None:
            return True
        octets = name.encode()
        return any(pattern.matches(octets) for pattern in self._patterns)


def _fault_of(text: str) -> str:
    """Why it is no pattern of names, "" for one that is."""
    tokens = re.split(r"[./]", text)
    if not _NAME_PATTERN.fullmatch(text):
        return f"pattern {text!r}: names have A-Z, a-z, 0-9 and _.:@/+=-; wildcards are * and >"
    if any(">" in token for token in tokens[:-1]) or (">" in tokens[-1] and tokens[-1] != ">"):
        return f"pattern {text!r}: `>` is allowed only at the end, as a token of its own"
    return ""


def _regex_of(text: str) -> str:
    parts = {"*": "[^./]*", ">": ".*"}
    return "".join(parts.get(character) or re.escape(character) for character in text)


@lru_cache(_JOINED_MAX)
def _joined(regexes: tuple[str, ...]) -> Sequence[Pattern]:
    """As few patterns as the limits of one allow: what many rules say is asked in one step."""
    # Columns are a lot to import for a command whose rules allow everything.
    from veredus.matching import compile_pattern

    try:
        return (compile_pattern(f"regex:{'|'.join(regexes)}"),)
    except Refused:
        if len(regexes) == 1:
            raise
        half = len(regexes) // 2
        return (*_joined(regexes[:half]), *_joined(regexes[half:]))


def rule_of(table: Mapping[str, object]) -> Rule:
    """The rule that a table of a settings file writes. Raises `Refused("bad-rule")`, with a line for each fault."""
    unknown = [key for key in table if key not in Rule.__struct_fields__]
    if unknown:
        known = ", ".join(Rule.__struct_fields__)
        raise Refused("bad-rule", "\n".join(f"a rule has no {key!r}; there are {known}" for key in unknown))
    wanted = {key: [value] if isinstance(value, str) and key != "principal" else value for key, value in table.items()}
    try:
        rule = msgspec.convert(wanted, Rule)
    except msgspec.ValidationError as error:
        said = f"a rule needs a principal, lists of verbs and lists of names: {field_fault(error)}"
        raise Refused("bad-rule", said) from None
    CompiledRule(rule)
    return rule


class CompiledRule:
    """A rule made ready."""

    __slots__ = ("_allowed", "_denied", "_principal", "limits", "names")

    def __init__(self, rule: Rule) -> None:
        """Raises `Refused("bad-rule")` with a line for each unknown verb, and each pattern that does not parse."""
        known = f"the verbs are {', '.join(VERBS)} and {EVERY_VERB}"
        wrong = [verb for verb in (*rule.may, *rule.deny) if verb not in VERBS and verb != EVERY_VERB]
        faults = [f"{verb!r} is not a verb; {known}" for verb in wrong]
        given: dict[str, _Names | None] = {kind: getattr(rule, kind) for kind in KINDS}
        if not rule.principal or not (rule.may or rule.deny) or () in given.values():
            faults.append("a rule names a principal and at least one verb, and at least one name in each list of names")
        if given["streams"] is None and given["sinks"] is None:
            given["streams"] = given["sinks"] = (EVERY_NAME,)
        patterns: dict[str, NamePatterns] = {}
        for kind, texts in given.items():
            if texts:
                try:
                    patterns[kind] = NamePatterns(texts)
                except Refused as refused:
                    faults.append(refused.message)
        if faults:
            raise Refused("bad-rule", "\n".join(faults))
        self._allowed = frozenset(VERBS if EVERY_VERB in rule.may else rule.may)
        self._denied = frozenset(VERBS if EVERY_VERB in rule.deny else rule.deny)
        self._principal = rule.principal
        self.names = {STREAM: given["streams"] or (), SINK: given["sinks"] or ()}
        """Patterns, by the kind of what they cover."""
        self.limits = patterns.get("sources"), patterns.get("subscribers")
        """As which sources and subscribers; None where the rule does not name such things."""

    def covers_principal(self, principal: str) -> bool:
        """Whether the rule speaks of this principal."""
        if principal in UNPROVEN:
            return principal == self._principal
        first, *rest = self._principal.split("*")
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

    def decision(self, verb: str) -> bool | None:
        """Whether the rule lets its principals do this; None where it does not speak of it."""
        if verb in self._denied:
            return False
        return True if verb in self._allowed else None


class _Step(NamedTuple):
    """What one rule, or several, decide for one principal and verb, on streams or on sinks."""

    names: NamePatterns
    sources: NamePatterns | None
    subscribers: NamePatterns | None
    decision: bool

    def covers(self, resource: Resource) -> bool:
        return (
            self.names.match(resource.name)
            and (self.sources is None or resource.source is None or self.sources.match(resource.source))
            and (self.subscribers is None or resource.subscriber is None or self.subscribers.match(resource.subscriber))
        )


class Access:
    """Answers `may`, and says who a peer is that proves nothing.

    `unproven` is that principal; `NOBODY` where a peer has to prove who it is before it may do anything.
    """

    __slots__ = ("_rules", "_steps", "unproven")

    def __init__(self, rules: Iterable[Rule], unproven: str = NOBODY) -> None:
        """Raises `Refused("bad-rule")`."""
        self.unproven = unproven
        self._rules = tuple(CompiledRule(rule) for rule in rules)
        self._steps: dict[tuple[str, str, str], Sequence[_Step]] = {}
        """By principal, verb and kind, what the rules decide, in their order."""

    def may(self, principal: str, verb: str, resource: Resource) -> bool:
        """Whether `principal` may do `verb` on `resource`."""
        if principal == NOBODY:
            return False
        asked = principal, verb, resource.kind
        steps = self._steps.get(asked)
        if steps is None:
            if len(self._steps) >= _REMEMBERED_MAX:
                self._steps.clear()
            steps = self._steps[asked] = self._steps_of(*asked)
        for step in steps:
            if step.covers(resource):
                return step.decision
        return False

    def _steps_of(self, principal: str, verb: str, kind: str) -> Sequence[_Step]:
        """Rules that decide alike, one behind the other, are one step."""
        covering = [
            (rule, decision)
            for rule in self._rules
            if rule.names[kind] and (decision := rule.decision(verb)) is not None and rule.covers_principal(principal)
        ]
        steps: list[_Step] = []
        for (decision, sources, subscribers), rules in groupby(covering, lambda one: (one[1], *one[0].limits)):
            texts = tuple(chain.from_iterable(rule.names[kind] for rule, _ in rules))
            steps.append(_Step(NamePatterns(texts), sources, subscribers, decision))
        return steps
