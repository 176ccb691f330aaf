"""From a predicate's words to its tree: a Pratt parser over the operator table, with every size bounded.

    condition  =  condition OR condition  |  condition AND condition  |  NOT condition  |  test  |  ( condition )
    test       =  value (= | <> | < | <= | > | >=) value  |  value [NOT] BETWEEN value AND value
               |  value [NOT] IN ( literal, ... )  |  value [NOT] LIKE text [ESCAPE text]  |  value IS [NOT] NULL
               |  name  |  TRUE  |  FALSE
    value      =  literal  |  name  |  function ( value, ... )  |  (+ | -) value  |  value (+ | - | * | /) value
               |  ( value )

Source: SQL-92, 8.12 (search condition), as far as JMS message selectors take it.
"""

from __future__ import annotations

from typing import Final

from veredus.kernel.errors import Refused
from veredus.matching.lexer import NO_COMMENT, Token, TokenKind, double_minus_of, refusal, tokens_of
from veredus.matching.operands import INT64_MAX
from veredus.matching.operators import COMPARISONS, FUNCTIONS, JOINS, Precedence
from veredus.matching.syntax import (
    Arithmetic,
    Between,
    Call,
    Comparison,
    Condition,
    Conjunction,
    Disjunction,
    Kind,
    Likeness,
    Literal,
    Membership,
    Name,
    Negation,
    Node,
    Nullness,
    Sign,
    Truth,
    Value,
)

PREDICATE_SIZE_MAX = 8192
"""The most characters in a predicate."""
DEPTH_MAX = 64
"""How deep operators and parentheses may be nested."""
TERM_COUNT_MAX = 512
"""The most names, literals, operators before a value, and parentheses."""
LIKE_SIZE_MAX = 255
"""The most characters in a pattern of LIKE; what one octet of a text can cost grows with it."""

_LITERALS: Final = {
    TokenKind.INTEGER: Kind.INTEGER,
    TokenKind.FLOAT: Kind.FLOAT,
    TokenKind.TEXT: Kind.TEXT,
    TokenKind.BYTES: Kind.BYTES,
    TokenKind.TIMESTAMP: Kind.TIMESTAMP,
}
_VALUES: Final = (Literal, Name, Sign, Arithmetic, Call)


def parse(text: str) -> Condition:
    """The tree of the predicate `text`. Raises `Refused("bad-predicate")` with the `position` of what is wrong."""
    if len(text) > PREDICATE_SIZE_MAX:
        raise refusal(
            PREDICATE_SIZE_MAX,
            f"a predicate may have at most {PREDICATE_SIZE_MAX} characters, this one has {len(text)}",
        )
    parser = _Parser(tokens_of(text))
    condition = parser.condition(0)
    parser.expect_end()
    return condition


