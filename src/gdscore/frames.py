"""`Outputs` from data frames and back: pandas, polars and Arrow tables, through narwhals."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from gdscore._checks import MATRICES, OUTPUT_ARRAYS
from gdscore.errors import GdscoreError, nearest
from gdscore.io.columns import Columns, Selection, check_types, choose_columns, make_batch
from gdscore.outputs import Outputs

__all__ = ["frame_of", "from_frame", "to_frame"]

_LIBRARIES = ("pandas", "polars", "pyarrow")
_WHERE = "the data frame"


def from_frame(
    df: Any,
    *,
    logits: Selection | None = None,
    probabilities: Selection | None = None,
    label: str | None = None,
    features: Selection | None = None,
    inputs: Selection | None = None,
    prediction: str | None = None,
    threshold: float | None = None,
    id: str | None = None,
    class_names: Sequence[str] | None = None,
) -> Outputs:
    """Take the outputs of a classifier from columns of a data frame.

    Parameters
    ----------
    df : DataFrame of pandas or polars, or Table of Arrow
        A row for each input of the classifier. Missing values are refused in the columns that are used.
    logits, probabilities, features, inputs : str or list of str, optional
        A pattern with one ``*`` such as ``"prob_*"``, a list of columns, or one column that holds a list per row. What
        the star stands for names the classes, and puts the columns in order where it is numbers. One column of numbers
        as ``probabilities`` is the probability of class 1 of a binary model. Where none of them is given, columns
        named ``logits``, ``probabilities`` and so on are used, as in files.
    label : str, optional
        Column of true classes: names of classes, booleans, or integers. Integers count the columns of the classes from
        0, unless the names of the classes are integers: then they are names.
    prediction : str, optional
        Column of the classes that the model decided, as ``label``, where they are not those of largest probability.
    threshold : float, optional
        Of a binary model that decides for class 1 where its probability is at least this; instead of ``prediction``.
    id : str, optional
        Column that names the rows: integers or strings.
    class_names : list of str, optional
        Names of the classes in the order of the columns.

    Returns
    -------
    Outputs
        NumPy arrays.

    Examples
    --------
    >>> import pandas as pd
    >>> df = pd.DataFrame({"prob_cat": [0.9, 0.2], "prob_dog": [0.1, 0.8], "animal": ["cat", "cat"]})
    >>> out = from_frame(df, probabilities="prob_*", label="animal")
    >>> out.predictions.tolist(), out.labels.tolist(), out.accuracy
    ([0, 1], [0, 0], 0.5)
    """
    columns = Columns(
        logits=logits,
        probabilities=probabilities,
        features=features,
        inputs=inputs,
        prediction=prediction,
        threshold=threshold,
        label=label,
        id=id,
        class_names=class_names,
    )
    frame, names = _frame(df)
    for name in (prediction, label, id):
        if (
            name is not None
            and name not in map(str, names)
            and name in getattr(getattr(df, "index", None), "names", ())
        ):
            raise GdscoreError(
                f"Expected a column {name!r} in the data frame, but it is the index: call reset_index() on it first"
            )
    chosen = choose_columns(columns, [str(name) for name in names], _WHERE)
    if not len(frame):
        raise GdscoreError("Expected at least one row in the data frame, but it is empty")
    from gdscore.io.arrow import column_type, columns_of_batch

    as_named = {str(name): name for name in names}
    arrays = {name: _as_arrow(name, frame.get_column(as_named[name])) for name in chosen.names}
    check_types(chosen, {name: column_type(array.type) for name, array in arrays.items()}, _WHERE)
    return make_batch(chosen, columns_of_batch(arrays, _WHERE), _WHERE).outputs


def to_frame(outputs: Outputs, backend: str = "pandas") -> Any:
    """Put outputs into a data frame with a column for each class and feature.

    Columns are named ``logit_*`` or ``prob_*``, ``feature_*``, ``input_*``, ``peer_logit_*``, ``batch_logit_*``,
    ``rotation_logit_*``, ``prediction``, ``label`` and ``id``; stars are the names of the classes where the outputs
    have them, and numbers elsewhere. `from_frame` reads logits or probabilities, features, inputs, predictions, labels
    and ids back; where class names are numbers, give them as ``class_names``, as columns are ordered by their numbers.
    A frame does not hold a threshold: give it again, in place of the predictions that it made.

    Parameters
    ----------
    outputs : Outputs
        Of any array library.
    backend : {"pandas", "polars", "pyarrow"}
        Library of the data frame, which must be installed.

    Examples
    --------
    >>> frame = to_frame(Outputs(probabilities=np.array([[0.9, 0.1], [0.2, 0.8]]), labels=np.array([0, 1])))
    >>> list(frame.columns)
    ['prob_0', 'prob_1', 'label']
    """
    if not isinstance(outputs, Outputs):
        raise GdscoreError(f"Expected `Outputs`, but got {type(outputs).__name__}")
    names = outputs.class_names
    columns: dict[str, Any] = {}
    for name, array in outputs.to_numpy().arrays.items():
        column = OUTPUT_ARRAYS[name].column
        if name in MATRICES:
            flat = np.ascontiguousarray(array.reshape(len(array), -1))
            stars = names if names is not None and name in ("logits", "probabilities") else range(flat.shape[1])
            columns |= {f"{column}{star}": flat[:, at] for at, star in enumerate(stars)}
        else:
            columns[column] = np.asarray(names)[array] if name != "ids" and names is not None else array
    # Lists instead of arrays of strings, whose type Arrow and polars do not know.
    return frame_of({name: a.tolist() if a.dtype.kind == "U" else a for name, a in columns.items()}, backend)


def frame_of(columns: dict[str, Any], backend: str | None, types: dict[str, Any] | None = None) -> Any:
    """Data frame of columns; without ``backend`` of the first of pandas, polars and pyarrow that is installed."""
    import narwhals as nw

    if backend is None:
        backend = next((name for name in _LIBRARIES if find_spec(name) is not None), "pandas")
    if backend not in _LIBRARIES:
        raise GdscoreError(f"Unknown `backend` {backend!r}: {nearest(str(backend), _LIBRARIES)}")
    try:
        return nw.from_dict(columns, types, backend=backend).to_native()  # type: ignore[arg-type]
    except ImportError as error:
        raise GdscoreError(
            f"Expected {backend} to be installed for this data frame, but it is not: pip install {backend}"
        ) from error


# -- columns of any library -----------------------------------------------------------------------------------


def _frame(df: Any) -> tuple[Any, list[Any]]:
    """Data frame as narwhals has it, and the names of its columns."""
    import narwhals as nw

    try:
        frame = nw.from_native(df, eager_only=True)
        return frame, list(frame.columns)
    # Names that are there twice, and types that a library adds, raise what that library likes.
    except Exception as error:
        cure = ": call .collect() on it first" if hasattr(df, "collect") else ""
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise GdscoreError(
            "Expected a DataFrame of pandas or polars or a Table of Arrow with columns of different names, but got "
            f"{type(df).__module__.split('.')[0]}.{type(df).__name__}{cure} ({reason})"
        ) from error


def _as_arrow(name: str, series: Any) -> Any:
    """Column as an array of Arrow."""
    import pyarrow as pa

    try:
        return series.to_arrow()
    except (pa.ArrowException, TypeError, ValueError):
        # Arrow takes no arrays of two dimensions in a cell, and no numbers in the byte order of other machines.
        values = [value.tolist() if isinstance(value, np.ndarray) else value for value in series.to_list()]
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise GdscoreError(
            f"Expected values of one type in column {name!r} of {_WHERE}, but they differ ({reason}): convert the "
            "column with astype"
        ) from error


def is_missing(value: Any) -> bool:
    """Whether it is None, NaN of any precision, or what pandas has for these."""
    missing = isinstance(value, (float, np.floating)) and value != value
    return value is None or bool(missing) or type(value).__name__ in ("NAType", "NaTType")
