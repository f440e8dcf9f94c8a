"""``gdscore fit``: from labelled outputs to an estimator in one file."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gdscore._format import percent
from gdscore.cli.console import Debug, Quiet, collect_warnings, show
from gdscore.cli.files import check_writable, list_files, one_set
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator
    from gdscore.outputs import Outputs

__all__ = ["fit"]


def fit(
    reference: Annotated[
        str, typer.Argument(metavar="REFERENCE", help="Labelled outputs on reference data: .npz or .parquet.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="Estimator to write: m.gdscore.")],
    shifted_sets: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Labelled outputs under shifts: a sub folder, or NAME- before a file, for each shift family.",
        ),
    ] = None,
    class_mix: Annotated[
        str, typer.Option(help="`stable` where targets have the reference's mix of classes, otherwise `unknown`.")
    ] = "unknown",
    level: Annotated[float, typer.Option(help="Share of intervals that are meant to hold the true accuracy.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Of resampling.")] = 0,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit an estimator on a model's labelled outputs.

    Best are shifted, labelled sets of your own (--shifted-sets); without them the reference is resampled,
    which says little about real shifts, and every estimate carries a warning. In Python,
    `AccuracyEstimator.fit_predictor` makes shifted sets of images, tables and texts from the model.
    """
    from gdscore.estimator import AccuracyEstimator
    from gdscore.shifts import ShiftedSet

    files = [] if shifted_sets is None else _shifted_set_files(shifted_sets)
    check_writable(output, inputs=[*one_set(reference).paths, *files])
    estimator = AccuracyEstimator(level=level, class_mix=class_mix, seed=seed)
    rows = _read_labelled(reference, quiet)
    sets = None
    if shifted_sets is not None:
        sets = [ShiftedSet(_read_labelled(path, quiet), _family(path.relative_to(shifted_sets))) for path in files]
    with collect_warnings() as warnings:
        estimator.fit(rows, shifted_sets=sets)
    estimator.save(output)
    if not quiet:
        show(
            f"Fitted on {len(rows):,} reference rows, {percent(estimator.reference_accuracy_)} accurate, and "
            f"{len(estimator.shifted_sets_.families):,} shifted sets of {estimator.n_families_} families.\n"
            f"{_left_out(estimator)}\nWritten: {output}\nNext:    gdscore estimate {output} NEW.npz"
        )
        for line in warnings:
            show(f"warning: {line}", style="yellow")


def _left_out(estimator: AccuracyEstimator) -> str:
    if not math.isfinite(estimator.left_out_error_):
        return "How well unseen shift families are estimated is not known: no family could be left out. Add families."
    return f"Error on families left out of the fit: {100 * estimator.left_out_error_:.1f} points on average."


def _read_labelled(given: str | Path, quiet: bool) -> Outputs:
    rows = one_set(given).read(quiet)
    if "labels" not in rows.has:
        raise GdscoreError(
            f"Expected labels in {os.fspath(given)!r}, but it holds only {', '.join(sorted(rows.arrays))}: add an "
            "array `labels` (.npz) or a column `label` (.parquet)"
        )
    return rows


def _shifted_set_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise GdscoreError(f"Expected a folder of labelled files, but {os.fspath(folder)!r} is none: check the name")
    files = list_files(folder)
    if not files:
        raise GdscoreError(
            f"Expected .npz or .parquet files in or below {os.fspath(folder)!r}, but found none: put labelled outputs "
            "there, a sub folder for each shift family"
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
