from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any, Final

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

import palio
from palio.errors import InvalidFilter, LimitExceeded, ParseError
from palio.language.eventbridge import loads
from palio.model import flatten
from palio.model.limits import (
    MAX_CONJUNCTIONS,
    MAX_DEPTH,
    MAX_IN_VALUES,
    MAX_NAME_CHARS,
    MAX_STRING_CHARS,
    MAX_TEXT_CHARS,
)
from tests.language.hostile_texts import outcome

EC2: Final[dict[str, Any]] = {
    "version": "0",
    "source": "aws.ec2",
    "account": "012345679012",
    "region": "us-east-1",
    "resources": ["arn:aws:ec2:us-east-1:123456789012:instance/i-000000aaaaaa00000"],
    "detail": {
        "c-count": 5,
        "d-count": 3,
        "x-limit": 301.8,
        "source-ip": "10.0.0.33",
        "state": "running",
        "spot": False,
        "note": None,
        "nested": {"leaf": "x"},
    },
}


def matches(pattern: object, value: object = EC2) -> bool:
    assert isinstance(value, dict)
    return loads(json.dumps(pattern)).matches(flatten(value))


def field(*conditions: object) -> dict[str, object]:
    return {"x": list(conditions)}


def holds(value: object, *conditions: object) -> bool:
    return matches(field(*conditions), {"x": value})


# Reading


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ({"source": ["a"]}, "source = 'a'"),
        ({"source": ["b", "a"], "n": [1]}, "n = 1 AND source IN ('a', 'b')"),
        ({"detail": {"state": ["on"]}}, "detail.state = 'on'"),
        ({"detail.state": ["on"]}, "detail.state = 'on'"),
        (field("a", 1, True, None), "x = TRUE OR x = 1 OR x = 'a' OR x IS NULL"),
        (field(3.018e2, 1.0), "x IN (1, 301.8)"),
        (field({"exactly": "a"}), "x = 'a'"),
        (field({"prefix": "a"}), "x STARTS WITH 'a'"),
        (field({"suffix": "a"}), "x ENDS WITH 'a'"),
        (field({"prefix": {"equals-ignore-case": "Ab"}}), "x STARTS WITH 'ab' IGNORE CASE"),
        (field({"suffix": {"equals-ignore-case": "Ab"}}), "x ENDS WITH 'ab' IGNORE CASE"),
        (field({"equals-ignore-case": "Ab"}), "x = 'ab' IGNORE CASE"),
        (field({"wildcard": "dir/*.png"}), "x LIKE 'dir/%.png'"),
        (field({"wildcard": "*a*"}), "x CONTAINS 'a'"),
        (field({"cidr": "10.0.0.7/8"}), "x IN CIDR '10.0.0.0/8'"),
        (field({"exists": True}), "x IS NOT NULL"),
        (field({"exists": False}), "x IS NULL"),
        (field({"numeric": ["=", 5]}), "x = 5"),
        (field({"numeric": [">", 0, "<=", 5]}), "x <= 5 AND x > 0"),
        (
            field({"anything-but": ["b", "a"]}),
            "x IS NOT NULL AND CONCAT(x) IS NULL OR x NOT IN ('a', 'b')",
        ),
        (field({"anything-but": 5}), "x IS NOT NULL AND x + 0 IS NULL OR x != 5"),
        ({"$or": [{"a": [1]}, {"b": [2]}]}, "a = 1 OR b = 2"),
        (
            {"d": {"$or": [{"a": [1]}, {"e": {"b": [2]}}]}, "s": ["t"]},
            "d.a = 1 AND s = 't' OR d.e.b = 2 AND s = 't'",
        ),
    ],
)
def test_a_pattern_reads_as_this_text(pattern: object, text: str) -> None:
    found = loads(json.dumps(pattern))
    assert found == palio.parse(text)
    assert palio.parse(str(found)) == found


