"""CloudEvents SQL, version 1.0: an evaluator, and expressions as filters.

`evaluate` gives what the specification gives, a value and perhaps an error beside it. `loads`
makes a filter of an expression: an event matches when the value is true and there is no error.

>>> from palio.language import cesql
>>> event = {"id": "17", "source": "https://shop.example", "type": "order.created", "hop": "5"}
>>> cesql.evaluate("hop + 1", event)
Result(value=6, error=None)
>>> print(cesql.loads("source LIKE '%shop%' AND id IN ('17', '18')"))
id IN ('17', '18') AND source CONTAINS 'shop'
"""

from palio.language.cesql.evaluation import evaluate
from palio.language.cesql.filters import condition, loads
from palio.language.cesql.parsing import parse
from palio.language.cesql.syntax import Expression
from palio.language.cesql.values import Error, ErrorKind, Result, Value

__all__ = [
    "Error",
    "ErrorKind",
    "Expression",
    "Result",
    "Value",
    "condition",
    "evaluate",
    "loads",
    "parse",
]
