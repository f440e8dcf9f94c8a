"""``gdscore demo``: the main job on real handwritten digits."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gdscore.cli.console import cautions, once, percent, results, short_percent, working
from gdscore.cli.options import Debug, Quiet
from gdscore.cli.writing import check_writable
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.cli.digits import Digits, Trial
    from gdscore.estimator import AccuracyEstimator

__all__ = ["demo"]


def demo(
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to put the report and the files.")] = Path(
        "gdscore-demo"
    ),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Estimate a network's accuracy on digits it was not made for, and compare with the truth.

    Trains a small network of scikit-learn on real handwritten digits, calibrates on corrupted copies of
    its validation images, and then looks, without labels, at digits of other writers: as they are and
    under shifts of kinds that calibration has not seen. Seconds to a minute; no network, no GPU.
    """
    from gdscore.cli.digits import SHIFTS, Digits

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
    _say(
        quiet,
        f"Trained on {digits.train_rows} handwritten digits. Accuracy on {len(digits.reference)} validation images: "
        f"{percent(digits.reference.accuracy)}.\nCalibrating on corrupted copies of the validation images ...",
    )
    with working("calibrating", quiet or sys.stderr.isatty()):
        estimator = digits.calibrated(False if quiet else None)
    with working("estimating", quiet):
        trials = [digits.trial(name, estimator) for name in SHIFTS]
        _write_files(output, digits, estimator, trials)
    if not quiet:
        _show(trials, estimator)
    _say(
        quiet,
        f"Report:   {output / 'report.html'}\n"
        f"Go on:    gdscore estimate {output / 'digits.gdscore'} {output / 'negative.npz'}\n"
        f"          gdscore score {output / 'negative.npz'} --reference {output / 'validation.npz'}\n"
        f"Took {time.perf_counter() - begin:.0f} s.",
    )


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        results().print(text, markup=False)


def _write_files(folder: Path, digits: Digits, estimator: AccuracyEstimator, trials: list[Trial]) -> None:
    from gdscore.files import write_json
    from gdscore.io import write_outputs
    from gdscore.report import Target, write_report
    from gdscore.scores import score_all

    estimator.save(folder / "digits.gdscore")
    write_outputs(folder / "validation.npz", digits.reference)
    targets = []
    for trial in trials:
        unlabelled = trial.outputs.only({"logits", "features"})
        write_outputs(folder / f"{_file_name(trial.name)}.npz", unlabelled)
        with cautions():
            scores = score_all(unlabelled, reference=digits.reference)
        targets.append(Target(trial.name, trial.estimate, scores=scores))
    write_report(folder / "report.html", estimator, targets, made_by={"command": "gdscore demo"})
    rows = [{"name": t.name, "truth": t.truth, "rivals": t.rivals, **t.estimate.to_dict()} for t in trials]
    write_json(folder / "demo.json", rows)


def _file_name(name: str) -> str:
    return "-".join(name.replace("°", "").split())


def _show(trials: list[Trial], estimator: AccuracyEstimator) -> None:
    from rich.table import Table

    from gdscore.cli.digits import RIVALS

    console = results()
    table = Table("target", title="accuracy without labels, beside the truth", title_justify="left")
    for title in ("truth", "estimate", f"{short_percent(trials[0].estimate.level)} interval", "", *RIVALS):
        table.add_column(title, justify="right")
    for t in trials:
        e = t.estimate
        table.add_row(
            t.name,
            percent(t.truth),
            f"[bold]{percent(e.accuracy)}[/]",
            f"{percent(e.low)} to {percent(e.high)}",
            "[green]holds[/]" if t.held else "[red]misses[/]",
            *(percent(t.rivals[name]) for name in RIVALS),
        )
    off = {name: _points([abs(t.rivals[name] - t.truth) for t in trials]) for name in RIVALS}
    own = _points([abs(t.estimate.accuracy - t.truth) for t in trials])
    table.add_section()
    table.add_row("mean error, points", "", f"[bold]{own:.1f}[/]", "", "", *(f"{off[name]:.1f}" for name in RIVALS))
    console.print(table)
    best = min(off, key=lambda name: off[name])
    winner = "the estimator" if own < off[best] else best
    for line in once([(t.name, t.estimate.warnings) for t in trials]):
        console.print(f"careful: {line}", style="yellow", markup=False)
    console.print(
        f"{sum(t.held for t in trials)} of {len(trials)} intervals hold the truth. Calibrated on "
        f"{estimator.judge_.n_kinds} kinds of shifts, none of which is among these targets.\n"
        f"{', '.join(RIVALS)}: direct estimates with temperature, which do not say how far they may be off. On average "
        f"over these {len(trials)} targets {winner} is nearer to the truth: the estimator is off by {own:.1f} points, "
        f"{best}, the best of them, by {off[best]:.1f}. Which is best is known only afterwards, and {len(trials)} "
        "targets of one network are an illustration, not a benchmark.",
        markup=False,
    )


def _points(errors: list[float]) -> float:
    return 100 * sum(errors) / len(errors)