def test_objects_are_read_like_the_text_they_stand_for() -> None:
    pattern = {"source": ["a"], "detail": {"n": [{"numeric": ["<", 1.5]}]}}
    assert loads(pattern) == loads(json.dumps(pattern))
    assert loads({"source": ("a", "b")}) == loads({"source": ["a", "b"]})


# Meaning


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({"source": ["aws.ec2"], "detail": {"state": ["initializing", "running"]}}, True),
        ({"source": ["aws.ec2"], "detail": {"state": ["stopped"]}}, False),
        ({"detail": {"c-count": [{"numeric": [">", 0, "<=", 5]}]}}, True),
        ({"detail": {"c-count": [{"numeric": [">", 5]}]}}, False),
        ({"detail": {"x-limit": [{"numeric": ["=", 3.018e2]}]}}, True),
        ({"detail": {"source-ip": [{"cidr": "10.0.0.0/24"}]}}, True),
        ({"detail": {"source-ip": [{"cidr": "10.0.1.0/24"}]}}, False),
        ({"detail": {"spot": [False]}}, True),
        ({"detail": {"missing": [{"exists": False}]}}, True),
        # Only leaves exist, in event-ruler too.
        ({"detail": {"nested": [{"exists": False}]}}, True),
        ({"detail": {"nested": {"leaf": [{"exists": True}]}}}, True),
        # A null is no value here; in EventBridge it is one that exists.
        ({"detail": {"note": [None]}}, True),
        ({"detail": {"missing": [None]}}, True),
        ({"detail": {"note": [{"exists": True}]}}, False),
        ({"detail": {"note": [{"anything-but": "a"}]}}, False),
        # Arrays stay in the payload.
        ({"resources": EC2["resources"]}, False),
        ({"resources": [{"exists": True}]}, False),
        ({"source": ["x"], "$or": [{"region": ["us-east-1"]}, {"version": ["0"]}]}, False),
        ({"source": ["aws.ec2"], "$or": [{"region": ["eu"]}, {"version": ["0"]}]}, True),
        (
            {"$or": [{"region": ["eu"]}, {"$or": [{"version": ["1"]}, {"source": ["aws.ec2"]}]}]},
            True,
        ),
    ],
)
def test_a_pattern_matches_the_event_of_the_manual(pattern: object, *, expected: bool) -> None:
    assert matches(pattern) is expected


@pytest.mark.parametrize(
    ("condition", "matching", "failing"),
    [
        ({"anything-but": "a"}, ["b", "", 5, True], ["a"]),
        ({"anything-but": 5}, ["a", "5", 6, 5.5, -(2**63), False], [5, 5.0]),
        ({"anything-but": ["a", "b"]}, ["c", 0], ["a", "b"]),
        ({"anything-but": [1, 2]}, ["1", 3, True], [1, 2.0]),
        ({"anything-but": {"prefix": "a"}}, ["b", "ba", 7, True], ["a", "ab"]),
        ({"anything-but": {"prefix": ["a", "b"]}}, ["c", 7], ["ab", "ba"]),
        ({"anything-but": {"suffix": ".png"}}, ["a.gif", 7], ["a.png"]),
        ({"anything-but": {"suffix": ["a", "b"]}}, ["c", 7], ["xa", "xb"]),
        ({"anything-but": {"equals-ignore-case": "Ab"}}, ["abc", 7], ["ab", "AB"]),
        ({"anything-but": {"equals-ignore-case": ["a", "B"]}}, ["c", 7], ["A", "b"]),
        ({"anything-but": {"wildcard": "*/lib/*"}}, ["/bin/x", 7], ["/lib/x", "a/lib/"]),
        ({"anything-but": {"wildcard": ["a*", "*z"]}}, ["b", 7], ["ab", "yz"]),
        ({"anything-but": {"wildcard": "*"}}, [7, False], ["", "a"]),
        ({"wildcard": r"a\*b"}, ["a*b"], ["axb", r"a\*b"]),
        ({"wildcard": r"a\\*"}, ["a\\", "a\\b"], ["a*", "ab"]),
        ({"wildcard": "a%_*"}, ["a%_", "a%_z"], ["abcd", "a%"]),
        ({"wildcard": "*"}, ["", "a\nb"], [7, True]),
        ({"prefix": ""}, ["", "a"], [7, True]),
        ({"equals-ignore-case": "Straße"}, ["STRASSE", "straße"], ["strase", 7]),
        ({"numeric": [">=", 5, "<=", 5]}, [5, 5.0], [4, 6, "5", True]),
        ({"cidr": "2001:db8::/32"}, ["2001:db8::1"], ["2001:db9::1", "10.0.0.1", "x", 7]),
    ],
)
def test_an_operator_on_every_kind_of_value(
    condition: object, matching: list[object], failing: list[object]
) -> None:
    assert [value for value in (*matching, *failing) if holds(value, condition)] == matching
    assert not matches(field(condition), {"y": 1}), "an absent field satisfies only exists: false"


