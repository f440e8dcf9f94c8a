"""``gdscore fit``: from labelled outputs to an estimator in one file."""

from __future__ import annotations

import math
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gdscore._files import check_path, check_writable
from gdscore._format import percent
from gdscore.cli.console import Debug, Quiet, collect_warnings, show
from gdscore.cli.files import column_arguments, column_options, one_set
from gdscore.errors import GdscoreError
from gdscore.io import Columns, find_files

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator


@column_options()
def fit(
    reference: Annotated[
        str,
        typer.Argument(metavar="REFERENCE", help="Labelled outputs on reference data: .npz, .parquet, .arrow or .csv."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="Estimator to write: m.gdscore.")],
    shifted_sets: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Labelled outputs under shifts: a sub folder, or NAME- before a file, for each shift family.",
        ),
    ] = None,
    *,
    columns: Columns,
    class_mix: Annotated[
        str,
        typer.Option(
            help="`stable` where targets have the reference's mix of classes, `estimated` where only the mix moves, "
            "otherwise `unknown`."
        ),
    ] = "unknown",
    level: Annotated[float, typer.Option(help="Share of intervals that are meant to hold the true accuracy.")] = 0.9,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit an estimator on a model's labelled outputs.

    Shifted, labelled sets (--shifted-sets) make estimates under shift more accurate. Without them confidence is
    calibrated on the reference alone, and every estimate has a note that says so. In Python, `models.estimator` and
    `AccuracyEstimator.fit_predictor` make shifted sets of images, tables and texts from the model.

    Cost: this command runs no model. Shifted sets made in Python take one forward pass over the rows each, sets ×
    rows in all: by default 116 sets of images, 36 to 54 of tables, 36 of texts. Fewer shifts (shifts=) or fewer rows
    cost less; 1,000 to 2,000 rows are enough.
    """
    from gdscore.estimator import AccuracyEstimator
    from gdscore.shifts import ShiftedSet

    if shifted_sets is not None and not check_path(shifted_sets).is_dir():
        raise GdscoreError(
            f"Expected a folder of labelled files, but {os.fspath(shifted_sets)!r} is none: check the name"
        )
    files = [] if shifted_sets is None else find_files(shifted_sets)
    check_writable(output, inputs=[*one_set(reference).paths, *files])
    estimator = AccuracyEstimator(level=level, class_mix=class_mix)
    with collect_warnings() as warnings:
        rows = one_set(reference, columns).read_labelled(quiet)
        sets = None
        if shifted_sets is not None:
            sets = [
                ShiftedSet(one_set(path, columns).read_labelled(quiet), _family(path.relative_to(shifted_sets)))
                for path in files
            ]
        estimator.fit(rows, shifted_sets=sets, progress=False if quiet else None)
    estimator.save(output)
    if not quiet:
        target = f"NEW{find_files(reference)[0].suffix}"
        following = shlex.join(["gdscore", "estimate", os.fspath(output), target, *column_arguments(columns)])
        show(
            f"Fitted on {len(rows):,} reference rows, {percent(estimator.reference_accuracy_)} accurate, and "
            f"{_sets(estimator)}\nWritten: {output}\nNext:    {following}"
        )
        for line in dict.fromkeys(warnings):
            show(f"warning: {line}", style="yellow")


def _sets(estimator: AccuracyEstimator) -> str:
    sets, families = len(estimator.shifted_sets_.families), estimator.n_families_
    several = f"{sets:,} shifted set{'s' * (sets > 1)} of {families} famil{'ies' if families > 1 else 'y'}"
    error = f"Error on families left out of the fit: {100 * estimator.left_out_error_:.1f} points on average."
    if not math.isfinite(estimator.left_out_error_):
        error = "How well unseen shift families are estimated is not known: no family could be left out. Add families."
    return f"{several if sets else 'no shifted sets'}.\n{error}"


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
