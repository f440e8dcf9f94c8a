"""``gdscore demo``: the main job on real handwritten digits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gdscore._files import check_writable
from gdscore._format import percent
from gdscore.cli.console import Cell, Debug, Quiet, group_messages, show, show_table, working
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.demo import Digits, Trial
    from gdscore.estimator import AccuracyEstimator, Estimate
    from gdscore.labeling import LabelledEstimate
    from gdscore.shifts import ShiftedSet


def demo(
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to put the report and the files.")] = Path(
        "gdscore-demo"
    ),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Estimate a network's accuracy on digits under shifts, and compare with the truth.

    Trains a small network of scikit-learn on real handwritten digits, fits an estimator on corrupted
    copies of reference images, and estimates, without labels, the accuracy on digits of other writers
    under five everyday shifts and one that is beyond the estimator. Then the class
    mix is given where it changed, and 50 labels where estimates are worst. Writes all files, to go on
    with `gdscore estimate` and `gdscore label`. Less than a minute; nothing is downloaded.
    """
    from gdscore.demo import TARGETS, Digits, with_labels
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
        est = AccuracyEstimator().fit(digits.reference, shifted_sets=sets, progress=False)
    with working("estimating", quiet):
        trials = [digits.trial(name, est) for name in TARGETS]
        _write_files(output, digits, sets, est, trials)
        worst = sorted(trials, key=lambda trial: -abs(trial.estimate.accuracy - trial.truth))[:2]
        labelled = [(trial, with_labels(trial, est, output / f"{trial.name}-labels.csv")) for trial in worst]
    if quiet:
        return
    show(
        f"A network trained on {digits.train_rows} handwritten digits is {percent(digits.reference.accuracy)} accurate "
        f"on {len(digits.reference)} reference images.\nThe estimator was fitted once, on {len(sets)} shifted sets: "
        f"copies of these images under {est.n_families_} families of noise, blur, weather and compression."
    )
    _show_estimates(trials)
    _show_known_mix(next(trial for trial in trials if trial.name == "other-mix"))
    _show_labels(labelled)
    name = labelled[-1][0].name
    show(
        f"\nReport:   {output / 'report.html'}\n"
        f"Go on:    cd {output}\n"
        f"          gdscore estimate m.gdscore {name}.npz --min-accuracy 0.9\n"
        f"          gdscore label choose m.gdscore {name}.npz --budget 50 -o todo.csv\n"
        f"          gdscore label estimate m.gdscore {name}.npz {name}-labels.csv    # todo.csv, filled in\n"
        f"Took {time.perf_counter() - begin:.0f} s."
    )


def _write_files(
    folder: Path, digits: Digits, sets: list[ShiftedSet], est: AccuracyEstimator, trials: list[Trial]
) -> None:
    from gdscore._files import write_json
    from gdscore.demo import SEVERITIES
    from gdscore.io import write_outputs
    from gdscore.report import Target, write_report

    est.save(folder / "m.gdscore")
    write_outputs(folder / "reference.npz", digits.reference)
    for i, item in enumerate(sets):
        (folder / "shifted" / item.family).mkdir(parents=True, exist_ok=True)
        write_outputs(folder / "shifted" / item.family / f"{SEVERITIES[i % len(SEVERITIES)]}.npz", item.outputs)
    for trial in trials:
        write_outputs(folder / f"{trial.name}.npz", trial.outputs.only({"logits", "features"}))
    targets = [Target(trial.name, trial.estimate, truth=trial.truth) for trial in trials]
    write_report(folder / "report.html", est, targets, model_name="Digits", made_by={"command": "gdscore demo"})
    rows = [{"name": t.name, "truth": t.truth, "direct": t.direct, **t.estimate.to_dict()} for t in trials]
    write_json(folder / "demo.json", rows)


def _show_estimates(trials: list[Trial]) -> None:
    from gdscore.demo import BEYOND, METHODS, TARGETS

    level = percent(trials[0].estimate.level, short=True)
    rows: list[list[Cell]] = []
    for trial in trials:
        e = trial.estimate
        direct = [percent(trial.direct[name]) for name in METHODS]
        estimate: list[Cell] = [
            (percent(e.accuracy), "bold"),
            f"{percent(e.low)} to {percent(e.high)}",
            _held(e, trial),
        ]
        rows.append([trial.name, percent(trial.truth), *estimate, *direct])
    for what, chosen in (
        ("mean error in points", trials),
        (f"without {BEYOND}", [t for t in trials if t.name != BEYOND]),
    ):
        errors = [_error([t.direct[name] for t in chosen], chosen) for name in METHODS]
        rows.append([what, "", (_error([t.estimate.accuracy for t in chosen], chosen), "bold"), "", "", *errors])
    show_table(["target", "truth", "estimate", f"{level} interval", "", *METHODS], rows)
    for name, (what, _) in TARGETS.items():
        show(f"{name}: {what}", style="dim")
    severe = [(t.name, [w.message for w in t.estimate.warnings if w.severity != "info"][:1]) for t in trials]
    for line in group_messages(severe):
        show(f"warning: {line}", style="yellow")
    held = sum(t.held for t in trials)
    show(
        f"Labels were used for the truth only: {held} of {len(trials)} intervals hold it. {' and '.join(METHODS)} are "
        f"other methods on the same outputs. {len(trials)} targets of one network are an illustration, not a benchmark."
    )


def _show_known_mix(trial: Trial) -> None:
    e = trial.known_mix
    show(
        f"\nWhere the class mix is known, give it: {trial.name} with class_mix= is {percent(e.accuracy)}, "
        f"{percent(e.low)} to {percent(e.high)} ({_held(e, trial)[0]}); without it {percent(trial.estimate.accuracy)}, "
        f"truth {percent(trial.truth)}."
    )


def _show_labels(labelled: list[tuple[Trial, LabelledEstimate]]) -> None:
    show(f"\nWhere a decision depends on it, label {labelled[0][1].labels} rows. On the two worst targets:")
    for trial, e in labelled:
        show(
            f"  {trial.name}: {percent(e.accuracy)}, {percent(e.low)} to {percent(e.high)} ({_held(e, trial)[0]}); "
            f"truth {percent(trial.truth)}."
        )


def _held(e: Estimate, trial: Trial) -> tuple[str, str]:
    return ("held", "green") if e.low <= trial.truth <= e.high else ("missed", "red")


def _error(accuracies: list[float], trials: list[Trial]) -> str:
    errors = [abs(accuracy - trial.truth) for accuracy, trial in zip(accuracies, trials, strict=True)]
    return f"{100 * sum(errors) / len(errors):.1f}"
