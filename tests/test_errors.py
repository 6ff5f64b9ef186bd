from __future__ import annotations

import inspect

from palio import errors
from tests.tables import code, table


def test_the_reference_lists_every_error_with_its_bases() -> None:
    rows = table("Errors", "api.md")
    assert all(row["raised when"] and row["what to do"] for row in rows)
    listed = {code(row["class"]): [*map(code, row["base"].split(", "))] for row in rows}
    classes = {
        name: [base.__name__ for base in kind.__bases__]
        for name, kind in inspect.getmembers(errors, inspect.isclass)
    }
    assert listed == classes
    assert sorted(errors.__all__) == sorted(classes)


def test_the_reference_names_the_attributes_of_errors() -> None:
    rows = {code(row["class"]): row["raised when"] for row in table("Errors", "api.md")}
    made = {
        "LimitExceeded": errors.LimitExceeded("x", limit="MAX", maximum=1, actual=2),
        "InvalidBinding": errors.InvalidBinding("x", name="y"),
        "NotAdvertised": errors.NotAdvertised("ann", count=1, of=2),
        "Unsettled": errors.Unsettled(("b1",)),
    }
    for name, error in made.items():
        for attribute in vars(error):
            assert f"`{attribute}`" in rows[name], (name, attribute)
