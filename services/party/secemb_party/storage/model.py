"""One version of a model: item table, dense part and optimiser state, identified by the digest that devices pin."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from secemb_party.errors import WeightsError
from secemb_party.storage.mapped_arrays import in_blocks
from secemb_shared.messages import TaskSpec, canonical
from secemb_shared.messages.canonical import LARGEST_NUMBER, decimal
from secemb_shared.messages.table import model_digest
from secemb_shared.row_words import HALF, SINGLE, published

_DOMAIN = b"secemb/1 optimiser"

_ROWS = 1 << 14  # drawn together

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimiserState:
    """The state of an optimiser after the step that produced `version` of the model."""

    task_id: bytes = field(repr=False)
    version: int
    kind: str  # name of the optimiser
    steps: int  # number of steps so far
    tensors: Mapping[str, Floats] = field(repr=False)

    def __post_init__(self) -> None:
        check_origin(self.task_id, self.version)

    @property
    def digest(self) -> bytes:
        """Return 32 bytes that cover every field; they protect the file and are not part of the protocol."""
        names = sorted(self.tensors)
        head = canonical.encode(
            {
                "kind": self.kind,
                "steps": self.steps,
                "task": self.task_id.hex(),
                "tensors": {name: "x".join(map(str, self.tensors[name].shape)) for name in names},
                "version": self.version,
            }
        )
        hashed = hashlib.sha256(_DOMAIN + len(head).to_bytes(8, "little") + head)
        for name in names:
            for block in in_blocks(self.tensors[name]):
                hashed.update(little_endian(block))
        return hashed.digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelStep:
    """The next version of a model, and the state of the optimiser after it, as blocks that follow each other.

    A block has the next rows of some arrays: of the model's `rows` and `dense`, and of the state's, by their names.
    """

    task_id: bytes = field(repr=False)
    version: int  # of the model that the step produces
    blocks: Iterable[Mapping[str, Floats]] = field(repr=False)
    kind: str = ""  # name of the optimiser; empty on a server that has none
    steps: int = 0  # number of steps, this one included
    state: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # the shapes of the state's arrays
    digest: bytes | None = None  # that the version must have, if it is known


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The shape of a task's model."""

    items: int  # m, rows of the table
    width: int  # w, numbers a row
    dense: int  # numbers outside the table
    row_bits: int = SINGLE  # of a number in a row that devices read

    def __post_init__(self) -> None:
        if self.items < 1 or self.width < 1 or self.dense < 0:
            raise WeightsError(
                "a model must have at least one item, a row width of at least 1 and a non-negative dense size"
            )

    @classmethod
    def of(cls, task: TaskSpec) -> Self:
        """Return the shape that a task specifies."""
        return cls(items=task.items, width=task.row_width, dense=task.dense_size, row_bits=task.row_bits)

    @property
    def numbers(self) -> int:
        """Return the total number of numbers."""
        return self.items * self.width + self.dense


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """One version of a task's model, as devices read it. It takes over the arrays and makes them read-only.

    A store that has checked these very numbers before gives their digest as `checked`: nothing is read then.
    """

    task_id: bytes = field(repr=False)
    version: int
    rows: Floats = field(repr=False)  # (items, width)
    dense: Floats = field(repr=False)  # (dense size,)
    checked: InitVar[bytes | None] = None  # not a field, so that `replace` does not copy it

    def __post_init__(self, checked: bytes | None) -> None:
        check_origin(self.task_id, self.version)
        object.__setattr__(self, "rows", _settled(self.rows, axes=2, finite=checked is not None))
        object.__setattr__(self, "dense", _settled(self.dense, axes=1, finite=checked is not None))
        if checked is not None:
            object.__setattr__(self, "digest", checked)

    @property
    def shape(self) -> Shape:
        """Return the shape of the model, whatever the precision of its rows."""
        items, width = self.rows.shape
        return Shape(items=items, width=width, dense=self.dense.size)

    @cached_property
    def digest(self) -> bytes:
        """Return the 32 bytes that identify this version."""
        items, width = self.rows.shape
        return model_digest(
            self.task_id,
            version=self.version,
            items=items,
            width=width,
            dense=self.dense.size,
            parts=(little_endian(block) for part in (self.rows, self.dense) for block in in_blocks(part)),
        )

    def encode(self) -> bytes:
        """Return the numbers as bytes: rows, then the dense part."""
        return b"".join((little_endian(self.rows), little_endian(self.dense)))

    @classmethod
    def decode(cls, task_id: bytes, version: int, shape: Shape, data: bytes) -> "Model":
        """Reverse `encode`; refuse a wrong length and numbers that are not finite."""
        if len(data) != 4 * shape.numbers:
            raise WeightsError(f"a model of this task must be exactly {4 * shape.numbers} bytes")
        numbers = np.frombuffer(data, dtype="<f4").astype(np.float32)
        cut = shape.items * shape.width
        rows = numbers[:cut].reshape(shape.items, shape.width)
        return cls(task_id=task_id, version=version, rows=rows, dense=numbers[cut:])


