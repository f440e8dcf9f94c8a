"""Writing `Outputs` of any array library as ``.npz`` or Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gdscore._files import PathLike, check_path
from gdscore.errors import GdscoreError
from gdscore.io.blocks import Block, layout
from gdscore.io.npz import write_npz
from gdscore.outputs import Outputs, same_class_names, same_decision


def write_outputs(path: PathLike, outputs: Outputs | Iterable[Outputs]) -> None:
    """Write the outputs of a classifier, of any array library, for `read_outputs`.

    The file appears when all of it is written. Parquet is written as the rows come, in constant memory; ``.npz``
    needs all rows at once.

    Parameters
    ----------
    path : path
        Ends in ``.npz`` or ``.parquet``, which decides the format.
    outputs : Outputs or iterable of Outputs
        All batches must hold the same arrays, of the same widths and types.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from gdscore.io import read_outputs
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "outputs.npz"
    >>> write_outputs(path, (Outputs(logits=np.full((2, 3), i, dtype="float32")) for i in range(4)))
    >>> [len(batch) for batch in read_outputs(path, batch_rows=3)]
    [3, 3, 2]
    """
    suffix = check_path(path).suffix.lower()
    if suffix not in (".npz", ".parquet", ".pq"):
        raise GdscoreError(f"Expected a path that ends in .npz or .parquet, but got {os.fspath(path)!r}")
    if isinstance(outputs, Outputs) or not isinstance(outputs, Iterable):
        outputs = [outputs]
    stream = iter(outputs)
    first = next(stream, None)
    if first is None:
        raise GdscoreError("Expected at least one batch of `Outputs` to write, but the stream is empty")
    beside = getattr(first, "class_names", None), getattr(first, "threshold", None)
    if suffix == ".npz":
        write_npz(path, _blocks(chain([first], stream)), *beside)
    else:
        from gdscore.io.arrow import write_parquet

        write_parquet(path, _blocks(chain([first], stream)), *beside)


def _blocks(stream: Iterable[Outputs]) -> Iterator[Block]:
    expected: dict[str, str] = {}
    names: tuple[str, ...] | None = None
    decision = ""
    for number, out in enumerate(stream):
        if not isinstance(out, Outputs):
            raise GdscoreError(f"Expected `Outputs` or an iterable of them to write, but got {type(out).__name__}")
        names = same_class_names(names, out.class_names)
        decision = decision or out.decision
        same_decision(decision, out.decision)
        block = {name: storable(array) for name, array in out.to_numpy().arrays.items()}
        contents = layout(block, exact=True)
        if expected and contents != expected:
            raise GdscoreError(
                f"Expected every batch to hold {expected} as the first, but batch {number} holds {contents}"
            )
        expected = contents
        yield block


def storable(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Rows in order and in the machine's byte order; bfloat16, which no file has, as float32."""
    kind = np.dtype(np.float32) if array.dtype.name == "bfloat16" else array.dtype.newbyteorder("=")
    return np.ascontiguousarray(array, dtype=kind)
