"""The table of patterns answers what trying each pattern would answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from veredus.kernel.errors import Misuse
from veredus.matching import PatternTable, compile_pattern
from veredus.matching.table import PrefixTrie

WORDS = st.lists(st.sampled_from(["a", "b", "ab", "abc", ""]), min_size=1, max_size=3)
TOKENS = st.lists(st.sampled_from(["a", "b", "*", ""]), min_size=1, max_size=3)
TEXTS = st.one_of(
    WORDS.map(lambda words: "literal:" + ".".join(words)),
    WORDS.map(lambda words: "prefix:" + ".".join(words)),
    TOKENS.map(lambda words: "tokens:" + ".".join(words)),
    TOKENS.map(lambda words: "tokens:" + ".".join([*words, ">"])),
    st.sampled_from(["tokens:>", "regex:a.*", "regex:abc?", "regex:.*b", "regex:ab[.].*", "regex:"]),
)
KEYS = WORDS.map(lambda words: ".".join(words).encode())


class TableBesideAList(RuleBasedStateMachine):
    """Every history of adding and removing, compared with a list that is searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PatternTable()
        self.pairs: list[tuple[str, int]] = []

    @rule(text=TEXTS, interest=st.integers(0, 3))
    def add(self, text: str, interest: int) -> None:
        self.table.add(compile_pattern(text), interest)
        if (text, interest) not in self.pairs:
            self.pairs.append((text, interest))

    @rule(data=st.data())
    def remove_one_that_is_there(self, data: st.DataObject) -> None:
        if self.pairs:
            text, interest = self.pairs.pop(data.draw(st.integers(0, len(self.pairs) - 1)))
            self.table.remove(compile_pattern(text), interest)

    @rule(text=TEXTS, interest=st.integers(0, 3))
    def remove_one_that_may_not_be_there(self, text: str, interest: int) -> None:
        if (text, interest) not in self.pairs:
            with pytest.raises(Misuse):
                self.table.remove(compile_pattern(text), interest)

    @rule(key=KEYS)
    def ask(self, key: bytes) -> None:
        wanted = [interest for text, interest in self.pairs if compile_pattern(text).matches(key)]
        assert self.table.interested(key) == sorted(dict.fromkeys(wanted))

    @invariant()
    def has_as_many_pairs(self) -> None:
        assert len(self.table) == len(self.pairs)

    @invariant()
    def keeps_nothing_of_what_was_removed(self) -> None:
        self.table.check()


TestTableBesideAList = TableBesideAList.TestCase
TestTableBesideAList.settings = settings(max_examples=60, stateful_step_count=30)


def test_interests_are_told_once_and_in_ascending_order() -> None:
    table = PatternTable()
    for interest, text in [(9, "EWR."), (2, "tokens:EWR.*"), (9, "literal:EWR.LAX"), (5, "regex:E.*"), (1, "JFK")]:
        table.add(compile_pattern(text), interest)
    assert table.interested(b"EWR.LAX") == [2, 5, 9]


def test_thousands_of_interests_are_told_apart() -> None:
    table = PatternTable()
    for interest in range(3000):
        table.add(compile_pattern(f"literal:k{interest}"), interest)
        table.add(compile_pattern(f"prefix:p{interest}."), interest)
        table.add(compile_pattern(f"tokens:*.t{interest}"), interest)
    assert table.interested(b"k77") == [77]
    assert table.interested(b"p123.t456") == [123, 456]
    assert table.interested(b"p12") == []


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=4), max_size=12, unique=True), st.data())
def test_the_trie_finds_every_beginning_and_joins_what_removal_leaves(
    prefixes: list[bytes], data: st.DataObject
) -> None:
    trie: PrefixTrie[bytes] = PrefixTrie()
    for prefix in prefixes:
        assert trie.setdefault(prefix, prefix) == prefix
        trie.check()
    removed = data.draw(st.lists(st.sampled_from(prefixes), unique=True)) if prefixes else []
    for prefix in removed:
        trie.remove(prefix)
        trie.check()
    kept = [prefix for prefix in prefixes if prefix not in removed]
    for key in [*prefixes, data.draw(st.binary(max_size=6))]:
        assert list(trie.along(key)) == sorted((prefix for prefix in kept if key.startswith(prefix)), key=len)