def test_numbers_are_compared_by_value_and_exactly() -> None:
    assert holds(2**53 + 1, 2**53 + 1)
    assert not holds(2.0**53, 2**53 + 1)
    assert holds(10**15 + 1, {"numeric": [">", 10**15]}), "event-ruler stops at five billion"
    assert holds(300, 3e2)


# Errors


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ([], "at $: an event pattern is an object, not []"),
        ({}, "at $: an empty object"),
        ({"detail": {}}, "at $.detail: an empty object"),
        ({"x": []}, "at $.x: an empty list"),
        ({"x": "a"}, 'at $.x: a field takes a list or nested fields, not "a"'),
        ({"x": [["a"]]}, "at $.x[0]: a list inside a list"),
        ({"": ["a"]}, 'at $[""]: an attribute\'s name is empty'),
        ({"a b": [{"z": 1}]}, 'at $["a b"][0]: unknown operator "z"'),
        (
            {"detail": {"state": ["a", {"contains": "b"}]}},
            'at $.detail.state[1]: unknown operator "contains"; the operators are exactly, prefix',
        ),
        (field({}), "at $.x[0]: one operator an object"),
        (field({"prefix": "a", "suffix": "b"}), "at $.x[0]: one operator an object"),
        (field({"prefix": 5}), "at $.x[0].prefix: takes a string, not 5"),
        (field({"prefix": {"wildcard": "a"}}), 'at $.x[0].prefix: unknown operator "wildcard"'),
        (
            field({"suffix": {"equals-ignore-case": 1}}),
            "at $.x[0].suffix.equals-ignore-case: takes a string",
        ),
        (field({"equals-ignore-case": None}), "at $.x[0].equals-ignore-case: takes a string"),
        (field({"exists": "true"}), "at $.x[0].exists: takes true or false"),
        (field({"wildcard": "a**"}), "at $.x[0].wildcard: two * in a row"),
        (field({"wildcard": "a\\b"}), "at $.x[0].wildcard: a backslash"),
        (field({"wildcard": "a\\"}), "at $.x[0].wildcard: a backslash"),
        (field({"cidr": "10.0.0.0"}), "at $.x[0].cidr: "),
        (field({"cidr": "10.0.0.0/33"}), "at $.x[0].cidr: "),
        (field({"cidr": "10.0.0.0/255.0.0.0"}), "at $.x[0].cidr: "),
        (field({"cidr": 8}), "at $.x[0].cidr: takes a string"),
        (field({"numeric": 5}), "at $.x[0].numeric: takes a list like"),
        (field({"numeric": []}), "at $.x[0].numeric: takes a list like"),
        (field({"numeric": ["<", 1, ">"]}), "at $.x[0].numeric: takes a list like"),
        (field({"numeric": ["!=", 1]}), 'at $.x[0].numeric[0]: "!=" is none of ='),
        (field({"numeric": [["<"], 1]}), 'at $.x[0].numeric[0]: ["<"] is none of ='),
        (field({"numeric": ["<", "1"]}), 'at $.x[0].numeric[0]: < takes a number, not "1"'),
        (field({"numeric": [">", 1, "<", True]}), "at $.x[0].numeric[2]: < takes a number"),
        (field({"numeric": ["<", 5, ">", 0]}), "at $.x[0].numeric: a range has its lower bound"),
        (field({"numeric": [">", 0, "=", 5]}), "at $.x[0].numeric: a range has its lower bound"),
        (field({"numeric": [">", 5, "<", 5]}), "at $.x[0].numeric: the range is empty"),
        (field({"numeric": [">=", 5, "<=", 4]}), "at $.x[0].numeric: the range is empty"),
        (field({"anything-but": None}), "at $.x[0].anything-but: takes a string or a number"),
        (field({"anything-but": True}), "at $.x[0].anything-but: takes a string or a number"),
        (field({"anything-but": []}), "at $.x[0].anything-but: an empty list"),
        (field({"anything-but": ["a", 1]}), "at $.x[0].anything-but: takes strings only or"),
        (
            field({"anything-but": ["a", {"prefix": "b"}]}),
            "at $.x[0].anything-but[1]: takes a string or a number",
        ),
        (
            field({"anything-but": {"numeric": ["<", 5]}}),
            'at $.x[0].anything-but.numeric: unknown operator "numeric" in anything-but',
        ),
        (field({"anything-but": {"prefix": ""}}), "at $.x[0].anything-but.prefix: every text has"),
        (field({"anything-but": {"suffix": ["a", ""]}}), "at $.x[0].anything-but.suffix: every"),
        (field({"anything-but": {"prefix": ["a", 1]}}), "at $.x[0].anything-but.prefix[1]: takes"),
        (
            field({"anything-but": {"prefix": {"equals-ignore-case": "a"}}}),
            "at $.x[0].anything-but.prefix: takes a string",
        ),
        ({"$or": {"a": [1]}}, "at $.$or: $or takes a list of two or more objects"),
        ({"$or": [{"a": [1]}]}, "at $.$or: $or takes a list of two or more objects"),
        ({"$or": [{"a": [1]}, 5]}, "at $.$or[1]: an alternative is an object"),
        ({"$or": [{"a": [1]}, {}]}, "at $.$or[1]: an empty object"),
        (
            {"$or": [{"a": [1]}, {"prefix": ["b"]}]},
            "at $.$or[1].prefix: inside $or, prefix is an operator and no field",
        ),
        ({"d": {"x": ["a"]}, "d.x": ["b"]}, 'at $["d.x"]: the field "d.x" is named twice'),
        ({"a": [1], "$or": [{"a": [2]}, {"b": [3]}]}, 'at $.$or: the field "a" is named twice'),
        (field(2**63), "at $.x[0]: an integer beyond 64 bits"),
        (field("\ud800"), "at $.x[0]: "),
        ({"\ud800": ["a"]}, "lone surrogate"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(pattern: object, message: str) -> None:
    with pytest.raises(InvalidFilter, match=re.escape(message)):
        loads(json.dumps(pattern))


def test_fields_named_alike_in_different_alternatives_are_fine() -> None:
    found = loads({"$or": [{"a": [1], "b": [1]}, {"a": [2], "b": [2]}]})
    assert found == palio.parse("a = 1 AND b = 1 OR a = 2 AND b = 2")


@pytest.mark.parametrize(
    ("text", "line", "column"), [("", 1, 1), ('{"a": [1,\n]}', 2, 1), ('{"a": ["x]}', 1, 8)]
)
def test_a_text_that_is_no_json_says_where(text: str, line: int, column: int) -> None:
    with pytest.raises(ParseError, match="not JSON") as caught:
        loads(text)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('{"source": ["a"], "source": ["b"]}', 'the key "source" occurs twice'),
        ('{"x": [NaN]}', "at $.x[0]: NaN is no JSON value"),
        ('{"x": [1e400]}', "at $.x[0]: Infinity is no JSON value"),
        ('{"x": [' + "9" * 5000 + "]}", "too many digits"),
        ({"x": [b"a"]}, "at $.x[0]: an object of type bytes is no JSON value"),
        ({5: ["a"]}, "at $: the key 5 is no string"),
        (None, "at $: an event pattern is an object, not null"),
        (5, "at $: an event pattern is an object, not 5"),
    ],
)
def test_what_json_cannot_say_is_refused(document: Any, message: str) -> None:
    with pytest.raises(InvalidFilter, match=re.escape(message)):
        loads(document)


