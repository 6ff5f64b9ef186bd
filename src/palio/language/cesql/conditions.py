"""A CESQL expression as a condition of the model: what does not reduce rides along as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from palio.language.cesql.evaluation import evaluate, type_of
from palio.language.cesql.syntax import (
    Attribute,
    Call,
    Comparison,
    Exists,
    Expression,
    In,
    Like,
    Not,
    children,
)
from palio.language.cesql.weighing import weight
from palio.model.expressions import Foreign
from palio.model.functions import FUNCTIONS
from palio.model.operators import like_cost
from palio.model.printing import show_value

__all__ = ["Condition", "is_boolean", "names_in", "nodes_in"]

_CALL_COST: Final = 4


class Condition(Foreign):
    """An expression kept whole, `CESQL '...'` in our language; any error means no match.

    >>> from palio.language.cesql import parse
    >>> hops = Condition(parse("hop < int(ttl)"))
    >>> print(hops.text)
    CESQL 'hop < INT(ttl)'
    >>> hops.truth({"hop": 5, "ttl": "10"}), hops.truth({"hop": 5})
    (True, None)
    """

    __slots__ = ("_text", "expression")

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self._text = f"CESQL {show_value(str(expression))}"

    @property
    def text(self) -> str:
        """The condition as our language writes it."""
        return self._text

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes it reads."""
        return names_in(self.expression)

    @property
    def weight(self) -> int:
        """The cost of reading its text, in tokens of our language."""
        return weight(str(self.expression))

    @property
    def cost(self) -> int:
        """The cost of one evaluation: its nodes, patterns and functions by their own weight."""
        return sum(map(_cost, nodes_in(self.expression)))

    def truth(self, event: Mapping[str, Any]) -> bool | None:
        """True or false; None where CESQL has an error, or a value that is no Boolean."""
        value, error = evaluate(self.expression, event)
        return value if error is None and isinstance(value, bool) else None

    def inverted(self) -> Condition:
        """The condition that is true where this one is false, and unknown where it is unknown."""
        if not is_boolean(self.expression):
            return self  # unknown for every event, whichever way it is asked
        return Condition(_negation(self.expression))

    def __reduce__(self) -> tuple[Any, ...]:
        return Condition, (self.expression,)


def _cost(node: Expression) -> int:
    match node:
        case Like():
            return like_cost(node.pattern)
        case Call(name):
            return max(_CALL_COST, FUNCTIONS[name].cost if name in FUNCTIONS else 0)
        case _:
            return 1


def _negation(expression: Expression) -> Expression:
    """A Boolean expression's negation, in the fewest words."""
    match expression:
        case Not(operand) if is_boolean(operand):
            return operand
        case Like(operand, pattern, negated):
            return Like(operand, pattern, not negated)
        case In(operand, members, negated):
            return In(operand, members, not negated)
        case Comparison(left, ((("=" | "!=") as symbol, right),)):
            return Comparison(left, (("!=" if symbol == "=" else "=", right),))
        case _:
            return Not(expression)


def nodes_in(expression: Expression) -> Iterator[Expression]:
    """An expression and everything in it."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(children(node))


def names_in(expression: Expression) -> frozenset[str]:
    """The attributes that an expression reads."""
    return frozenset(
        node.name for node in nodes_in(expression) if isinstance(node, Attribute | Exists)
    )


def is_boolean(expression: Expression) -> bool:
    """Whether its value, unless in error, is certainly a Boolean; an attribute's may be."""
    return type_of(expression) is bool and not isinstance(expression, Attribute)