class _Parser:
    """Owns the words and how far they are read."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._index = 0
        self._depth = 0
        self._term_count = 0

    # -- words

    @property
    def _next(self) -> Token:
        return self._tokens[self._index]

    def _take(self) -> Token:
        token = self._tokens[self._index]
        self._index += token.kind is not TokenKind.END
        return token

    def _is_next(self, word: str) -> bool:
        return _word_of(self._next) == word

    def _take_if(self, word: str) -> bool:
        found = self._is_next(word)
        if found:
            self._take()
        return found

    def _expect(self, word: str) -> None:
        if not self._take_if(word):
            raise self._unexpected(f"expected {word}")

    def _unexpected(self, expected: str) -> Refused:
        return refusal(self._next.position, f"{expected}, found {_described(self._next)}")

    def expect_end(self) -> None:
        """Refuse whatever is left."""
        if self._next.kind is not TokenKind.END:
            before = self._tokens[: self._index]
            hint = "; write AND or OR between conditions" if self._is_next(",") else ""
            if double_minus_of(before):
                hint = f"; {NO_COMMENT}"
            raise refusal(self._next.position, f"expected AND, OR or the end, found {_described(self._next)}{hint}")

    # -- expressions

    def condition(self, precedence: int) -> Condition:
        """A condition of operators that bind tighter than `precedence`."""
        position = self._next.position
        return _as_condition(self._expression(precedence), position)

    def _value(self, precedence: int) -> Value:
        position = self._next.position
        return _as_value(self._expression(precedence), position)

    def _expression(self, precedence: int) -> Node:
        position = self._next.position
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise refusal(position, f"the predicate is nested deeper than {DEPTH_MAX}")
        node = self._prefix()
        while True:
            word = _word_of(self._next)
            if _INFIX_PRECEDENCE.get(word, 0) <= precedence:
                self._depth -= 1
                return node
            node = self._infix(node, word, position)

    def _prefix(self) -> Node:
        token = self._take()
        self._term_count += 1
        if self._term_count > TERM_COUNT_MAX:
            raise refusal(token.position, f"a predicate has at most {TERM_COUNT_MAX} terms")
        kind = _LITERALS.get(token.kind)
        if kind is not None:
            return _literal(kind, token)
        if token.kind is TokenKind.NAME:
            assert isinstance(token.value, str)
            if self._is_next("(") and not token.is_quoted:
                return self._call(token)
            return Name(token.value)
        word = _word_of(token)
        if word in ("TRUE", "FALSE"):
            return Literal(Kind.BOOL, word == "TRUE")
        if word == "NOT":
            return Negation(self.condition(Precedence.NOT))
        if word in ("+", "-"):
            return self._signed(word)
        if word == "(":
            inner = self._expression(0)
            self._expect(")")
            return inner
        hint = "; to test for null, write IS NULL" if word == "NULL" else ""
        raise refusal(token.position, f"expected a value or a condition, found {_described(token)}{hint}")

    def _signed(self, symbol: str) -> Value:
        token = self._next
        if token.kind in (TokenKind.INTEGER, TokenKind.FLOAT):
            self._take()
            return _literal(_LITERALS[token.kind], token, symbol)
        return Sign(symbol, self._value(Precedence.SIGN))

    def _call(self, name: Token) -> Call:
        written = str(name.value)
        capitals = written.upper()
        function = FUNCTIONS.get(capitals)
        if function is None:
            raise refusal(name.position, f"unknown function {written}; known: {', '.join(FUNCTIONS)}")
        self._expect("(")
        arguments = [self._value(0)]
        while self._take_if(","):
            arguments.append(self._value(0))
        self._expect(")")
        if len(arguments) != function.arity:
            raise refusal(name.position, f"{capitals} takes {function.arity} argument(s), found {len(arguments)}")
        return Call(capitals, tuple(arguments))

    def _infix(self, left: Node, word: str, position: int) -> Node:
        if word in ("AND", "OR"):
            return self._chain(_as_condition(left, position), word)
        if not isinstance(left, _VALUES):
            raise refusal(self._next.position, f"{word} must follow a value, and a condition is before it")
        if word in JOINS:
            return self._arithmetic(left, JOINS[word].precedence)
        if word in COMPARISONS:
            self._take()
            return Comparison(word, left, self._value(Precedence.TEST))
        if word == "IS":
            self._take()
            is_negated = self._take_if("NOT")
            self._expect("NULL")
            return Nullness(left, is_negated)
        return self._test(left)

    def _chain(self, first: Condition, word: str) -> Condition:
        precedence = _INFIX_PRECEDENCE[word]
        conditions = [first]
        while self._take_if(word):
            conditions.append(self.condition(precedence))
        return Conjunction(tuple(conditions)) if word == "AND" else Disjunction(tuple(conditions))

    def _arithmetic(self, first: Value, precedence: int) -> Value:
        rest: list[tuple[str, Value]] = []
        while True:
            word = _word_of(self._next)
            if word not in JOINS or JOINS[word].precedence != precedence:
                return Arithmetic(first, tuple(rest))
            self._take()
            rest.append((word, self._value(precedence)))

    def _test(self, value: Value) -> Condition:
        is_negated = self._take_if("NOT")
        if self._take_if("BETWEEN"):
            low = self._value(Precedence.TEST)
            self._expect("AND")
            return Between(value, low, self._value(Precedence.TEST), is_negated)
        if self._take_if("IN"):
            return Membership(value, self._choices(), is_negated)
        if not self._take_if("LIKE"):
            raise self._unexpected("expected BETWEEN, IN or LIKE")
        pattern_position = self._next.position
        pattern = self._text("a pattern in single quotes")
        if len(pattern) > LIKE_SIZE_MAX:
            raise refusal(pattern_position, f"a pattern of LIKE has at most {LIKE_SIZE_MAX} characters")
        escape = None
        if self._take_if("ESCAPE"):
            escape_position = self._next.position
            escape = self._text("one character in single quotes")
            if len(escape) != 1:
                raise refusal(escape_position, f"ESCAPE needs one character, not {len(escape)}")
        _check_escapes(pattern, escape, pattern_position)
        return Likeness(value, pattern, escape, is_negated)

    def _choices(self) -> tuple[Literal, ...]:
        self._expect("(")
        choices = [self._choice()]
        while self._take_if(","):
            choices.append(self._choice())
        self._expect(")")
        return tuple(choices)

    def _choice(self) -> Literal:
        token = self._next
        if token.kind not in _LITERALS and _word_of(token) not in ("TRUE", "FALSE", "+", "-"):
            raise self._unexpected("expected a literal")
        value = self._prefix()
        if not isinstance(value, Literal):
            raise refusal(token.position, "IN accepts only literals")
        return value

    def _text(self, expected: str) -> str:
        if self._next.kind is not TokenKind.TEXT:
            raise self._unexpected(f"expected {expected}")
        return str(self._take().value)


_INFIX_PRECEDENCE: Final[dict[str, int]] = {
    "OR": Precedence.OR,
    "AND": Precedence.AND,
    **dict.fromkeys(("BETWEEN", "IN", "IS", "LIKE", "NOT"), Precedence.TEST),
    **dict.fromkeys(COMPARISONS, Precedence.TEST),
    **{symbol: joined.precedence for symbol, joined in JOINS.items()},
}


def _word_of(token: Token) -> str:
    return str(token.value) if token.kind in (TokenKind.KEYWORD, TokenKind.SYMBOL) else ""


def _literal(kind: Kind, token: Token, symbol: str = "+") -> Literal:
    value = token.value
    if isinstance(value, int | float) and symbol == "-":
        return Literal(kind, -value)
    if kind is Kind.INTEGER and isinstance(value, int) and value > INT64_MAX:
        raise refusal(token.position, "the number is outside int64; with a decimal point it is a float64")
    return Literal(kind, value)


def _as_value(node: Node, position: int) -> Value:
    if not isinstance(node, _VALUES):
        raise refusal(position, "expected a value, found a condition")
    return node


def _as_condition(node: Node, position: int) -> Condition:
    if not isinstance(node, _VALUES):
        return node
    if isinstance(node, Name) or (isinstance(node, Literal) and node.kind is Kind.BOOL):
        return Truth(node)
    raise refusal(position, "expected a condition, found a value")


def _check_escapes(pattern: str, escape: str | None, position: int) -> None:
    index = 0
    while escape is not None and index < len(pattern):
        if pattern[index] != escape:
            index += 1
        elif pattern[index + 1 : index + 2] in ("%", "_", escape):
            index += 2
        else:
            raise refusal(position, f"after {escape!r}, this pattern needs %, _ or {escape!r}")


def _described(token: Token) -> str:
    if token.kind in (TokenKind.KEYWORD, TokenKind.SYMBOL, TokenKind.NAME):
        return str(token.value)
    return str(token.kind.value)
