"""Who is interested in a key, among thousands of patterns, without trying each of them.

Literals are looked up, prefixes are found along a trie of octets, token patterns along a trie of tokens, and a regular
expression is tried only for keys that begin with what it requires, once however many interests share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from veredus.kernel.errors import InvariantBroken, Misuse
from veredus.matching.patterns import LiteralPattern, Pattern, PrefixPattern, RegexPattern, TokensPattern

V = TypeVar("V")

# Sets that are iterated in the order of insertion, so that the same history gives the same effects.
Ids = dict[int, None]


class PatternTable:
    """A set of (pattern, interest id) pairs that answers which interests a key concerns.

    `interested` costs about the length of the key, plus the matches, plus one try for each distinct regular expression
    whose required prefix the key has.
    """

    def __init__(self) -> None:
        self._pairs: dict[tuple[Pattern, int], None] = {}
        self._literals: dict[bytes, Ids] = {}
        self._prefixes: PrefixTrie[Ids] = PrefixTrie()
        self._tokens = _TokenNode()
        self._regexes: PrefixTrie[dict[RegexPattern, Ids]] = PrefixTrie()

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, pattern: Pattern, interest: int) -> None:
        """Let `interest` be concerned by the keys of `pattern`; a pair that is there already stays as it is."""
        if (pattern, interest) in self._pairs:
            return
        self._pairs[pattern, interest] = None
        match pattern:
            case LiteralPattern(key):
                self._literals.setdefault(key, {})[interest] = None
            case PrefixPattern(prefix):
                self._prefixes.setdefault(prefix, {})[interest] = None
            case TokensPattern():
                self._tokens.ids_at(pattern)[interest] = None
            case RegexPattern():
                alike = self._regexes.setdefault(pattern.required_prefix, {})
                alike.setdefault(pattern, {})[interest] = None
            case _:
                raise InvariantBroken(f"no place in the table for {type(pattern).__name__}")

    def remove(self, pattern: Pattern, interest: int) -> None:
        """Take one pair out. Raises `Misuse("unknown-pattern")` if it is not there."""
        if (pattern, interest) not in self._pairs:
            raise Misuse("unknown-pattern", f"interest {interest} has no pattern {pattern}", interest=interest)
        del self._pairs[pattern, interest]
        match pattern:
            case LiteralPattern(key):
                _discard(self._literals, key, interest)
            case PrefixPattern(prefix):
                ids = self._prefixes.setdefault(prefix, {})
                del ids[interest]
                if not ids:
                    self._prefixes.remove(prefix)
            case TokensPattern():
                self._tokens.remove(pattern, interest)
            case RegexPattern():
                alike = self._regexes.setdefault(pattern.required_prefix, {})
                _discard(alike, pattern, interest)
                if not alike:
                    self._regexes.remove(pattern.required_prefix)

    def interested(self, key: bytes) -> list[int]:
        """The interests that `key` concerns, each once, ascending."""
        found: Ids = dict(self._literals.get(key, {}))
        for ids in self._prefixes.along(key):
            found.update(ids)
        if not self._tokens.is_empty:
            self._tokens.collect(key, found)
        for alike in self._regexes.along(key):
            for pattern, ids in alike.items():
                if pattern.matches(key):
                    found.update(ids)
        return sorted(found)

    def check(self) -> None:
        """Raise `InvariantBroken` unless the tries are tidy, and empty when the table is."""
        self._prefixes.check()
        self._regexes.check()
        is_empty = not self._literals and self._tokens.is_empty and self._prefixes.is_empty and self._regexes.is_empty
        if is_empty != (not self._pairs):
            raise InvariantBroken(f"a table of {len(self._pairs)} pairs, of which the index keeps something else")


def _discard(groups: dict[V, Ids], key: V, interest: int) -> None:
    ids = groups[key]
    del ids[interest]
    if not ids:
        del groups[key]


@dataclass
class _Edge(Generic[V]):
    """A node of the trie and the octets that lead to it from its parent."""

    label: bytes
    value: V | None = None
    children: dict[int, _Edge[V]] = field(default_factory=dict)


class PrefixTrie(Generic[V]):
    """Values by octet string, found by every string that begins with theirs; paths without forks are one edge.

    Invariants
        (1) No two children of a node begin with the same octet, and only the root's label is empty.
        (2) Every node but the root has a value or at least two children.
    """

    def __init__(self) -> None:
        self._root: _Edge[V] = _Edge(b"")

    @property
    def is_empty(self) -> bool:
        """Whether no value is left."""
        return self._root.value is None and not self._root.children

    def setdefault(self, prefix: bytes, value: V) -> V:
        """The value that stands at `prefix`, which is `value` if none did."""
        node = self._root
        rest = prefix
        while rest:
            child = node.children.get(rest[0])
            if child is None:
                child = node.children[rest[0]] = _Edge(rest)
            elif not rest.startswith(child.label):
                child = node.children[rest[0]] = _split(child, rest)
            rest = rest[len(child.label) :]
            node = child
        if node.value is None:
            node.value = value
        return node.value

    def remove(self, prefix: bytes) -> None:
        """Take away the value at `prefix`, which must be there."""
        parent, node = self._root, self._root
        grandparent = self._root
        rest = prefix
        while rest:
            grandparent, parent, node = parent, node, node.children[rest[0]]
            rest = rest[len(node.label) :]
        node.value = None
        if node is self._root:
            return
        self._tidy(parent, node)
        if parent is not self._root:
            self._tidy(grandparent, parent)

    def along(self, key: bytes) -> Iterator[V]:
        """The values at every beginning of `key`, the empty one and `key` itself among them, shortest first."""
        node = self._root
        position = 0
        while True:
            if node.value is not None:
                yield node.value
            if position >= len(key):
                return
            child = node.children.get(key[position])
            if child is None or not key.startswith(child.label, position):
                return
            position += len(child.label)
            node = child

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        pending = list(self._root.children.values())
        for octet, child in self._root.children.items():
            _check_edge(octet, child)
        while pending:
            node = pending.pop()
            if node.value is None and len(node.children) < 2:
                raise InvariantBroken("(2): a node without value or fork")
            for octet, child in node.children.items():
                _check_edge(octet, child)
                pending.append(child)

    def _tidy(self, parent: _Edge[V], node: _Edge[V]) -> None:
        """Keep (2) at `node`, a child of `parent`: drop it, or join it with its only child."""
        if node.value is not None or len(node.children) > 1:
            return
        if not node.children:
            del parent.children[node.label[0]]
            return
        (child,) = node.children.values()
        parent.children[node.label[0]] = _Edge(node.label + child.label, child.value, child.children)


def _check_edge(octet: int, child: _Edge[V]) -> None:
    if child.label[:1] != bytes([octet]):
        raise InvariantBroken("(1): a child stands under another octet than its first")


def _split(child: _Edge[V], rest: bytes) -> _Edge[V]:
    """A node for what the label of `child` and `rest` begin with alike, with `child` below it."""
    size = 1
    while size < min(len(child.label), len(rest)) and child.label[size] == rest[size]:
        size += 1
    fork: _Edge[V] = _Edge(child.label[:size])
    child.label = child.label[size:]
    fork.children[child.label[0]] = child
    return fork


class _TokenNode:
    """What the tokens so far lead to: `here` wants keys that end now, `beyond` those of which anything follows."""

    __slots__ = ("any_token", "beyond", "children", "here")

    def __init__(self) -> None:
        self.here: Ids = {}
        self.beyond: Ids = {}
        self.children: dict[bytes, _TokenNode] = {}
        self.any_token: _TokenNode | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.here or self.beyond or self.children or self.any_token)

    def ids_at(self, pattern: TokensPattern) -> Ids:
        """The interests of exactly this pattern, with the way to them made."""
        node = self
        for token in pattern.tokens:
            if token is None:
                node.any_token = node.any_token or _TokenNode()
                node = node.any_token
            else:
                node = node.children.setdefault(token, _TokenNode())
        return node.beyond if pattern.has_tail else node.here

    def remove(self, pattern: TokensPattern, interest: int) -> None:
        """Take `interest` out of this pattern, which it has, and with it the nodes that lead nowhere else."""
        del self.ids_at(pattern)[interest]
        path: list[_TokenNode] = [self]
        for token in pattern.tokens:
            child = path[-1].any_token if token is None else path[-1].children[token]
            assert child is not None
            path.append(child)
        for parent, token in zip(reversed(path[:-1]), reversed(pattern.tokens), strict=True):
            child = parent.any_token if token is None else parent.children[token]
            if child is None or not child.is_empty:
                return
            if token is None:
                parent.any_token = None
            else:
                del parent.children[token]

    def collect(self, key: bytes, found: Ids) -> None:
        """Add the interests of every pattern that `key` matches to `found`."""
        nodes = [self]
        for token in key.split(b"."):
            following: list[_TokenNode] = []
            for node in nodes:
                found.update(node.beyond)
                child = node.children.get(token)
                if child is not None:
                    following.append(child)
                if node.any_token is not None:
                    following.append(node.any_token)
            nodes = following
            if not nodes:
                return
        for node in nodes:
            found.update(node.here)
