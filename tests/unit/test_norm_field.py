"""The fields of the norm proof: elements from a stream, their bytes, and polynomials through given values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit import reference

from secemb_shared.errors import EncodingError, LengthError
from secemb_shared.norm.field import FIELDS, Field
from secemb_shared.norm.proof import _beyond
from secemb_shared.norm.shape import ROWS

KEY = bytes(range(16))
EACH_FIELD = pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)


def groups(size: int, count: int) -> list[int]:
    """Return the numbers below 2^(8 size − 1) that a stream offers, one block at a time."""
    blocks = b"".join(reference.aes(KEY, at).to_bytes(16, "little") for at in range(count * size // 16))
    numbers = [int.from_bytes(blocks[at : at + size], "little") for at in range(0, len(blocks), size)]
    return [number % 2 ** (8 * size - 1) for number in numbers]


@EACH_FIELD
def test_the_primes_are_prime_and_fill_their_bytes(field: Field) -> None:
    assert field.prime.bit_length() == 8 * field.size - 1
    assert all(pow(base, field.prime - 1, field.prime) == 1 for base in (2, 3, 5, 7, 11))


@EACH_FIELD
def test_elements_come_from_the_stream_in_order(field: Field) -> None:
    for count in (0, 1, 2, 33):
        assert field.stream(KEY, count) == groups(field.size, count)


@pytest.mark.parametrize("size", [16, 32])
def test_numbers_that_are_no_elements_are_skipped(size: int) -> None:
    """With a prime far below the power of two, so that it happens."""
    field, above = Field(2 ** (8 * size - 2) // 3, size), 2 ** (8 * size - 4)
    offered = groups(size, 600)
    for lowest in (-1, above):
        wanted = [number for number in offered if lowest < number < field.prime]
        assert len(offered) > 2 * len(wanted) > 40
        assert field.stream(KEY, 20, above=lowest) == wanted[:20]


@EACH_FIELD
@given(data=st.data())
def test_elements_survive_their_bytes(field: Field, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, field.prime - 1), max_size=5))
    encoded = field.encode(values)
    assert field.decode(encoded, len(values)) == values
    with pytest.raises(LengthError):
        field.decode(encoded + b"\0", len(values))
    with pytest.raises(LengthError):
        field.decode(encoded, len(values) + 1)
    with pytest.raises(EncodingError):
        field.decode(encoded + field.prime.to_bytes(field.size, "little"), len(values) + 1)


@EACH_FIELD
@given(data=st.data())
def test_weights_give_a_polynomials_value_at_the_point(field: Field, data: st.DataObject) -> None:
    degree = data.draw(st.integers(0, 8))
    point = data.draw(st.integers(degree + 1, field.prime - 1))
    factors = data.draw(st.lists(st.integers(0, field.prime - 1), min_size=degree + 1, max_size=degree + 1))

    def value(at: int) -> int:
        return sum(factor * pow(at, power, field.prime) for power, factor in enumerate(factors)) % field.prime

    weights = field.lagrange(degree, point)
    assert field.dot(weights, [value(node) for node in range(degree + 1)]) == value(point)


def test_whole_weights_continue_a_polynomial() -> None:
    values = [3 * at**ROWS - 5 * at**3 + 11 for at in range(2 * ROWS + 1)]
    continued = [sum(w * v for w, v in zip(weights, values[: ROWS + 1], strict=True)) for weights in _beyond()]
    assert continued == values[ROWS + 1 :]


def test_powers_begin_with_the_first() -> None:
    assert FIELDS[32].powers(3, 4) == [3, 9, 27, 81]
