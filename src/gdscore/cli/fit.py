"""``gdscore fit``: from labelled outputs to an estimator in one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdscore.cli.console import cautions, percent, results
from gdscore.cli.options import Debug, Quiet
from gdscore.cli.targets import listed, one_set
from gdscore.cli.writing import check_writable
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator
    from gdscore.outputs import Outputs

__all__ = ["fit"]


def fit(
    reference: Annotated[
        str, typer.Argument(metavar="REFERENCE", help="Labelled validation outputs: .npz or .parquet.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="Estimator to write: m.gdscore.")],
    head: Annotated[
        Path | None,
        typer.Option(metavar="NPZ", help="Last layer: `weight`, features × classes or the reverse, and `bias`."),
    ] = None,
    shifted_sets: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Labelled outputs under shifts: a sub folder, or NAME- before a file, for each kind."
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="How often intervals are meant to hold the true accuracy.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Of resampling.")] = 0,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Calibrate an estimator on what the model says about labelled data.

    Best are your own shifted, labelled sets (--shifted-sets); with the last layer (--head, or `head_weight`
    and `head_bias` in the reference's .npz) sets are made by disturbing features, with neither by
    resampling the reference alone. For image corruptions see `gdscore.AccuracyEstimator.fit_predictor`.
    """
    from gdscore.estimator import AccuracyEstimator
    from gdscore.shifts import ShiftedSet

    files = [] if shifted_sets is None else _shifted_set_files(shifted_sets)
    check_writable(output, inputs=[*one_set(reference).paths, *files, *([head] if head else [])])
    if head is not None and shifted_sets is not None:
        raise GdscoreError(
            "Expected --head or --shifted-sets, but got both: with shifted sets of your own no head is needed"
        )
    estimator = AccuracyEstimator(level, seed=seed)
    rows = _read_labelled(reference, quiet)
    sets = None
    if shifted_sets is not None:
        sets = [ShiftedSet(_read_labelled(path, quiet), _family(path.relative_to(shifted_sets))) for path in files]
    layer = None if shifted_sets is not None else _read_head(head, reference, rows)
    with cautions() as said:
        estimator.fit(rows, head=layer, shifted_sets=sets, progress=False if quiet else None)
    estimator.save(output)
    if not quiet:
        results().print(
            f"Calibrated on {estimator.judge_.n_kinds} kinds of shifts; the reference of {len(rows):,} rows is "
            f"{percent(estimator.reference_accuracy_)} accurate.\n{_left_out(estimator)}\n"
            f"Written: {output}\nNext:    gdscore estimate {output} NEW.npz",
            markup=False,
        )
        for line in said:
            results().print(f"careful: {line}", style="yellow", markup=False)


def _left_out(estimator: AccuracyEstimator) -> str:
    """How well shifts of kinds that a fit has not seen are predicted: what to expect of the estimates."""
    import numpy as np

    from gdscore.shifts.families import is_resampled, parts_of

    seen = estimator.calibration_
    own = np.array([not is_resampled(family) for family in seen.families])
    # Resampled sets are easy; beside shifted ones they would only make the number look better.
    judged = np.isfinite(seen.predicted) & (own if own.any() else True)
    if not judged.any():
        return "How well unseen kinds of shifts are predicted cannot be told: none could be left out. Add kinds."
    points = 100 * float(np.abs(seen.predicted - seen.accuracy)[judged].mean())
    families = [family for family, known in zip(seen.families, judged, strict=True) if known]
    kinds = len(frozenset[str]().union(*map(parts_of, families)))
    beside = ", all made of outputs alone: real shifts may be harder" if estimator.outputs_only_ else ""
    return (
        f"Families left out are predicted to within {points:.1f} points on average over {len(families):,} sets of "
        f"{kinds} kinds{beside}."
    )


def _read_labelled(given: str | Path, quiet: bool) -> Outputs:
    from gdscore.outputs import Outputs

    rows = Outputs.concatenate(list(one_set(os.fspath(given)).stream(quiet)))
    if "labels" not in rows.has:
        raise GdscoreError(
            f"Expected labels in {os.fspath(given)!r}, but it holds only {', '.join(sorted(rows.arrays))}: add an "
            "array `labels` (.npz) or a column `label` (.parquet)"
        )
    return rows


def _shifted_set_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise GdscoreError(f"Expected a folder of labelled files, but {os.fspath(folder)!r} is none: check the name")
    files = listed(folder)
    if not files:
        raise GdscoreError(
            f"Expected .npz or .parquet files in or below {os.fspath(folder)!r}, but found none: put labelled outputs "
            "there, a sub folder for each kind of shift"
        )
    return files


def _family(path: Path) -> str:
    """Sub folder of a file, or what stands before the first ``__`` or else the first ``-`` of its name.

    Examples
    --------
    >>> _family(Path("fog/3.npz")), _family(Path("fog-3.npz")), _family(Path("motion-blur__3.npz"))
    ('fog', 'fog', 'motion-blur')
    """
    if len(path.parts) > 1:
        return path.parts[0]
    return path.stem.partition("__" if "__" in path.stem else "-")[0] or path.stem


def _read_head(head: Path | None, reference: str, rows: Outputs) -> tuple[Any, Any] | None:
    """Weights and bias from a file of their own or from the reference's, weights turned to features × classes."""
    import numpy as np

    from gdscore import files

    if head is None and Path(reference).suffix.lower() != ".npz":
        return None
    path = Path(reference) if head is None else head
    if not path.is_file() and head is None:
        return None  # a pattern
    prefixes = ("head_",) if head is None else ("head_", "")
    found = files.read_arrays(path, names=[prefix + name for prefix in prefixes for name in ("weight", "bias")])
    values = {name.removeprefix("head_"): np.asarray(value) for name, value in found.items()}
    if head is None and not values:
        return None
    if "weight" not in values:
        raise GdscoreError(
            f"Expected an array `weight` in {os.fspath(path)!r}, but there is none: "
            "save the last layer as numpy.savez(path, weight=W, bias=b)"
        )
    if "features" not in rows.has:
        raise GdscoreError(
            f"Expected `features` in {reference!r} for the last layer to work on, but it holds only "
            f"{', '.join(sorted(rows.arrays))}: leave out --head, or save what enters the last layer too"
        )
    return _upright(values["weight"], values.get("bias"), rows)


def _upright(weight: Any, bias: Any, rows: Outputs) -> tuple[Any, Any]:
    """Weights as features × classes; PyTorch keeps them the other way round."""
    from gdscore.shifts.perturbed import checked_head

    if weight.ndim == 2 and weight.shape == (rows.n_classes, rows.n_features):
        try:
            return checked_head((weight.T, bias), rows)
        except GdscoreError:
            if weight.shape[0] != weight.shape[1]:
                raise
    return checked_head((weight, bias), rows)
