"""Canonical form: the laws of three-valued logic that a filter is kept reduced by.

Lists are gathered (`x = 1 OR x = 2` is `x IN (1, 2)`, `x != 1 AND x != 2` is `x NOT IN (1, 2)`),
duplicates dropped, alternatives that contain another absorbed, and everything sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, TypeAlias

from palio.model.constraints import Constraint, Residual
from palio.model.expressions import Literal, Slot
from palio.model.limits import MAX_IN_VALUES
from palio.model.operators import Op
from palio.model.values import Kind

Leaf: TypeAlias = Constraint | Residual
Clause: TypeAlias = frozenset[Leaf]
"""The parts of one alternative."""


def gathered(constraints: list[Constraint], single: Op, listed: Op) -> list[Constraint]:
    """Distinct constraints, with those on one attribute that make one list made one."""
    distinct = list(dict.fromkeys(constraints))
    groups: dict[tuple[str, bool, Kind], list[Constraint]] = {}
    for constraint in distinct:
        kind = _list_kind(constraint, single, listed)
        if kind is not None:
            groups.setdefault((constraint.name, constraint.ignore_case, kind), []).append(
                constraint
            )
    for (name, ignore_case, _), group in groups.items():
        if len(group) < 2:
            continue
        members = [
            member
            for clause in group
            for member in (
                clause.operand if isinstance(clause.operand, tuple) else (clause.operand,)
            )
        ]
        if len(set(members)) > MAX_IN_VALUES:
            continue
        whole = Constraint.of(name, listed, members, ignore_case)
        gone = set(group)
        distinct = [clause for clause in distinct if clause not in gone]
        distinct.append(whole)
    return distinct


def spread(parts: Iterable[Leaf]) -> Iterator[Leaf]:
    """Parts with `x NOT IN (1, 2)` taken apart again into `x != 1` and `x != 2`.

    What absorbs what must not depend on whether lists were gathered before or after.
    """
    for part in parts:
        if (
            isinstance(part, Constraint)
            and isinstance(part.operand, tuple)
            and _list_kind(part, Op.NE, Op.NOT_IN) is not None
        ):
            for member in part.operand:
                yield Constraint(part.name, Op.NE, member, part.ignore_case)
        else:
            yield part


def _list_kind(constraint: Constraint, single: Op, listed: Op) -> Kind | None:
    """The kind of an equality's or list's constants, None if it is neither or has variables."""
    operand = constraint.operand
    if constraint.op is single:
        return operand.kind if isinstance(operand, Literal | Slot) else None
    if constraint.op is listed and isinstance(operand, tuple):
        kinds = {item.kind if isinstance(item, Literal | Slot) else None for item in operand}
        return next(iter(kinds)) if len(kinds) == 1 else None
    return None


def absorbed(clauses: Iterable[Clause]) -> list[Clause]:
    """Distinct clauses none of which contains all parts of another: `a OR a AND b` is `a`."""
    kept: list[Clause] = []
    by_part: dict[Leaf, list[Clause]] = {}
    for size, same_size in groupby(sorted(dict.fromkeys(clauses), key=len), key=len):
        if size == 0:
            return [frozenset()]
        # A clause can only contain a shorter one.
        fresh = [
            clause
            for clause in same_size
            if not any(other <= clause for part in clause for other in by_part.get(part, ()))
        ]
        for clause in fresh:  # filed under one part, where fewest are filed
            part = min(clause, key=lambda candidate: len(by_part.get(candidate, ())))
            by_part.setdefault(part, []).append(clause)
        kept += fresh
    return kept


def constraint_key(constraint: Constraint) -> tuple[Any, ...]:
    """The key by which constraints are sorted."""
    operand = constraint.operand
    members = operand if isinstance(operand, tuple) else () if operand is None else (operand,)
    keys = tuple(
        (member.kind, member.value) if isinstance(member, Literal) else (9, member.name)
        for member in members
    )
    return constraint.name, constraint.op.rank, constraint.ignore_case, len(keys), keys


def conjunction_key(
    constraints: tuple[Constraint, ...], residuals: tuple[Residual, ...]
) -> tuple[Any, ...]:
    """The key by which conjunctions are sorted."""
    return tuple(map(constraint_key, constraints)), tuple(map(str, residuals))