# Limits


def nested(levels: int) -> dict[str, Any]:
    """A pattern with that many objects and lists inside each other."""
    pattern: dict[str, Any] = {"x": ["a"]}
    for _ in range(levels - 2):
        pattern = {"x": pattern}
    return pattern


def sized(chars: int) -> str:
    return json.dumps({"x": ["a"]}).ljust(chars)


LIMITS: Final[dict[str, tuple[int, Callable[[int], Any]]]] = {
    "MAX_DEPTH": (MAX_DEPTH, nested),
    "MAX_IN_VALUES": (MAX_IN_VALUES, lambda size: field(*range(size))),
    "MAX_TEXT_CHARS": (MAX_TEXT_CHARS, sized),
    "MAX_NAME_CHARS": (MAX_NAME_CHARS, lambda size: {"d": {"x" * (size - 2): ["a"]}}),
    "MAX_STRING_CHARS": (MAX_STRING_CHARS, lambda size: field({"prefix": "x" * size})),
    "MAX_CONJUNCTIONS": (
        MAX_CONJUNCTIONS,
        lambda size: field(*({"prefix": f"{i:05}"} for i in range(size))),
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    maximum, pattern = LIMITS[name]
    loads(pattern(maximum - 1))
    loads(pattern(maximum))
    with pytest.raises(LimitExceeded) as caught:
        loads(pattern(maximum + 1))
    assert caught.value.limit == name


def test_a_list_within_anything_but_is_limited_too() -> None:
    for wrap in (list, lambda values: {"prefix": list(values)}):
        with pytest.raises(LimitExceeded, match="MAX_IN_VALUES"):
            loads(field({"anything-but": wrap(str(i) for i in range(MAX_IN_VALUES + 1))}))


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"a":['])
def test_nesting_without_end_is_refused(opening: str) -> None:
    with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
        loads(opening * 20_000 + "1" + "]" * 20_000 if opening == "[" else opening * 20_000)


def test_an_object_that_holds_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["x"] = loop
    with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
        loads(loop)


def test_objects_that_share_parts_are_counted_as_often_as_they_stand() -> None:
    bomb: dict[str, Any] = {"x": ["a"]}
    for _ in range(MAX_DEPTH - 2):
        bomb = {"x": bomb, "y": bomb}
    with pytest.raises(LimitExceeded, match="the lists and objects of a JSON document"):
        loads(bomb)


def test_a_pattern_that_would_multiply_out_is_refused() -> None:
    pattern = {f"f{i}": [{"prefix": "a"}, {"suffix": "b"}] for i in range(30)}
    with pytest.raises(LimitExceeded, match="MAX_CONJUNCTIONS"):
        loads(pattern)


# The oracle: the pattern evaluated directly on the nested event

STRINGS: Final = ["", "a", "A", "ab", "aB", "ba", "a*b", "a%", "\\", "10.0.0.1", "10.9.0.1", "ß"]
NUMBERS: Final = [0, 1, 5, 1.0, -1.5, 5.5, 2**53, 2**53 + 1, -(2**63)]
COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def satisfies(pattern: dict[str, Any], part: Any) -> bool:
    """Check an event, or a part of one, against a pattern: event-ruler's rules, one by one."""
    return all(
        any(satisfies(each, part) for each in wanted)
        if key == "$or"
        else satisfies(wanted, member(part, key))
        if isinstance(wanted, dict)
        else any(accepts(condition, member(part, key)) for condition in wanted)
        for key, wanted in pattern.items()
    )


def member(part: Any, key: str) -> Any:
    return part.get(key) if isinstance(part, dict) else None


def accepts(condition: Any, value: Any) -> bool:
    """One member of a field's list; objects, arrays and null are no values."""
    present = isinstance(value, bool | int | float | str)
    if condition is None:
        return not present
    if not isinstance(condition, dict):
        return present and same(condition, value)
    ((name, operand),) = condition.items()
    if name == "exists":
        return present is operand
    if name == "anything-but":
        return present and not any(accepts(each, value) for each in excluded(operand))
    if name == "numeric":
        return type(value) in (int, float) and all(
            COMPARE[operand[i]](value, operand[i + 1]) for i in range(0, len(operand), 2)
        )
    return isinstance(value, str) and of_text(name, operand, value)


def same(wanted: Any, value: Any) -> bool:
    number = {int: "number", float: "number"}
    kinds = [number.get(type(each), type(each).__name__) for each in (wanted, value)]
    return kinds[0] == kinds[1] and wanted == value


def excluded(operand: Any) -> list[Any]:
    if isinstance(operand, dict):
        ((name, inner),) = operand.items()
        return [{name: each} for each in (inner if isinstance(inner, list) else [inner])]
    return operand if isinstance(operand, list) else [operand]


def of_text(name: str, operand: Any, value: str) -> bool:
    if isinstance(operand, dict):
        operand, value = operand["equals-ignore-case"].casefold(), value.casefold()
    text = str(operand)
    match name:
        case "exactly":
            return value == text
        case "prefix":
            return value[: len(text)] == text
        case "suffix":
            return text == value[max(0, len(value) - len(text)) :]
        case "equals-ignore-case":
            return value.casefold() == text.casefold()
        case "wildcard":
            pieces = re.findall(r"\\.|[^\\]", text, re.DOTALL)
            source = "".join(".*" if each == "*" else re.escape(each[-1]) for each in pieces)
            return re.fullmatch(source, value, re.DOTALL) is not None
        case "cidr":
            return re.fullmatch(r"[0-9.]+", value) is not None and ip_address(value) in ip_network(
                operand
            )
    raise AssertionError(name)


strings = st.sampled_from(STRINGS)
affixes = st.sampled_from([text for text in STRINGS if text])
numbers = st.sampled_from(NUMBERS)
wildcards = st.sampled_from(["*", "a*", "*b", "a*b", "a\\*b", "\\\\", "*.0.*", "%*", "_*", "a"])
ranges = st.tuples(
    st.sampled_from([">", ">="]), st.sampled_from([-2, 0, 1]), st.sampled_from(["<", "<="])
).map(lambda parts: [*parts, 5])
case_free = strings.map(lambda text: {"equals-ignore-case": text})


def one_or_list(texts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return texts | st.lists(texts, min_size=1, max_size=3)


conditions = st.one_of(
    strings,
    numbers,
    st.booleans(),
    st.none(),
    st.fixed_dictionaries({"exactly": strings}),
    st.fixed_dictionaries({"prefix": strings | case_free}),
    st.fixed_dictionaries({"suffix": strings | case_free}),
    case_free,
    st.fixed_dictionaries({"wildcard": wildcards}),
    st.fixed_dictionaries({"exists": st.booleans()}),
    st.fixed_dictionaries({"cidr": st.sampled_from(["10.0.0.0/8", "10.0.0.0/16", "::/0"])}),
    st.fixed_dictionaries(
        {"numeric": ranges | st.tuples(st.sampled_from(list(COMPARE)), numbers).map(list)}
    ),
    st.fixed_dictionaries({"anything-but": one_or_list(strings) | one_or_list(numbers)}),
    st.sampled_from(["prefix", "suffix"]).flatmap(
        lambda name: st.fixed_dictionaries(
            {"anything-but": st.fixed_dictionaries({name: one_or_list(affixes)})}
        )
    ),
    st.fixed_dictionaries(
        {"anything-but": st.fixed_dictionaries({"equals-ignore-case": one_or_list(strings)})}
    ),
    st.fixed_dictionaries(
        {"anything-but": st.fixed_dictionaries({"wildcard": one_or_list(wildcards)})}
    ),
)
leaves = st.lists(conditions, min_size=1, max_size=3)


def objects(names: str, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), inner, min_size=1, max_size=2)


alternatives = st.lists(objects("xy", leaves), min_size=2, max_size=3)
nested_alternatives = st.lists(
    objects("xy", leaves)
    | st.fixed_dictionaries(
        {"$or": st.lists(objects("xy", leaves), min_size=2, max_size=2), "z": leaves}
    ),
    min_size=2,
    max_size=3,
)
inner_objects = objects("ab", leaves) | st.fixed_dictionaries({"$or": alternatives})
patterns = st.one_of(
    objects("ab", leaves | inner_objects),
    st.fixed_dictionaries({"$or": nested_alternatives}),
    st.fixed_dictionaries({"a": leaves, "$or": alternatives}),
)
scalars = strings | numbers | st.booleans() | st.none()
values = scalars | st.lists(scalars, max_size=2)
events = st.dictionaries(
    st.sampled_from("abxyz"),
    values | st.dictionaries(st.sampled_from("abxy"), values, max_size=4),
    max_size=5,
)


@given(patterns, st.lists(events, min_size=1, max_size=8))
def test_a_filter_agrees_with_its_pattern_and_prints_and_parses_back(
    pattern: dict[str, Any], candidates: list[dict[str, Any]]
) -> None:
    try:
        found = loads(pattern)
    except LimitExceeded:
        assume(False)
    assert palio.parse(str(found)) == found
    for candidate in candidates:
        verdict = satisfies(pattern, candidate)
        event(f"matches: {verdict}")
        assert found.matches(flatten(candidate)) is verdict, (str(found), candidate)


@given(conditions, scalars)
def test_a_condition_agrees_with_the_oracle_on_any_value(condition: Any, value: Any) -> None:
    assert holds(value, condition) is accepts(condition, value)


# Fuzz

KEYS: Final = [
    *("a", "x.y", "$or", "<", "prefix", "suffix", "equals-ignore-case", "wildcard", "anything-but"),
    *("exactly", "numeric", "cidr", "exists"),
]
junk = st.recursive(
    scalars | st.floats() | st.text(max_size=5) | st.integers() | st.sampled_from(["<", ">", "="]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(junk | st.dictionaries(st.sampled_from(KEYS), st.lists(junk, max_size=3), max_size=3))
def test_any_json_is_read_or_refused(document: Any) -> None:
    event(outcome(loads, document))
    event(outcome(loads, json.dumps(document)))


WHOLE: Final = json.dumps(
    {
        "source": ["a", {"prefix": {"equals-ignore-case": "b\u00e9"}}, {"wildcard": "\\\\*"}],
        "d": {"n": [1.5e2, {"numeric": [">", -1, "<=", 5]}, None, {"anything-but": ["a", "b"]}]},
        "$or": [{"x": [{"cidr": "10.0.0.0/8"}]}, {"y": [{"exists": False}, True]}],
    }
)


@given(
    st.integers(0, len(WHOLE)), st.integers(0, 4), st.text('{}[]":,\\e1-.$', min_size=0, max_size=3)
)
def test_a_damaged_text_is_read_or_refused(start: int, removed: int, added: str) -> None:
    event(outcome(loads, WHOLE[:start] + added + WHOLE[start + removed :]))


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    assert outcome(loads, text) != "read"