def check_task_id(task_id: bytes) -> None:
    """Refuse an invalid task id."""
    if len(task_id) != 32:
        raise WeightsError("task_id must be 32 bytes, the SHA-256 of the task's canonical form")


def check_shape(model: Model, want: Shape) -> None:
    """Refuse a model whose shape is not the task's, or that devices of the task would read otherwise."""
    if replace(model.shape, row_bits=want.row_bits) != want:
        raise WeightsError(
            f"the task requires {want.items} rows of {want.width} numbers and {want.dense} dense numbers"
        )
    check_rows(model.rows, want)


def check_rows(rows: Floats, want: Shape) -> None:
    """Refuse rows that devices of the task would read otherwise."""
    if want.row_bits == HALF and not np.array_equal(published(rows, HALF), rows):
        raise WeightsError(f"the task requires rows of numbers that fit in {want.row_bits} bits")


def check_origin(task_id: bytes, version: int) -> None:
    """Refuse an invalid task id or model version."""
    check_task_id(task_id)
    if not 0 <= version <= LARGEST_NUMBER:
        raise WeightsError("a model version must be an integer less than 2^53")


def little_endian(values: Floats) -> memoryview:
    """Return float32 numbers as bytes in the order that is hashed; on common machines nothing is copied."""
    flat = np.ascontiguousarray(values, dtype="<f4").reshape(-1)
    return flat.view(np.uint8).data


def _settled(values: Floats, *, axes: int, finite: bool) -> Floats:
    """Return the array as a model holds it: float32, contiguous, finite and read-only."""
    if values.dtype != np.float32 or values.ndim != axes:
        raise WeightsError("a model must be float32, with two-dimensional rows and a one-dimensional dense part")
    values = np.ascontiguousarray(values)
    if not finite and not all(np.isfinite(block).all() for block in in_blocks(values)):
        raise WeightsError("a model must not contain NaN or infinity")
    values.flags.writeable = False
    return values


def initial_model(
    task_id: bytes,
    shape: Shape,
    *,
    seed: int,
    scale: float,
    bias_column: bool,
    dense_scale: float = 0.0,
) -> Model:
    """Return version 0: rows from N(0, scale²), zeros in the last column if it is a bias, N(0, dense_scale²) else.

    The numbers are float32 normals of NumPy's PCG64 generator with this seed, first the rows in C order without the
    bias column, then the dense part unless its scale is zero. Both servers draw independently and compare digests.
    NumPy guarantees the bits of PCG64 but not the output of `standard_normal`: if the digests differ, the servers have
    different versions of NumPy, and one must import the other's export. A dense part with hidden layers needs a scale
    or imported weights: layers of zeros do not learn.
    """
    if seed < 0:
        raise WeightsError("the seed of the initial weights must be a non-negative integer")
    normals = np.random.Generator(np.random.PCG64(seed))
    rows = np.zeros((shape.items, shape.width), dtype=np.float32)
    drawn = shape.width - bias_column
    for first in range(0, shape.items, _ROWS):  # the generator goes on where it was: blocks do not change the numbers
        some = rows[first : first + _ROWS, :drawn]
        some[...] = _scaled(normals.standard_normal(some.shape, dtype=np.float32), scale)
    dense = np.zeros(shape.dense, dtype=np.float32)
    if dense_scale:
        dense = _scaled(normals.standard_normal(shape.dense, dtype=np.float32), dense_scale)
    return Model(task_id=task_id, version=0, rows=published(rows, shape.row_bits), dense=dense)


def first_model(task: TaskSpec) -> Model:
    """Return version 0 as the task specifies."""
    scale = decimal(task.initial_scale)
    return initial_model(
        task.task_id,
        Shape.of(task),
        seed=task.seed,
        scale=scale,
        bias_column=True,
        dense_scale=scale,
    )


def check_scale(scale: float) -> None:
    """Refuse an invalid initial scale."""
    if not 0 <= scale <= 1e6:
        raise WeightsError("the scale of the initial weights must be a number from 0 to 1,000,000")


def _scaled(normals: Floats, scale: float) -> Floats:
    check_scale(scale)
    normals *= np.float32(scale)
    return normals
