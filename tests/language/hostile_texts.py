"""Filter texts that a hostile client would send: each grows one thing as far as the text allows.

`texts()` names them. They are not filters that anybody means; what matters is what each costs
before it is accepted or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

from palio.errors import InvalidInput
from palio.model.limits import MAX_TEXT_CHARS


def _chain(joint: str, part: Callable[[int], str], most: int = MAX_TEXT_CHARS) -> str:
    """Parts joined until the text is as long as it may be."""
    parts: list[str] = []
    left = most
    for place in count():
        text = part(place)
        left -= len(text) + len(joint)
        if left < 0:
            return joint.join(parts)
        parts.append(text)
    raise AssertionError("counting does not end")


def _in_parentheses(joint: str, part: Callable[[int], str], count: int) -> str:
    return joint.join(f"({part(place)})" for place in range(count))


def _own(place: int) -> str:
    return f"a{place} = 1"


def _xor_tree(depth: int, place: int = 0) -> str:
    if depth == 0:
        return f"a{place} < 1"
    left, right = _xor_tree(depth - 1, 2 * place), _xor_tree(depth - 1, 2 * place + 1)
    return f"({left} XOR {right})"


_JOINTS: Final = {"OR": " OR ", "AND": " AND ", "XOR": " XOR ", "THEN": " THEN "}
_LEAVES: Final[dict[str, Callable[[int], str]]] = {
    "shortest": lambda _: "a",
    "names": lambda place: f"a{place}",
    "equalities": _own,
    "one name": lambda place: f"a={place}",
    "orders": lambda place: f"a<{place}",
    "negations": lambda place: f"NOT a{place}",
    "likes": lambda place: f"a LIKE '%{place}%_x%'",
    "caseless": lambda place: f"a CONTAINS '{place}' IGNORE CASE",
    "blocks": lambda place: f"a IN CIDR '10.{place // 256 % 256}.{place % 256}.0/24'",
    "ranges": lambda place: f"a{place} BETWEEN 1 AND 2",
    "outside": lambda place: f"a{place} NOT BETWEEN 1 AND 2",
    "lists": lambda place: f"a{place} IN (1,2)",
    "calls": lambda place: f"LENGTH(a{place}) > 1",
    "sums": lambda place: f"a{place}+b > 1",
    "constants": lambda _: "1<2",
    "constant sums": lambda place: f"a>{place}+1",
    "parameters": lambda place: f"a{place} = :p{place}",
    "cesql": lambda place: f"CESQL 'hop < {place}'",
    "pairs": lambda place: f"(a{place}=1 OR b{place}=1)",
    "double pairs": lambda place: f"(a{place}=1 AND b{place}=1)",
    "long names": lambda place: f"{'n' * 200}{place} = 1",
    "long texts": lambda place: f"a{place} = '{'x' * 10_000}'",
}


def _chains() -> Iterator[tuple[str, str]]:
    for word, joint in _JOINTS.items():
        for leaf, part in _LEAVES.items():
            yield f"{word} of {leaf}", _chain(joint, part)
            yield f"1,000 {word} of {leaf}", _chain(joint, part)[: len(_cut(joint, part, 1_000))]
    for leaf, part in _LEAVES.items():
        yield f"NOT of OR of {leaf}", f"NOT ({_chain(' OR ', part, MAX_TEXT_CHARS - 10)})"
        yield f"NOT of AND of {leaf}", f"NOT ({_chain(' AND ', part, MAX_TEXT_CHARS - 10)})"


def _cut(joint: str, part: Callable[[int], str], number: int) -> str:
    return joint.join(part(place) for place in range(number))


def _arithmetic() -> Iterator[tuple[str, str]]:
    for sign in "+-*/%":
        yield f"chain of {sign}", _chain(sign, lambda _: "a", MAX_TEXT_CHARS - 4) + " > 1"
        yield f"constants with {sign}", _chain(sign, lambda _: "1", MAX_TEXT_CHARS - 4) + " > a"
        yield f"signed with {sign}", _chain(sign, lambda _: "-1.5", MAX_TEXT_CHARS - 4) + " > a"
    yield "minuses", "- " * (MAX_TEXT_CHARS // 2 - 4) + "a > 1"
    yield "minuses before a number", "-" * (MAX_TEXT_CHARS - 5) + "1 > a"
    yield "NOTs", "NOT " * (MAX_TEXT_CHARS // 4 - 4) + "a"
    yield "two million by two million", "a * b = " + _chain(" * ", lambda _: "2", 260_000)


def _nested() -> Iterator[tuple[str, str]]:
    for opening, middle, closing in (
        ("(", "a", ")"),
        ("(", "a = 1", ")"),
        ("NOT (", "a = 1", ")"),
        ("ABS(", "a", ")"),
        ("-(", "a", ")"),
        ("CONCAT('x',", "a", ")"),
        ("a IN (", "1", ")"),
    ):
        for depth in (60, 64, 65, 30_000):
            inner = opening * depth + middle + closing * depth
            text = inner if "=" in middle or (middle == "a" and opening == "(") else f"{inner} = b"
            yield f"{depth} deep {opening}", text[:MAX_TEXT_CHARS]
        yield f"never closed {opening}", (opening * MAX_TEXT_CHARS)[:MAX_TEXT_CHARS]
    yield "closed only", ")" * MAX_TEXT_CHARS


def _products() -> Iterator[tuple[str, str]]:
    for factors, width in (
        (2, 32),
        (2, 1_500),
        (5, 4),
        (10, 2),
        (11, 2),
        (20, 2),
        (2_000, 2),
        (3, 200),
    ):
        either = _in_parentheses(
            " AND ",
            lambda factor: _cut(" OR ", lambda place: f"f{factor} < {place}", width),  # noqa: B023
            factors,
        )
        both = _in_parentheses(
            " OR ",
            lambda factor: _cut(" AND ", lambda place: f"f{factor} < {place}", width),  # noqa: B023
            factors,
        )
        yield f"product {factors} x {width}", either
        yield f"negated sum {factors} x {width}", f"NOT ({both})"
        shared = _in_parentheses(
            " AND ",
            lambda factor: _cut(" OR ", lambda place: f"c{factor + place} < 1", width),  # noqa: B023
            factors,
        )
        yield f"product {factors} x {width} with leaves in common", shared
    for depth in (3, 4, 5, 8, 10):
        yield f"XOR tree {depth} deep", _xor_tree(depth)
    overlapping = _in_parentheses(" AND ", lambda i: f"x{i}=1 OR x{i + 1}=1", 60)
    yield "a chain of pairs that overlap", overlapping
    wide = " OR ".join(f"a{i} = 1 AND b{i} = 1" for i in range(1_024))
    yield "1,024 pairs", wide
    yield "1,024 pairs negated", f"NOT ({wide})"
    sixteen = " OR ".join(" AND ".join(f"a{j}={i}" for j in range(16)) for i in range(1_024))
    yield "1,024 of 16", sixteen
    many = " AND ".join(f"a{j} < 1" for j in range(15))
    yield (
        "32 x 32 with 15 more",
        " AND ".join(
            ["(" + " OR ".join(f"{n}{i} < 1" for i in range(32)) + ")" for n in "bc"] + [many]
        ),
    )
    yield (
        "32 x 32 with long texts",
        " AND ".join(
            ["(" + " OR ".join(f"{n}{i} < 1" for i in range(32)) + ")" for n in "bc"]
            + [f"a = '{'x' * 65_000}'"]
        ),
    )
    between = " OR ".join(f"a BETWEEN {i} AND {i + 1}" for i in range(1_500))
    yield "1,500 BETWEEN", between
    yield "1,500 by 1,500 BETWEEN", f"({between}) AND ({between.replace('a ', 'b ')})"
    yield (
        "32 by 32 BETWEEN",
        " AND ".join(
            "(" + " OR ".join(f"{n} BETWEEN {2 * i} AND {2 * i + 1}" for i in range(32)) + ")"
            for n in "ab"
        ),
    )


def _lists() -> Iterator[tuple[str, str]]:
    for size in (9_999, 10_000, 10_001, 60_000):
        for what, member in (("numbers", "{}"), ("texts", "'{}'"), ("negative", "-{}")):
            inner = ",".join(member.format(i) for i in range(size))[: MAX_TEXT_CHARS - 40]
            yield f"IN with {size} {what}", f"a IN ({inner})"
            yield f"LENGTH IN with {size} {what}", f"LENGTH(a) IN ({inner})"
    yield "IN with attributes", "a IN (" + _chain(",", lambda i: f"b{i}", 260_000) + ")"
    yield "IN with one attribute", "a IN (" + _chain(",", lambda _: "b", 260_000) + ")"
    yield "IN with parameters", "a IN (" + _chain(",", lambda i: f":p{i}", 260_000) + ")"
    yield "IN with sums", "a IN (" + _chain(",", lambda i: f"{i}+1", 260_000) + ")"
    yield "IN with equal members", "a IN (" + _chain(",", lambda _: "1", 260_000) + ")"
    yield "IN ignoring case", "a IN (" + _chain(",", lambda i: f"'{i}'", 260_000) + ") IGNORE CASE"
    yield "arguments", "CONCAT(" + _chain(",", lambda _: "a", 260_000) + ") = 'x'"
    yield (
        "many lists",
        _chain(" OR ", lambda i: f"a{i} IN (" + ",".join(map(str, range(200))) + ")"),
    )
    yield (
        "lists of one name",
        _chain(" OR ", lambda i: f"a IN ({','.join(str(200 * i + j) for j in range(200))})"),
    )
    yield (
        "excluded lists of one name",
        _chain(" AND ", lambda i: f"a NOT IN ({','.join(str(200 * i + j) for j in range(200))})"),
    )
    yield "mixed lists", _chain(" AND ", lambda i: f"a NOT IN ({i}, :p)")


def _literals() -> Iterator[tuple[str, str]]:
    whole = MAX_TEXT_CHARS - 10
    yield "a long integer", "a < " + "9" * whole
    yield "a long fraction", "a < 0." + "9" * (whole - 2)
    yield "zeros", "a < " + "0" * whole
    yield "a long exponent", "a < 1e" + "9" * (whole - 2)
    yield "a long small number", "a < 0." + "0" * (whole - 10) + "1e300"
    yield "a long duration", "a = 1 THEN b = 1 WITHIN " + "9" * (whole - 40) + "s"
    yield "a long fraction of a duration", "a = 1 THEN b = 1 WITHIN 1." + "9" * (whole - 40) + "s"
    yield "fractions", _chain(" OR ", lambda i: f"a<0.{i}{'9' * 700}")
    yield "a long text", f"a = '{'x' * whole}'"
    yield "quotes", "a = '" + "''" * (whole // 2) + "'"
    yield "quotes never closed", "a = '" + "''" * (whole // 2)
    yield "quotes of names never closed", 'a = "' + '""' * (whole // 2)
    yield "quotes, many never closed", "'" + "a''" * (whole // 3)
    yield "CESQL never closed", "CESQL '" + "''" * (whole // 2 - 3)
    yield "65,536 quotes", "a = '" + "''" * 65_536 + "'"
    yield "a long name", "a" * whole + " = 1"
    yield "a long dotted name", "a." * (whole // 2) + "a = 1"
    yield "a long quoted name", f'"{"a" * whole}" = 1'
    yield "a long parameter", "a = :" + "p" * whole
    yield "long bytes", "a = X'" + "0" * (whole // 2 * 2 - 4) + "'"
    yield "a long timestamp", f"a = TIMESTAMP '{'2' * (whole - 20)}'"
    yield "a long block", f"a IN CIDR '{'1' * (whole - 20)}'"
    yield "a block with slashes", f"a IN CIDR '{'1/' * 30_000}'"
    yield "spaces", " " * (whole - 10) + "a = 1"
    yield "spaces between", _chain(" ", lambda _: " ", whole - 10) + "a"
    yield "comments", "--\n" * (whole // 3 - 10) + "a = 1"
    yield "one comment", "--" + "-" * (whole - 20) + "\na = 1"
    yield "lines and an error", "\n" * (whole - 20) + "a = ="
    yield "starts with, apart", "starts" + " " * (whole - 20) + "x"
    yield "starts, apart", _chain(" ", lambda _: "starts", whole)
    yield "dollars", "$" * whole
    yield "colons", ":" * whole
    yield "accents", "é" * whole
    yield "surrogates", "a = '" + "\ud800" * 1_000 + "'"
    yield "digits and a letter", _chain(" ", lambda _: "1e", whole)
    yield "points", "1." * (whole // 2)
    yield "e and digits", "1e1" * (whole // 3)
    yield "one LIKE of %", "a LIKE '" + "%" * 65_000 + "x'"
    yield "one LIKE of % and x", "a LIKE '" + "%x" * 32_000 + "'"
    yield "one LIKE of _", "a LIKE '" + "_" * 65_000 + "'"
    yield "one LIKE of %_", "a LIKE '" + "%_" * 32_000 + "x'"
    yield "one LIKE of backslashes", "a LIKE '" + "\\\\" * 32_000 + "%'"
    yield "LIKEs of % and x", _chain(" AND ", lambda i: f"a LIKE '{'%x' * 100}{i}%'")
    yield "a folded text", "a = '" + "ß" * 60_000 + "' IGNORE CASE"


def _calls() -> Iterator[tuple[str, str]]:
    long = "'" + "x" * 60_000 + "'"
    yield "UPPER of a long text", "a = " + "UPPER(LOWER(" * 30 + long + "))" * 30
    yield "CONCAT of long texts", f"a = CONCAT({long}, {long}, {long})"
    doubled = "'xy'"
    for _ in range(12):
        doubled = f"CONCAT({doubled}, {doubled})"
    yield "CONCAT that doubles", f"a = {doubled}"
    yield "SUBSTRING far away", "a = SUBSTRING('x', 9223372036854775807, 9223372036854775807)"
    yield "COALESCE of constants", _chain(" OR ", lambda i: f"COALESCE(a,{i}) = 1")
    yield "unknown functions", _chain(" OR ", lambda i: f"F{i}(a) = 1")
    yield "sums without an attribute", _chain(" AND ", lambda i: f"{i}+1 > {i}")


def _cesql() -> Iterator[tuple[str, str]]:
    whole = MAX_TEXT_CHARS - 20
    for name, inner in (
        ("OR", _chain(" OR ", _own, whole)),
        ("AND", _chain(" AND ", _own, whole)),
        ("XOR", _chain(" XOR ", _own, whole)),
        ("+", _chain("+", lambda _: "1", whole) + " = 1"),
        ("=", _chain("=", lambda _: "a", whole)),
        ("-", "-" * whole + "1"),
        ("NOT", "NOT " * (whole // 4) + "a"),
        ("parentheses", "(" * (whole // 2) + "a" + ")" * (whole // 2)),
        ("open parentheses", "(" * whole),
        ("calls", "ABS(" * (whole // 5) + "1" + ")" * (whole // 5)),
        ("IN", "a IN (" + _chain(",", str, whole - 20) + ")"),
        ("IN of names", "a IN (" + _chain(",", lambda i: f"a{i}", whole - 20) + ")"),
        ("quotes", 'a = "' + "x" * (whole - 20) + '"'),
        ("backslashes", 'a = "' + "\\" * (whole - 20) + '"'),
        ("likes", _chain(" OR ", lambda i: f'a LIKE "%{i}%_%"', whole)),
        ("digits", "a = " + "9" * (whole - 20)),
        ("products", " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(5_000))),
    ):
        yield f"CESQL of {name}", "CESQL '" + inner.replace("'", "''")[:whole] + "'"


def texts() -> dict[str, str]:
    """Hostile texts by what they do."""
    families = (_chains, _arithmetic, _nested, _products, _lists, _literals, _calls, _cesql)
    return {name: text for family in families for name, text in family()}


def _json() -> Iterator[tuple[str, str]]:
    whole = MAX_TEXT_CHARS - 20
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        yield f"{opening} never closed", opening * (whole // len(opening))
        for depth in (60, 900, whole // (len(opening) + 1)):
            yield f"{opening} {depth} deep", f"{opening * depth}1{closing * depth}"
    yield "keys", "{" + _chain(",", lambda i: f'"k{i}":1', whole) + "}"
    yield "one key twice", "{" + _chain(",", lambda i: f'"k{i}":1', whole - 20) + ',"k0":1}'
    yield (
        "the last key twice",
        "{" + _chain(",", lambda i: f'"k{i}":1', whole - 20) + ',"z":1,"z":2}',
    )
    yield "a long number", "[" + "9" * whole + "]"
    yield "a long text", '{"a": "' + "x" * (whole - 20) + '"}'
    yield "escapes", '{"a": "' + "\\u0041" * ((whole - 20) // 6) + '"}'


def _eventbridge() -> Iterator[tuple[str, str]]:
    yield from _json()
    whole = MAX_TEXT_CHARS - 100
    for name, part in (
        ("values", lambda i: f'"{i}"'),
        ("numbers", str),
        ("prefixes", lambda i: f'{{"prefix":"{i}"}}'),
        ("suffixes", lambda i: f'{{"suffix":"{i}"}}'),
        ("wildcards", lambda i: f'{{"wildcard":"*{i}*x*"}}'),
        ("blocks", lambda i: f'{{"cidr":"10.0.{i % 256}.0/24"}}'),
        ("exclusions", lambda i: f'{{"anything-but":"{i}"}}'),
        ("ranges", lambda i: f'{{"numeric":[">",{i},"<",{i + 1}]}}'),
        ("caseless", lambda i: f'{{"equals-ignore-case":"{i}"}}'),
    ):
        yield name, '{"a":[' + _chain(",", part, whole) + "]}"
        yield f"anything but {name}", '{"a":[{"anything-but":[' + _chain(",", part, whole) + "]}]}"
    yield "fields", "{" + _chain(",", lambda i: f'"a{i}":["x",{{"exists":false}}]', whole) + "}"
    yield "fields but", "{" + _chain(",", lambda i: f'"a{i}":[{{"anything-but":"x"}}]', whole) + "}"
    yield "$or", '{"$or":[' + _chain(",", lambda i: f'{{"a{i}":["x"]}}', whole) + "]}"
    yield "one wildcard", '{"a":[{"wildcard":"' + "*x" * 30_000 + '"}]}'


def _cloudevents() -> Iterator[tuple[str, str]]:
    yield from _json()
    whole = MAX_TEXT_CHARS - 100
    for name, part in (
        ("exact", lambda i: f'{{"exact":{{"a{i}":"x"}}}}'),
        ("prefix", lambda i: f'{{"prefix":{{"a":"{i}"}}}}'),
        ("suffix", lambda i: f'{{"suffix":{{"a":"{i}"}}}}'),
        ("not", lambda i: f'{{"not":{{"suffix":{{"a":"{i}"}}}}}}'),
        ("not of each", lambda i: f'{{"not":{{"prefix":{{"a{i}":"x"}}}}}}'),
        ("sql", lambda i: f'{{"sql":"hop < {i}"}}'),
        ("sql of texts", lambda i: f'{{"sql":"id = \'{i}\'"}}'),
    ):
        for word in ("all", "any"):
            listed = "[" + _chain(",", part, whole) + "]"
            yield f"{word} {name}", f'{{"{word}":{listed}}}'
            yield f"not {word} {name}", f'{{"not":{{"{word}":{listed}}}}}'
    for depth in (20, 60, 64, 10_000):
        yield f"not {depth} deep", '{"not":' * depth + '{"exact":{"a":"b"}}' + "}" * depth
        yield f"all {depth} deep", '{"all":[' * depth + '{"exact":{"a":"b"}}' + "]}" * depth


def documents() -> dict[str, dict[str, str]]:
    """Hostile documents of the other dialects by what they do."""
    sql = {name: text[len("CESQL '") : -1].replace("''", "'") for name, text in _cesql()}
    return {"cesql": sql, "cloudevents": dict(_cloudevents()), "eventbridge": dict(_eventbridge())}


def outcome(read: Callable[[Any], object], document: Any) -> str:
    """The outcome; anything but a filter or a documented error is raised."""
    try:
        read(document)
    except InvalidInput as error:
        return type(error).__name__
    return "read"
