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
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from veredus.kernel.errors import Refused, field_fault
from veredus.streams.rights import ANONYMOUS, LOCAL, MULTICAST, NOBODY, STREAM, UNPROVEN, VERBS, Resource

if TYPE_CHECKING:
    from veredus.matching import Pattern

EVERY_VERB = "*"
EVERY_NAME = ">"
PRINCIPAL_SIZE_MAX = 255
_REMEMBERED_MAX = 1024
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


class NamePattern:
    """A set of names of streams, sinks, sources or subscribers."""

    __slots__ = ("_pattern",)

    def __init__(self, text: str) -> None:
        """Raises `Refused("bad-rule")` for what is no pattern of names."""
        tokens = re.split(r"[./]", text)
        if not _NAME_PATTERN.fullmatch(text):
            raise Refused(
                "bad-rule", f"pattern {text!r}: names have letters, digits and _.:@/+=-; wildcards are * and >"
            )
        if any(">" in token for token in tokens[:-1]) or (">" in tokens[-1] and tokens[-1] != ">"):
            raise Refused("bad-rule", f"pattern {text!r}: `>` is allowed only at the end, as a token of its own")
        self._pattern: Pattern | None = None
        if text != EVERY_NAME:
            parts = {"*": "[^./]*", ">": ".*"}
            regex = "".join(parts.get(character) or re.escape(character) for character in text)
            # Columns are a lot to import for a command whose rules allow everything.
            from veredus.matching import compile_pattern

            self._pattern = compile_pattern(f"regex:{regex}")

    def matches(self, name: str) -> bool:
        """Whether the name is in the set."""
        return self._pattern is None or self._pattern.matches(name.encode())


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

    __slots__ = ("_allowed", "_denied", "_names", "_principal")

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
        self._names: dict[str, list[NamePattern]] = {kind: [] for kind, names in given.items() if names is not None}
        for kind, patterns in self._names.items():
            for text in given[kind] or ():
                try:
                    patterns.append(NamePattern(text))
                except Refused as refused:
                    faults.append(refused.message)
        if faults:
            raise Refused("bad-rule", "\n".join(faults))
        self._allowed = frozenset(VERBS if EVERY_VERB in rule.may else rule.may)
        self._denied = frozenset(VERBS if EVERY_VERB in rule.deny else rule.deny)
        self._principal = rule.principal

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

    def decides(self, verb: str, resource: Resource) -> bool | None:
        """Whether the rule lets its principals do this; None where it does not cover the question."""
        is_denied = verb in self._denied
        if not is_denied and verb not in self._allowed:
            return None
        if not self._has("streams" if resource.kind == STREAM else "sinks", resource.name, False):
            return None
        for kind, name in (("sources", resource.source), ("subscribers", resource.subscriber)):
            if name is not None and not self._has(kind, name, True):
                return None
        return not is_denied

    def _has(self, kind: str, name: str, otherwise: bool) -> bool:
        patterns = self._names.get(kind)
        return otherwise if patterns is None else any(pattern.matches(name) for pattern in patterns)


class Access:
    """Answers `may`, and says who a peer is that proves nothing.

    `unproven` is that principal; `NOBODY` where a peer has to prove who it is before it may do anything.
    """

    __slots__ = ("_by_principal", "_rules", "unproven")

    def __init__(self, rules: Iterable[Rule], unproven: str = NOBODY) -> None:
        """Raises `Refused("bad-rule")`."""
        self.unproven = unproven
        self._rules = tuple(CompiledRule(rule) for rule in rules)
        self._by_principal: dict[str, tuple[CompiledRule, ...]] = {}
        """The rules that speak of a principal, in their order."""

    def may(self, principal: str, verb: str, resource: Resource) -> bool:
        """Whether `principal` may do `verb` on `resource`."""
        if principal == NOBODY:
            return False
        rules = self._by_principal.get(principal)
        if rules is None:
            if len(self._by_principal) >= _REMEMBERED_MAX:
                self._by_principal.clear()
            rules = tuple(rule for rule in self._rules if rule.covers_principal(principal))
            self._by_principal[principal] = rules
        for rule in rules:
            decision = rule.decides(verb, resource)
            if decision is not None:
                return decision
        return False
