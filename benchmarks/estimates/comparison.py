"""gdscore beside NannyML and Evidently, each in an environment of its own: what it takes to get a first number, and how good it is.

    python -m benchmarks.estimates.comparison run         # installs and runs all three: results/comparison.json
    python -m benchmarks.estimates.comparison rows        # NannyML on all targets of estimates.py: results/estimates/nannyml.parquet
    python -m benchmarks.estimates.comparison page        # the tables of docs/comparison.md from both, and from the rows of estimates.py

`run` makes an environment for each package below ``out/comparison`` through pip and measures its size and the time it took;
a package that cannot be installed is recorded with the last line of pip. `run gdscore` measures that package alone anew. Then
it trains classifiers of ``benchmarks/estimates/run.py`` (those of `TIMED`, seed 0) and writes their inputs and probabilities as CSV. The
scripts in ``first_number`` are what a new user would write: each reads a labelled reference and windows without labels, and
prints a number for each window. Lines of code are theirs, without docstring, comments and blank lines. Seconds are of the
processor and memory is the largest resident set, both of the whole process. Usage statistics of all packages are switched off.

`rows` runs NannyML's script on all tables and reviews of ``benchmarks/estimates/run.py``, in all class mixes: CBPE with default settings, each
window one chunk, the interval its confidence boundaries (three standard errors of sampling).
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import time
from statistics import mean

from benchmarks import RESULTS, ROOT

__all__ = ["blocks", "main"]

RESULT, ROWS, PAGE = (
    RESULTS / "comparison.json",
    RESULTS / "estimates" / "nannyml.parquet",
    ROOT / "docs" / "comparison.md",
)
SCRIPTS, WORK = ROOT / "benchmarks" / "estimates" / "first_number", ROOT / "out" / "comparison"
QUIET = {"DO_NOT_TRACK": "1", "NML_DISABLE_USAGE_LOGGING": "1", "OMP_NUM_THREADS": "1"}
# What pip is asked for. All scripts read data frames of pandas; Evidently 0.7.23 takes any pandas and cannot be imported with 3.1.
PACKAGES = {
    "gdscore": (str(ROOT), "pandas"),
    "nannyml": ("nannyml", "statsmodels"),
    "evidently": ("evidently", "pandas<3.1"),
}
TOOLS = {
    "with_gdscore": ("gdscore", "gdscore, probabilities"),
    "with_gdscore_model": ("gdscore", "gdscore, classifier at hand"),
    "with_nannyml": ("nannyml", "NannyML (CBPE)"),
    "with_evidently": ("evidently", "Evidently (data drift)"),
}
TIMED = {
    "electricity": "electricity-boosting",
    "INSECTS": "insects-boosting",
    "reviews": "reviews-electronics-tfidf-logistic",
}
# Of the rows of estimates.py and of NannyML: suite, beginning of the source, and what its shifted targets are.
DATA = {
    "electricity": ("tables", "electricity", "later windows"),
    "INSECTS": ("tables", "insects", "later windows"),
    "reviews": ("text", "reviews", "other products"),
}
CASES = {"shifted": (False, "as-is"), "unshifted": (True, "as-is"), "unshifted, other class mixes": (True, "mixed")}
ESTIMATORS = {
    "unknown": "gdscore, classifier at hand",
    "outputs-only": "gdscore, probabilities",
    "nannyml": "NannyML (CBPE)",
}
# A fall of accuracy that a person would want to know of, in points.
FALL = 5


# -- run ------------------------------------------------------------------------------------------------------


def measured(command, environment=(), **options):
    """Output of a command with its wall-clock and processor seconds and largest resident set in MB; it must succeed."""
    # A child begins with the memory of its parent: nothing large is imported in this process.
    environment = os.environ | QUIET | dict(environment)
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, **options) as child:
        printed = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command, printed)
    peak = usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    found = {"wall_seconds": time.perf_counter() - begin, "seconds": usage.ru_utime + usage.ru_stime, "peak_mb": peak}
    return printed, found


def installed(package):
    """An environment with the package: its version, packages, size and seconds, or why there is none."""
    folder = WORK / f"env-{package}"
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    before = json.loads(subprocess.check_output([python, "-m", "pip", "list", "--format=json"]))
    (site,) = folder.glob("lib/python*/site-packages")
    empty = size(site)
    command = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *PACKAGES[package]]
    try:
        _, found = measured(command, stderr=subprocess.STDOUT)
    except subprocess.CalledProcessError as error:
        return {"failed": error.output.strip().splitlines()[-1]}
    now = json.loads(subprocess.check_output([python, "-m", "pip", "list", "--format=json"]))
    (version,) = (item["version"] for item in now if item["name"].lower() == package)
    megabytes = (size(site) - empty) / 1e6
    return found | {"version": version, "packages": len(now) - len(before), "megabytes": megabytes}


def size(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def export(sources):
    """Files of every classifier: inputs, probabilities and labels of the reference, windows without labels, and the truth."""
    import numpy as np
    import pandas as pd

    import gdscore
    from benchmarks.data.tables import fitted
    from benchmarks.estimates.run import VARIANTS, in_variant, mix_of, suites

    def frame(x, outputs=None, y=None, **more):
        columns = {"text": x} if isinstance(x, list) else {f"x_{k}": column for k, column in enumerate(np.asarray(x).T)}
        if outputs is not None:
            columns |= {f"p_{k}": column for k, column in enumerate(outputs.probabilities.T)}
            columns |= {"predicted": outputs.predictions}
        return pd.DataFrame(columns | ({} if y is None else {"label": y}) | more)

    jobs = (job for name in ("tables", "text") for job in suites()[name]() if job.seed == 0)
    for job in (job for job in jobs if not sources or job.source in sources):
        task, folder = job.make["task"], WORK / "data" / job.source
        folder.mkdir(parents=True, exist_ok=True)
        classifier = fitted(task, job.make["model"], job.seed)
        reference = gdscore.from_sklearn(classifier, *task.reference)
        windows, others, truths = [], [], []
        for number, (name, x, y) in enumerate(task.targets):
            target = "unshifted" if number == 0 else name
            outputs = gdscore.from_sklearn(classifier, x, y)
            windows.append(frame(x, outputs, window=f"{target}/as-is"))
            rng = np.random.default_rng([job.seed, *target.encode()])
            for variant in VARIANTS["image"] if number == 0 else VARIANTS[job.kind]:
                rows = in_variant(outputs, variant, mix_of(reference), rng)
                truths.append((f"{target}/{variant}", len(rows), rows.accuracy))
                if variant != "as-is":
                    others.append(frame(np.empty((len(rows), 0)), rows, window=f"{target}/{variant}"))
        files = {
            "train": frame(task.train[0], y=task.train[1]),
            "reference": frame(task.reference[0], reference, task.reference[1]),
        }
        for name, rows in (files | {"target": pd.concat(windows), "variants": pd.concat(windows + others)}).items():
            rows.to_csv(folder / f"{name}.csv", index=False)
        about = {"suite": job.suite, "kind": job.kind, "model": job.make["model"], "truths": truths}
        about |= {"reference_accuracy": reference.accuracy, "reference_rows": len(reference)}
        (folder / "about.json").write_text(json.dumps(about))
        print(job.source, file=sys.stderr, flush=True)


def numbers(script, folder, target="target"):
    """What a script of `SCRIPTS` prints for each window, and its cost."""
    about = json.loads((folder / "about.json").read_text())
    given = [folder / "reference.csv", folder / f"{target}.csv"]
    environment = {"PYTHONPATH": ""}
    if script == "with_gdscore_model":
        given += [folder / "train.csv", about["kind"], about["model"]]
        environment = {"PYTHONPATH": str(ROOT)}
    python = WORK / f"env-{TOOLS[script][0]}" / "bin" / "python"
    with (folder / f"{script}.log").open("w") as log:
        printed, cost = measured([python, SCRIPTS / f"{script}.py", *given], environment, stderr=log)
    lines = (line.split(",") for line in printed.splitlines() if "/" in line.partition(",")[0])
    return {window: [float(value) for value in values] for window, *values in lines}, cost


def lines_of_code(script):
    """Lines that hold code: without docstring, comments and blank lines."""
    text = (SCRIPTS / f"{script}.py").read_text()
    docstring = ast.parse(text).body[0].end_lineno
    return sum(bool(line.partition("#")[0].strip()) for line in text.splitlines()[docstring:])


def run(packages):
    """Measure packages and put them into the stored result."""
    stored = json.loads(RESULT.read_text()) if RESULT.exists() else {"install": {}, "scripts": {}}
    subprocess.run(
        [sys.executable, "-m", "benchmarks.estimates.comparison", "export", *TIMED.values()], check=True, cwd=ROOT
    )
    for package in packages:
        stored["install"][package] = installed(package)
        print(package, stored["install"][package], flush=True)
    for script, (package, _) in TOOLS.items():
        if package not in packages or "failed" in stored["install"][package]:
            continue
        runs = {}
        for data, source in TIMED.items():
            folder = WORK / "data" / source
            found, cost = numbers(script, folder)
            about = json.loads((folder / "about.json").read_text())
            truths = {window: truth for window, _, truth in about["truths"] if window in found}
            windows = {window: [truths[window], *values] for window, values in found.items()}
            runs[data] = cost | {"reference_accuracy": about["reference_accuracy"], "windows": windows}
            print(script, data, cost, flush=True)
        stored["scripts"][script] = {"lines": lines_of_code(script), "runs": runs}
    commit = subprocess.check_output(["git", "log", "-1", "--format=%h", "--", "src"], cwd=ROOT, text=True).strip()
    about = {"python": sys.version.split()[0], "cores": os.cpu_count(), "load": round(os.getloadavg()[1], 1)}
    stored |= {"about": stored.get("about", {}) | {package: about | {"commit": commit} for package in packages}}
    RESULT.write_text(json.dumps(rounded(stored), indent=1) + "\n")


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return round(value, 5) if isinstance(value, float) else value


def nannyml_rows():
    """Write rows of NannyML in the form of ``run.py``, one for each target and variant."""
    from benchmarks.estimates.rows import write_rows

    version = json.loads(RESULT.read_text())["install"]["nannyml"]["version"]
    subprocess.run([sys.executable, "-m", "benchmarks.estimates.comparison", "export"], check=True, cwd=ROOT)
    rows = []
    for file in sorted((WORK / "data").glob("*/about.json")):
        about = json.loads(file.read_text())
        found, _ = numbers("with_nannyml", file.parent, "variants")
        shared = {
            "suite": about["suite"],
            "source": file.parent.name,
            "seed": 0,
            "estimator": "nannyml",
            "device": "cpu",
        }
        shared |= {"class": "", "warnings": "", "commit": f"nannyml {version}"}
        shared |= {
            "reference_accuracy": f"{about['reference_accuracy']:.5f}",
            "reference_rows": about["reference_rows"],
        }
        for window, n_rows, truth in about["truths"]:
            target, variant = window.split("/")
            estimate = dict(zip(("accuracy", "low", "high"), found[window], strict=True))
            row = {key: f"{min(max(value, 0), 1):.5f}" for key, value in estimate.items()}
            row |= {"target": target, "variant": variant, "rows": n_rows, "truth": f"{truth:.5f}"}
            rows.append(shared | row)
        print(file.parent.name, flush=True)
    write_rows(ROWS, rows)


# -- page -----------------------------------------------------------------------------------------------------


def blocks(stored=None, rows=None):
    """Tables of docs/comparison.md."""
    from benchmarks.estimates.rows import read_rows
    from benchmarks.markdown import markdown

    stored = json.loads(RESULT.read_text()) if stored is None else stored
    rows = [row for row in (read_rows() if rows is None else rows) if row["seed"] == 0]
    return {
        "cost": markdown(*cost_table(stored)),
        "accuracy": markdown(*accuracy_table(rows)),
        "better": better(rows),
        "falls": markdown(*falls_table(stored)),
        "versions": versions(stored),
        "fall": str(FALL),
    }


def versions(stored):
    found = (
        f"{name} could not be installed ({made['failed']})" if "failed" in made else f"{name} {made['version']}"
        for name, made in stored["install"].items()
    )
    about = stored["about"]["gdscore"]
    return f"{', '.join(found)}; Python {about['python']}, {about['cores']} cores"


def cost_table(stored):
    """Lines, installation, seconds and memory of every script."""
    heads = ("script", "lines of code", "packages", "installed, MB", "pip, s", *(f"{data}: s, MB" for data in TIMED))
    lines = []
    for script, (package, label) in TOOLS.items():
        made = stored["install"][package]
        if "failed" in made:
            lines.append([label, "", f"not installed: {made['failed']}", *[""] * (len(heads) - 3)])
            continue
        found = stored["scripts"][script]
        cells = [
            label,
            str(found["lines"]),
            str(made["packages"]),
            f"{made['megabytes']:,.0f}",
            f"{made['seconds']:.0f}",
        ]
        runs = (found["runs"][data] for data in TIMED)
        lines.append([*cells, *(f"{run['seconds']:.1f}, {run['peak_mb']:.0f}" for run in runs)])
    return heads, lines


def summaries(rows):
    """Case, number of targets, error, coverage and width of each estimator, and error of "unchanged", in points and percent."""
    for data, (suite, source, shifted) in DATA.items():
        for case, (unshifted, variant) in CASES.items():
            own = [
                row
                for row in rows
                if row["suite"] == suite
                and row["source"].startswith(source)
                and row["variant"].startswith(variant)
                and (row["target"] == "unshifted") == unshifted
            ]
            found = {}
            for name in ESTIMATORS:
                values = [[100 * float(row[key]) for key in NUMBERS] for row in own if row["estimator"] == name]
                error = mean(abs(value - truth) for truth, value, *_ in values)
                coverage = 100 * mean(low <= truth <= high for truth, _, low, high in values)
                found[name] = error, coverage, mean(high - low for *_, low, high in values)
            plain = [row for row in own if row["estimator"] == "unknown"]
            unchanged = mean(100 * abs(float(row["reference_accuracy"]) - float(row["truth"])) for row in plain)
            yield f"{data}, {case if unshifted else shifted}", len(values), found, unchanged


def accuracy_table(rows):
    lines = [
        [
            *(case, str(n)),
            *(f"{error:.1f}, {coverage:.0f} %, {width:.0f}" for error, coverage, width in found.values()),
            f"{unchanged:.1f}",
        ]
        for case, n, found, unchanged in summaries(rows)
    ]
    return ("error, coverage, width", "estimates", *ESTIMATORS.values(), "unchanged since the reference"), lines


def better(rows):
    """Cases in which NannyML is as near as gdscore, and in which its intervals are narrower and still cover nine in ten."""
    found = [(case, own["unknown"], own["nannyml"]) for case, _, own, _ in summaries(rows)]
    near = [case for case, (ours, *_), (theirs, *_) in found if round(theirs, 1) <= round(ours, 1)]
    narrow = [case for case, (*_, ours), (_, coverage, theirs) in found if coverage >= 90 and theirs < ours]
    listed = (
        ", ".join("{} ({})".format(*case.split(", ", 1)) for case in cases) or "no data" for cases in (near, narrow)
    )
    return "NannyML is as near to the truth as gdscore or nearer on {}. Its intervals are narrower and cover 90 % or more on {}.".format(
        *listed
    )


NUMBERS = ("truth", "accuracy", "low", "high")


def falls_table(stored):
    """Windows that lost at least `FALL` points: how many are found; and how many of the others are said to be like them."""
    lines = []
    for script, (package, label) in TOOLS.items():
        if "failed" in stored["install"][package]:
            continue
        cells = [label]
        for run in stored["scripts"][script]["runs"].values():
            least = run["reference_accuracy"] - FALL / 100
            fell = [truth <= least for truth, *_ in run["windows"].values()]
            # Evidently calls a window drifted where half of its columns have.
            said = [
                value >= 0.5 if script == "with_evidently" else value <= least
                for _, value, *_ in run["windows"].values()
            ]
            both = sum(a and b for a, b in zip(fell, said, strict=True))
            cells.append(f"{both} of {sum(fell)}, {sum(said) - both} of {len(fell) - sum(fell)}")
        lines.append(cells)
    return ("found, false", *TIMED), lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "rows", "page", "export"))
    parser.add_argument("names", nargs="*", help="run: packages (default: all); export: classifiers (default: all)")
    options = parser.parse_args()
    if options.command == "run":
        run(options.names or list(PACKAGES))
    elif options.command == "export":
        export(options.names)
    elif options.command == "rows":
        nannyml_rows()
    else:
        from benchmarks.markdown import fill

        fill(PAGE, blocks())


if __name__ == "__main__":
    main()
