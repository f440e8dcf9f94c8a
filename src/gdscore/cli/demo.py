"""``gdscore demo``: the main job on real handwritten digits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gdscore._format import percent
from gdscore._paths import check_writable
from gdscore.cli.console import Cell, Debug, Quiet, group_messages, show, show_table, working
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.demo import Digits, Trial
    from gdscore.estimator import AccuracyEstimator
    from gdscore.shifts import ShiftedSet

__all__ = ["demo"]


def demo(
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to put the report and the files.")] = Path(
        "gdscore-demo"
    ),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Estimate a network's accuracy on digits under shifts, and compare with the truth.

    Trains a small network of scikit-learn on real handwritten digits, fits an estimator on corrupted
    copies of reference images, and estimates, without labels, the accuracy on digits of other writers: as
    they are and under shifts of families that the estimator has not seen. Writes all files, to go on with
    `gdscore fit`, `estimate` and `score`. Less than a minute; no network, no GPU.
    """
    from gdscore.demo import TARGETS, Digits
    from gdscore.estimator import AccuracyEstimator

    begin = time.perf_counter()
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GdscoreError(
            f"Expected to make the folder {str(output)!r}, but the system refused: {error.strerror}"
        ) from error
    check_writable(output / "report.html")
    with working("training a network on handwritten digits", quiet):
        digits = Digits()
    with working("fitting the estimator on corrupted copies of reference images", quiet):
        sets = digits.shifted_sets()
        estimator = AccuracyEstimator().fit(digits.reference, shifted_sets=sets, progress=False)
    with working("estimating", quiet):
        trials = [digits.trial(name, estimator) for name in TARGETS]
        _write_files(output, digits, sets, estimator, trials)
    if quiet:
        return
    show(
        f"A network trained on {digits.train_rows} handwritten digits is {percent(digits.reference.accuracy)} accurate "
        f"on {len(digits.reference)} reference images.\nThe estimator was fitted on {len(sets)} shifted sets: copies "
        f"of these images under {estimator.n_families_} families of noise, blur, weather and compression.\n"
        "The targets are digits of other writers, under other shifts. Their labels are used for the truth only."
    )
    _show(trials)
    show(
        f"Report:   {output / 'report.html'}\n"
        f"Go on:    cd {output}\n"
        "          gdscore fit reference.npz --shifted-sets shifted -o m.gdscore\n"
        "          gdscore estimate m.gdscore rotated-30.npz --min-accuracy 0.9\n"
        "          gdscore score rotated-30.npz --reference reference.npz\n"
        f"Took {time.perf_counter() - begin:.0f} s."
    )


def _write_files(
    folder: Path, digits: Digits, sets: list[ShiftedSet], estimator: AccuracyEstimator, trials: list[Trial]
) -> None:
    from gdscore.demo import SEVERITIES
    from gdscore.files import write_json
    from gdscore.io import write_outputs
    from gdscore.report import Target, write_report

    estimator.save(folder / "m.gdscore")
    write_outputs(folder / "reference.npz", digits.reference)
    for i, item in enumerate(sets):
        (folder / "shifted" / item.family).mkdir(parents=True, exist_ok=True)
        write_outputs(folder / "shifted" / item.family / f"{SEVERITIES[i % len(SEVERITIES)]}.npz", item.outputs)
    for trial in trials:
        write_outputs(folder / f"{trial.name}.npz", trial.outputs.only({"logits", "features"}))
    targets = [Target(trial.name, trial.estimate, truth=trial.truth) for trial in trials]
    write_report(folder / "report.html", estimator, targets, model_name="Digits", made_by={"command": "gdscore demo"})
    rows = [{"name": t.name, "truth": t.truth, "direct": t.direct, **t.estimate.to_dict()} for t in trials]
    write_json(folder / "demo.json", rows)


def _show(trials: list[Trial]) -> None:
    from gdscore.demo import METHODS

    level = percent(trials[0].estimate.level, short=True)
    rows: list[list[Cell]] = []
    for trial in trials:
        e = trial.estimate
        rows.append(
            [
                trial.name,
                percent(trial.truth),
                (percent(e.accuracy), "bold"),
                f"{percent(e.low)} to {percent(e.high)}",
                ("held", "green") if trial.held else ("missed", "red"),
                percent(e.assumptions["stable"]),
                *(percent(trial.direct[name]) for name in METHODS),
            ]
        )
    own = _points([abs(t.estimate.accuracy - t.truth) for t in trials])
    stable = _points([abs(t.estimate.assumptions["stable"] - t.truth) for t in trials])
    direct = {name: _points([abs(t.direct[name] - t.truth) for t in trials]) for name in METHODS}
    errors = [f"{value:.1f}" for value in (stable, *direct.values())]
    rows.append(["mean error in points", "", (f"{own:.1f}", "bold"), "", "", *errors])
    show_table(["target", "truth", "estimate", f"{level} interval", "", "stable", *METHODS], rows)
    severe = [(t.name, [w.message for w in t.estimate.warnings if w.severity != "info"][:1]) for t in trials]
    for line in group_messages(severe):
        show(f"warning: {line}", style="yellow")
    best = min(direct, key=lambda name: direct[name])
    worst = max(trials, key=lambda t: abs(t.estimate.accuracy - t.truth))
    close = sum(abs(t.estimate.accuracy - t.truth) <= 0.05 for t in trials)
    show(
        f"{sum(t.held for t in trials)} of {len(trials)} intervals hold the truth. Estimates within 5 points of "
        f"it: {close}.\nThe worst is {worst.name}: {percent(worst.estimate.accuracy)} instead of "
        f"{percent(worst.truth)}.\nstable is the estimate with class_mix='stable': digits are as frequent in the "
        f"targets as in the reference.\n{', '.join(METHODS)} are direct estimates, whose intervals know nothing of "
        f"the shift; the best of them here is {best}. "
        f"{len(trials)} targets of one network are an illustration, not a benchmark."
    )


def _points(errors: list[float]) -> float:
    return 100 * sum(errors) / len(errors)
