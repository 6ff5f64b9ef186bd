"""Machine instructions that kernels need and numba does not offer. Only kernels import it.

A *vector* is 64 bytes in memory, 512 bits, one for each event of a block. Functions take the
addresses of vectors as unsigned words; LLVM makes AVX-512, AVX2 or NEON code of them as the
machine has it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # llvmlite ships no types
from numba import types
from numba.np.numpy_support import carray

from palio.matching.kernels.jit import inlined, instruction

_BIT: Final = ir.IntType(1)
_BYTE: Final = ir.IntType(8)
_SHORT: Final = ir.IntType(16)
_HALF: Final = ir.IntType(32)
_WORD: Final = ir.IntType(64)
_VECTOR: Final = ir.VectorType(_WORD, 8)
_SHORTS: Final = ir.VectorType(_SHORT, 32)
_BYTES: Final = 64

_word: Final = types.uint64

COUNTER_PLANES: Final = 12
"""Bits of a vertical counter: it counts to 4095."""


def _load(builder: Any, address: Any, place: int = 0) -> Any:
    loaded = builder.load(_pointer(builder, address, place))
    loaded.align = 8  # numpy promises no more
    return loaded


def _store(builder: Any, value: Any, address: Any, place: int = 0) -> None:
    builder.store(value, _pointer(builder, address, place)).align = 8


def _pointer(builder: Any, address: Any, place: int) -> Any:
    moved = builder.add(address, ir.Constant(_WORD, place * _BYTES))
    return builder.inttoptr(moved, _VECTOR.as_pointer())


def _nonzero_words(builder: Any, vector: Any) -> Any:
    different = builder.icmp_unsigned("!=", vector, ir.Constant(_VECTOR, [0] * 8))
    return builder.bitcast(different, _BYTE)


@inlined
def vector_at(base: Any, place: Any) -> Any:
    """The address of the vector at a place in an array of vectors."""
    return base + (place << 6)


@instruction
def and_into(_: Any, _left: Any, _right: Any, _target: Any) -> Any:
    """target = left & right; returns which of its eight words are not zero, a bit for each."""

    def emit(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        result = builder.and_(_load(builder, given[0]), _load(builder, given[1]))
        _store(builder, result, given[2])
        return builder.zext(_nonzero_words(builder, result), _WORD)

    return _word(_word, _word, _word), emit


@instruction
def and_differences_into(
    _: Any,
    _in_1: Any,
    _not_1: Any,
    _in_2: Any,
    _not_2: Any,
    _in_3: Any,
    _not_3: Any,
    _in_4: Any,
    _not_4: Any,
    _target: Any,
) -> Any:
    """target = the AND of four differences; returns which of its words are not zero."""

    def emit(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        loaded = [_load(builder, address) for address in given[:8]]
        result = ir.Constant(_VECTOR, [-1] * 8)
        for inside, outside in zip(loaded[::2], loaded[1::2], strict=True):
            result = builder.and_(result, builder.and_(inside, builder.not_(outside)))
        _store(builder, result, given[8])
        return builder.zext(_nonzero_words(builder, result), _WORD)

    return _word(*(_word for _ in range(9))), emit


@instruction
def has_common(_: Any, _left: Any, _right: Any) -> Any:
    """1 if two vectors have a bit in common, else 0."""

    def emit(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        result = builder.and_(_load(builder, given[0]), _load(builder, given[1]))
        some = builder.icmp_unsigned("!=", _nonzero_words(builder, result), ir.Constant(_BYTE, 0))
        return builder.zext(some, _WORD)

    return _word(_word, _word), emit


@instruction
def and_not_into(_: Any, _left: Any, _right: Any, _target: Any) -> Any:
    """target = left & ~right."""

    def emit(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        inverse = builder.not_(_load(builder, given[1]))
        _store(builder, builder.and_(_load(builder, given[0]), inverse), given[2])
        return context.get_dummy_value()

    return types.void(_word, _word, _word), emit


@instruction
def or_into(_: Any, _target: Any, _other: Any) -> Any:
    """target |= other."""

    def emit(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        both = builder.or_(_load(builder, given[0]), _load(builder, given[1]))
        _store(builder, both, given[0])
        return context.get_dummy_value()

    return types.void(_word, _word), emit


@instruction
def or_difference_into(_: Any, _left: Any, _right: Any, _target: Any) -> Any:
    """target |= left & ~right."""

    def emit(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        inverse = builder.not_(_load(builder, given[1]))
        difference = builder.and_(_load(builder, given[0]), inverse)
        _store(builder, builder.or_(_load(builder, given[2]), difference), given[2])
        return context.get_dummy_value()

    return types.void(_word, _word, _word), emit


@instruction
def with_bit_into(_: Any, _source: Any, _bit: Any, _target: Any) -> Any:
    """target = source with one of its 512 bits set.

    The whole vector is written at once: a vector cannot be read back soon after a part of it was
    written.
    """

    def emit(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        # A variable shift of 512 bits is no instruction: each word compares its number instead.
        source, place, target = given
        bit = builder.shl(ir.Constant(_WORD, 1), builder.and_(place, ir.Constant(_WORD, 63)))
        here = _spread(builder, builder.lshr(place, ir.Constant(_WORD, 6)))
        chosen = builder.icmp_unsigned("==", ir.Constant(_VECTOR, list(range(8))), here)
        zero = ir.Constant(_VECTOR, [0] * 8)
        added = builder.select(chosen, _spread(builder, bit), zero)
        _store(builder, builder.or_(_load(builder, source), added), target)
        return context.get_dummy_value()

    return types.void(_word, _word, _word), emit


def _spread(builder: Any, value: Any) -> Any:
    """A word in all eight places."""
    one = builder.insert_element(ir.Constant(_VECTOR, None), value, ir.Constant(_HALF, 0))
    everywhere = ir.Constant(ir.VectorType(_HALF, 8), [0] * 8)
    return builder.shuffle_vector(one, one, everywhere)


def _full_adder(builder: Any, one: Any, two: Any, three: Any) -> tuple[Any, Any]:
    half = builder.xor(one, two)
    carry = builder.or_(builder.and_(one, two), builder.and_(half, three))
    return builder.xor(half, three), carry


@instruction
def sum_fifteen(_: Any, _source: Any, _planes: Any) -> Any:
    """Add fifteen consecutive vectors, bit by bit, to the vertical counters at `planes`.

    Plane k has bit k of 512 counters, so that one instruction adds to all of them.
    """

    def emit(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        vectors = [_load(builder, given[0], place) for place in range(15)]
        totals = []
        while vectors:  # 15 -> 7 -> 3 -> 1 carries
            carries = []
            while len(vectors) >= 3:
                total, carry = _full_adder(builder, *vectors[:3])
                vectors = [*vectors[3:], total]
                carries.append(carry)
            totals += vectors
            vectors = carries
        carry = ir.Constant(_VECTOR, [0] * 8)
        # The sum of fifteen has four bits; higher planes only take the carry.
        for place in range(COUNTER_PLANES):
            plane = _load(builder, given[1], place)
            if place < len(totals):
                plane, carry = _full_adder(builder, totals[place], plane, carry)
            else:
                plane, carry = builder.xor(plane, carry), builder.and_(plane, carry)
            _store(builder, plane, given[1], place)
        return context.get_dummy_value()

    return types.void(_word, _word), emit


@instruction
def lowest_bit(_: Any, _bits: Any) -> Any:
    """The place of the lowest set bit of a word that is not zero."""

    def emit(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        shape = ir.FunctionType(_WORD, [_WORD, _BIT])
        count = builder.module.declare_intrinsic("llvm.cttz", [_WORD], shape)
        # 1: undefined for zero, which spares a test and is never asked.
        return builder.call(count, [given[0], ir.Constant(_BIT, 1)])

    return _word(_word), emit


@instruction
def ones_in(_: Any, _bits: Any) -> Any:
    """Count the bits of a word that are set."""

    def emit(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        shape = ir.FunctionType(_WORD, [_WORD])
        count = builder.module.declare_intrinsic("llvm.ctpop", [_WORD], shape)
        return builder.call(count, [given[0]])

    return _word(_word), emit


@instruction
def within(_: Any, _address: Any, _low: Any, _width: Any) -> Any:
    """Find which of 32 short words at an address are `low` to `low + width`, a bit for each."""

    def emit(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        loaded = builder.load(builder.inttoptr(given[0], _SHORTS.as_pointer()))
        loaded.align = 2
        low, width = (
            _all_shorts(builder, builder.trunc(argument, _SHORT)) for argument in given[1:]
        )
        # What is less than `low` wraps round, to more than any width.
        inside = builder.icmp_unsigned("<=", builder.sub(loaded, low), width)
        return builder.zext(builder.bitcast(inside, _HALF), _WORD)

    return _word(_word, _word, _word), emit


def _all_shorts(builder: Any, value: Any) -> Any:
    """A short word in all 32 places."""
    one = builder.insert_element(ir.Constant(_SHORTS, None), value, ir.Constant(_HALF, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_HALF, 32), [0] * 32))


@instruction
def prefetch(_: Any, _address: Any) -> Any:
    """Ask for a line of memory that will be read soon; any address will do."""

    def emit(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        pointer, integer = _BYTE.as_pointer(), ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [pointer, integer, integer, integer])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], shape)
        read, locality, data = (ir.Constant(integer, constant) for constant in (0, 3, 1))
        builder.call(fetch, [builder.inttoptr(given[0], pointer), read, locality, data])
        return context.get_dummy_value()

    return types.void(_word), emit


@instruction
def load_word(_: Any, _address: Any) -> Any:
    """The eight bytes at an address."""

    def emit(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        loaded = builder.load(builder.inttoptr(given[0], _WORD.as_pointer()))
        loaded.align = 1
        return loaded

    return _word(_word), emit


@instruction
def load_half(_: Any, _address: Any) -> Any:
    """The four bytes at an address, as a word."""

    def emit(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        loaded = builder.load(builder.inttoptr(given[0], _HALF.as_pointer()))
        loaded.align = 1
        return builder.zext(loaded, _WORD)

    return _word(_word), emit


@instruction
def load_byte(_: Any, _address: Any) -> Any:
    """The byte at an address, as a word."""

    def emit(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        loaded = builder.load(builder.inttoptr(given[0], _BYTE.as_pointer()))
        return builder.zext(loaded, _WORD)

    return _word(_word), emit


@instruction
def pointer_to(_: Any, _address: Any) -> Any:
    """An address as the pointer that `numba.carray` makes an array of."""

    def emit(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        return builder.inttoptr(given[0], _BYTE.as_pointer())

    return types.voidptr(_word), emit


@inlined
def array_at(addresses: Any, place: Any, dtype: Any) -> Any:
    """One of the arrays of `kernels.addresses_of`, flat."""
    size = addresses[place, 1]
    return carray(pointer_to(np.uint64(addresses[place, 0])), (size,), dtype)


@instruction
def release(_: Any, _function: Any, _structure: Any) -> Any:
    """Call the release function of an Arrow C structure with the structure's address."""

    def emit(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        shape = ir.FunctionType(ir.VoidType(), [_WORD])
        builder.call(builder.inttoptr(given[0], shape.as_pointer()), [given[1]])
        return context.get_dummy_value()

    return types.void(_word, _word), emit
