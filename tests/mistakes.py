"""Mistakes that people make, and what they are told: run by a test, and written as a page.

Each is one line of Python or one command, run as it stands among the names and files of `scene`. It must end in a
`GdscoreError`, an exit code and one line, or a warning, that contains the cure. `python -m tests.mistakes --write
research/mistakes.md` writes the table.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import gdscore
from tests.data import made


class Mistake(NamedTuple):
    """What somebody did, the code or command, and words of the cure that the message must have."""

    did: str
    code: str
    cure: str


ARRAYS = [
    Mistake("Softmax outputs as logits", "gdscore.Outputs(logits=p)", "probabilities="),
    Mistake("Sigmoid outputs of a binary model as logits", "gdscore.Outputs(logits=p[:, :1])", "probabilities="),
    Mistake("Logits as probabilities", "gdscore.Outputs(probabilities=z)", "logits="),
    Mistake("Log-probabilities as probabilities", "gdscore.Outputs(probabilities=np.log(p))", "logits="),
    Mistake("Percentages as probabilities", "gdscore.Outputs(probabilities=100 * p)", "divide"),
    Mistake("Probabilities of some classes left out", "gdscore.Outputs(probabilities=p[:, :2])", "all classes"),
    Mistake(
        "Independent sigmoids, one a class", "gdscore.Outputs(probabilities=1 / (1 + np.exp(-z)))", "one label each"
    ),
    Mistake("Logits transposed", "gdscore.Outputs(logits=z.T, labels=y)", "transpose"),
    Mistake("Predicted classes instead of logits", "gdscore.Outputs(logits=z.argmax(1))", "a column for each class"),
    Mistake("Integer logits", "gdscore.Outputs(logits=z.astype(int))", "astype(float)"),
    Mistake("Logits that overflow float16", "gdscore.Outputs(logits=(1e5 * z).astype(np.float16))", "float32"),
    Mistake("NaN among the logits", "gdscore.Outputs(logits=np.where(z > 3, np.nan, z))", "in row"),
    Mistake("Logits as Python objects", "gdscore.Outputs(logits=z.astype(object))", "astype"),
    Mistake("A list of lists", "gdscore.Outputs(logits=z.tolist())", "numpy.asarray"),
    Mistake("A DataFrame as an array", "gdscore.Outputs(logits=df)", "from_frame"),
    Mistake(
        "Probabilities as predictions",
        "gdscore.Outputs(probabilities=p[:, :1], predictions=p[:, 0])",
        "classes that were decided",
    ),
    Mistake("A threshold of three classes", "gdscore.Outputs(probabilities=p, threshold=0.1)", "as `predictions`"),
    Mistake("A threshold in percent", "gdscore.Outputs(probabilities=p[:, :1], threshold=10)", "percentage"),
    Mistake("A sparse matrix", "gdscore.Outputs(features=sparse)", "toarray"),
    Mistake("Features of all layers", "gdscore.Outputs(logits=z, features=np.zeros((600, 4, 4)))", "reshape"),
    Mistake("One row, without its axis", "gdscore.Outputs(logits=z[0])", "x[None, :]"),
    Mistake(
        "Probabilities with two decimals",
        "gdscore.Outputs(probabilities=np.array([[0.33, 0.33, 0.33]] * 9))",
        "divided",
    ),
    Mistake("Labels as floats", "gdscore.Outputs(logits=z, labels=y + 0.5)", "number of the class"),
    Mistake("One-hot labels", "gdscore.Outputs(logits=z, labels=np.eye(3)[y])", "argmax"),
    Mistake("Labels that start at 1", "gdscore.Outputs(logits=z, labels=y + 1)", "subtract 1"),
    Mistake("Labels as floats with NaN", "gdscore.Outputs(logits=z, labels=np.where(y > 1, np.nan, y))", "leave out"),
    Mistake("Labels as names", "gdscore.Outputs(logits=z, labels=np.array(['cat', 'dog', 'fox'])[y])", "integers"),
    Mistake("-1 for unknown labels", "gdscore.Outputs(logits=z, labels=np.where(y > 1, -1, y))", "leave out"),
    Mistake("Labels of other rows", "gdscore.Outputs(logits=z, labels=y[:200])", "rows"),
    Mistake(
        "Labels in another class order",
        "gdscore.AccuracyEstimator().fit(gdscore.Outputs(logits=z, labels=(y + 1) % 3)).estimate(val)",
        "another order of classes",
    ),
]

FRAMES = [
    Mistake(
        "A misspelt column", "gdscore.from_frame(df, probabilities='prob_*', label='anmal')", "did you mean 'animal'"
    ),
    Mistake("A pattern that matches nothing", "gdscore.from_frame(df, probabilities='p_*')", "prob_cat"),
    Mistake(
        "A pattern that also matches other columns",
        "gdscore.from_frame(df.assign(prob_max=1.0), probabilities='prob_*')",
        "columns",
    ),
    Mistake(
        "Columns that are there twice",
        "gdscore.from_frame(pd.concat([df, df], axis=1), probabilities='prob_*')",
        "different names",
    ),
    Mistake(
        "A missing value", "gdscore.from_frame(df.assign(prob_cat=np.nan), probabilities='prob_*')", "fill or drop"
    ),
    Mistake("Numbers as text", "gdscore.from_frame(df.astype(str), probabilities='prob_*')", "convert"),
    Mistake("Probabilities rounded to one digit", "gdscore.from_frame(df.round(1), probabilities='prob_*')", "digits"),
    Mistake(
        "The index as a column",
        "gdscore.from_frame(df.set_index('animal'), probabilities='prob_*', label='animal')",
        "reset_index",
    ),
    Mistake(
        "Class names in too small a number",
        "gdscore.from_frame(df, probabilities='prob_*', class_names=['a', 'b'])",
        "3",
    ),
    Mistake("A lazy frame", "gdscore.from_frame(lazy, probabilities='prob_*')", "collect"),
    Mistake("An empty frame", "gdscore.from_frame(df[:0], probabilities='prob_*')", "at least one row"),
]

ESTIMATES = [
    Mistake("A reference without labels", "gdscore.AccuracyEstimator().fit(gdscore.Outputs(logits=z))", "labels"),
    Mistake(
        "A reference of one class",
        "gdscore.AccuracyEstimator().fit(val[val.labels == 0]).estimate(val)",
        "rows of all classes",
    ),
    Mistake("A reference of one row", "gdscore.AccuracyEstimator().fit(val[:1]).estimate(val)", "at least 500"),
    Mistake("A level in percent", "gdscore.AccuracyEstimator(level=90).fit(val)", "90 % is 0.9"),
    Mistake("estimate before fit", "gdscore.AccuracyEstimator().estimate(val)", "fit"),
    Mistake("A target of one row", "est.estimate(val[:1])", "collect at least 200"),
    Mistake("A target of one class predicted", "est.estimate(val[val.predictions == 0])", "collapsed"),
    Mistake(
        "Decisions of the target only",
        "est.estimate(gdscore.Outputs(logits=z, predictions=y))",
        "(--prediction, --threshold)",
    ),
    Mistake("A model of other classes", "est.estimate(gdscore.Outputs(logits=np.c_[z, z]))", "another model"),
    Mistake(
        "Features of another width",
        "est.estimate(gdscore.Outputs(logits=z, features=np.zeros((600, 9))))",
        "another model",
    ),
    Mistake("Outputs without features", "est.estimate(gdscore.Outputs(logits=z))", "features"),
    Mistake(
        "Another model's outputs",
        "est.estimate(gdscore.Outputs(logits=val.logits[:, [1, 2, 0]], features=val.features))",
        "model",
    ),
    Mistake("The reference as the target", "est.estimate(val)", "give other rows"),
    Mistake("An array as the target", "est.estimate(z)", "gdscore.Outputs(logits="),
    Mistake("A path as the target", "est.estimate('new.csv')", "read_outputs"),
    Mistake("Segments of other rows", "est.estimate(val, by=['fr', 'de'])", "segment"),
    Mistake("Another table than the classifier was fitted on", "est.fit_predictor(clf, df, y)", "was fitted with"),
    Mistake("An unfitted classifier", "est.fit_predictor(type(clf)(), x, y)", "fit"),
    Mistake("Classes in place of probabilities", "est.fit_predictor(clf.predict, x, y)", "predict_proba"),
    Mistake("A list of lists as a table", "est.fit_predictor(clf, x.tolist(), y)", "np.array"),
    Mistake("A regressor", "gdscore.from_sklearn(regressor, x)", "classifier"),
    Mistake("Labels where inputs belong", "gdscore.from_sklearn(clf, y, x)", "swap"),
    Mistake(
        "Shifted sets as pairs",
        "gdscore.AccuracyEstimator().fit(val, shifted_sets=[(val, 'fog')])",
        "gdscore.ShiftedSet",
    ),
    Mistake("A shifted set without labels", "gdscore.ShiftedSet(gdscore.Outputs(logits=z), 'fog')", "labels"),
    Mistake("One name for all segments", "est.estimate(val, by='country')", "each of 600 rows"),
    Mistake("Outputs in place of an estimator's file", "gdscore.AccuracyEstimator.load('val.csv')", "estimator"),
    Mistake(
        "A number that is no accuracy as one", "gdscore.direct_estimate('gdscore', val, reference=val)", "confscore"
    ),
    Mistake("More labels than rows", "gdscore.labeling.choose(est, val[:20], budget=50)", "20"),
    Mistake("Arguments of score swapped", "gdscore.score(val, 'atc')", "swap"),
    Mistake("Batch statistics that were not extracted", "gdscore.score('selfscore', val)", "batchnorm='both'"),
    Mistake("A misspelt score", "gdscore.score('nuclaer', val)", "nuclear"),
    Mistake("A score without its array", "gdscore.score('gdscore', gdscore.Outputs(logits=z))", "features"),
    Mistake("A score without a reference", "gdscore.score('atc', val)", "reference="),
    Mistake("An option that the score has not", "gdscore.create_score('gdscore', power=0.3)", "valid are"),
    Mistake("A used-up generator", "gdscore.score_all(used)", "make it again"),
]

TORCH = [
    Mistake(
        "Images as height × width × channels", "next(models.extract(model, [images.permute(0, 2, 3, 1)]))", "N, C, H, W"
    ),
    Mistake(
        "8-bit images where the model had floats",
        "next(models.extract(model, [(255 * images).byte()]))",
        "x.float() / 255",
    ),
    Mistake(
        "A model that ends in a softmax",
        "next(models.extract(torch.nn.Sequential(model, torch.nn.Softmax(1)), [images]))",
        "probabilities",
    ),
    Mistake(
        "A binary model that ends in a sigmoid",
        "next(models.extract(torch.nn.Sequential(model, torch.nn.Linear(3, 1), torch.nn.Sigmoid()), [images], head=False))",
        "probabilities",
    ),
    Mistake("Loader and model swapped", "next(models.extract([images], model))", "swap"),
    Mistake("A loader without labels to calibrate on", "models.estimator(model, [images])", "labels"),
    Mistake(
        "The file of weights in place of the model",
        "next(models.extract(model.state_dict(), [images]))",
        "load_state_dict",
    ),
    Mistake(
        "A table as images",
        "models.estimator(model, [(torch.rand(20, 5), torch.zeros(20, dtype=torch.long))])",
        "give `shifts`",
    ),
    Mistake(
        "A loader in place of outputs",
        "est.estimate(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images)))",
        "models.extract(model, loader)",
    ),
    Mistake(
        "Another normalisation than the loader's",
        "models.estimator(model, [(images, torch.zeros(20).long())], normalize=([120] * 3, [60] * 3))",
        "divide its mean and std by 255",
    ),
    Mistake(
        "A dataset in place of a loader",
        "next(models.extract(model, torch.utils.data.TensorDataset(images)))",
        "DataLoader",
    ),
    Mistake(
        "Tensors of two devices or libraries",
        "gdscore.Outputs(logits=torch.tensor(z), labels=y, features=x)",
        "one library",
    ),
]

COMMANDS = [
    Mistake("Estimator and target swapped", "gdscore estimate new.csv m.gdscore", "swap"),
    Mistake("Reference in place of the estimator", "gdscore estimate val.csv new.csv", "`gdscore fit` wrote"),
    Mistake("Unlabelled data to fit on", "gdscore fit new.csv --probabilities 'prob_*' -o x.gdscore", "--label"),
    Mistake("A misspelt column", "gdscore estimate m.gdscore new.csv --probabilities 'pr_*'", "prob_cat"),
    Mistake("A misspelt option", "gdscore estimate m.gdscore new.csv --min-acuracy 0.8", "--min-accuracy"),
    Mistake("A threshold in percent", "gdscore estimate m.gdscore new.csv --min-accuracy 80", "0.8"),
    Mistake("Windows in other words", "gdscore estimate m.gdscore new.csv --time ts --every daily", "1d"),
    Mistake("Windows without times", "gdscore estimate m.gdscore new.csv --every 1d", "--time"),
    Mistake(
        "A column of times that is not there",
        "gdscore estimate m.gdscore new.csv --probabilities 'prob_*' --time time",
        "ts",
    ),
    Mistake(
        "Times in seconds", "gdscore estimate m.gdscore new.csv --probabilities 'prob_*' --time seconds", "ISO 8601"
    ),
    Mistake(
        "Times with and without a time zone",
        "gdscore estimate m.gdscore zones.csv --probabilities 'prob_*' --time ts",
        "with a zone",
    ),
    Mistake("An empty file", "gdscore estimate m.gdscore empty.csv --probabilities 'prob_*'", "write it again"),
    Mistake(
        "A header without rows", "gdscore estimate m.gdscore header.csv --probabilities 'prob_*'", "at least one row"
    ),
    Mistake("A folder without files", "gdscore estimate m.gdscore nothing", ".parquet"),
    Mistake("A missing file", "gdscore estimate m.gdscore nwe.csv", "new.csv"),
    Mistake("A pickled file", "gdscore estimate m.gdscore new.pkl", "as Parquet"),
    Mistake("A single NumPy array", "gdscore estimate m.gdscore z.npy", "savez"),
    Mistake("A compressed file", "gdscore estimate m.gdscore new.csv.gz", "unpack"),
    Mistake("A packed file", "gdscore estimate m.gdscore new.csv.zip", "unpack"),
    Mistake("A spreadsheet", "gdscore estimate m.gdscore new.xlsx", "as CSV"),
    Mistake("Decimal commas", "gdscore estimate m.gdscore commas.csv --probabilities 'prob_*'", "decimal"),
    Mistake("A PDF report", "gdscore estimate m.gdscore new.csv --probabilities 'prob_*' --html report.pdf", ".html"),
    Mistake("A report over the input", "gdscore estimate m.gdscore new.csv --json new.csv", "another file"),
    Mistake(
        "An estimator without its ending",
        "gdscore fit val.csv --probabilities 'prob_*' --label animal -o val.csv",
        "another file",
    ),
    Mistake(
        "A level in percent",
        "gdscore fit val.csv --probabilities 'prob_*' --label animal -o x.gdscore --level 90",
        "0.9",
    ),
    Mistake("An estimator without targets", "gdscore estimate m.gdscore", "TARGET"),
    Mistake("A table without its columns named", "gdscore fit val.csv -o x.gdscore", "--probabilities"),
    Mistake(
        "Shifted sets that are not there",
        "gdscore fit val.csv --probabilities 'prob_*' --label animal --shifted-sets nothing -o x.gdscore",
        "nothing",
    ),
    Mistake(
        "A column of probabilities as the label",
        "gdscore fit val.csv --probabilities 'prob_*' --label prob_cat -o x.gdscore",
        "list",
    ),
    Mistake("A misspelt segment", "gdscore estimate m.gdscore new.csv --probabilities 'prob_*' --by contry", "country"),
    Mistake(
        "A date the other way round",
        "gdscore estimate m.gdscore new.csv --min-accuracy 0.8 --since 31.01.2026",
        "2026-01-31",
    ),
    Mistake("A webhook without https", "gdscore estimate m.gdscore new.csv --webhook hooks.example.org/x", "https://"),
    Mistake("A folder that is not there", "gdscore estimate m.gdscore new.csv --json results/out.json", "create it"),
    Mistake("An alarm option without a threshold", "gdscore estimate m.gdscore new.csv --last 3", "--min-accuracy"),
    Mistake(
        "Predictions that collapsed, under an alarm",
        "gdscore estimate m.gdscore collapsed.csv --probabilities 'prob_*' --min-accuracy 0.9",
        "collapsed",
    ),
    Mistake(
        "Times as people write them",
        "gdscore estimate m.gdscore dates.csv --probabilities 'prob_*' --time ts",
        "ISO 8601",
    ),
    Mistake("A misspelt command", "gdscore estimte m.gdscore new.csv", "estimate"),
    Mistake("A misspelt score", "gdscore score new.csv --probabilities 'prob_*' --scores atx", "atc"),
    Mistake(
        "A method without its reference",
        "gdscore estimate new.csv --method cot --probabilities 'prob_*'",
        "--reference",
    ),
    Mistake("Another model's classes", "gdscore estimate m.gdscore four.csv --probabilities 'prob_*'", "classes"),
    Mistake(
        "Classes in another order",
        "gdscore estimate m.gdscore new.csv --probabilities prob_fox,prob_dog,prob_cat --class-names cat,dog,fox",
        "fox, dog, cat",
    ),
    Mistake(
        "Columns in another order",
        "gdscore estimate m.gdscore reversed.csv --probabilities 'prob_*'",
        "--class-names",
    ),
    Mistake("Two models' outputs in one folder", "gdscore estimate m.gdscore mixed --probabilities 'prob_*'", "same"),
    Mistake("Files of two kinds in one folder", "gdscore estimate m.gdscore kinds --probabilities 'prob_*'", "pattern"),
    Mistake("A model by its file name", "gdscore extract network.py photos -o out.npz", "network:load"),
    Mistake("A folder without images", "gdscore extract network:load nothing -o out.npz", "images"),
    Mistake("Ray's address without Ray", "gdscore estimate m.gdscore new.csv --address auto", "--engine ray"),
]


# -- names and files --------------------------------------------------------------------------------------------


def scene(folder: Path) -> dict[str, Any]:
    """Write the files that commands name into a folder, and return the names that lines of Python use."""
    import pandas as pd
    import polars as pl
    import scipy.sparse
    from PIL import Image
    from sklearn.linear_model import LinearRegression, LogisticRegression

    val = made(600, classes=3, features=4, noise=0.7, keep=("logits", "features", "labels"))
    z, x, y = val.logits.astype(np.float64), val.features, np.asarray(val.labels)
    p = np.asarray(val.probabilities, dtype=np.float64)
    p /= p.sum(1, keepdims=True)
    df = pd.DataFrame(p, columns=["prob_cat", "prob_dog", "prob_fox"]).assign(animal=np.array(["cat", "dog", "fox"])[y])
    used = iter([val])
    next(used)
    times = [f"2026-01-{1 + i // 200:02}T05:00:00" for i in range(600)]
    log = df.drop(columns="animal").assign(ts=times, country=["fr", "de"] * 300, seconds=range(1767225600, 1767226200))
    df.to_csv(folder / "val.csv", index=False)
    log.to_csv(folder / "new.csv", index=False)
    log.assign(ts=[t + ("+01:00" if i % 2 else "") for i, t in enumerate(times)]).to_csv(
        folder / "zones.csv", index=False
    )
    log.assign(ts="31/01/2026").to_csv(folder / "dates.csv", index=False)
    log[p.argmax(1) == 0].to_csv(folder / "collapsed.csv", index=False)
    log.to_csv(folder / "commas.csv", index=False, sep=";", decimal=",", float_format="%.6f")
    log.to_csv(folder / "new.csv.gz", index=False)
    log.to_csv(folder / "new.csv.zip", index=False)
    log[:0].to_csv(folder / "header.csv", index=False)
    log.assign(prob_owl=0.0).to_csv(folder / "four.csv", index=False)
    log[log.columns[::-1]].to_csv(folder / "reversed.csv", index=False)
    (folder / "empty.csv").touch()
    (folder / "new.pkl").write_bytes(b"\x80\x04\x95\x00\x00\x00\x00.")
    (folder / "new.xlsx").write_bytes(b"PK\x03\x04" + bytes(60))
    np.save(folder / "z.npy", z)
    for name in ("nothing", "mixed", "kinds", "photos"):
        (folder / name).mkdir()
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(folder / "photos" / "a.png")
    for name, frame in (("a", log), ("b", log.assign(prob_owl=0.0))):
        frame.to_csv(folder / "mixed" / f"{name}.csv", index=False)
    log.to_csv(folder / "kinds" / "a.csv", index=False)
    log.to_parquet(folder / "kinds" / "a.parquet")
    gdscore.AccuracyEstimator().fit(gdscore.from_frame(df, probabilities="prob_*", label="animal")).save(
        folder / "m.gdscore"
    )
    return {
        "gdscore": gdscore,
        "np": np,
        "pd": pd,
        "val": val,
        "z": z,
        "x": x,
        "y": y,
        "p": p,
        "df": df,
        "lazy": pl.LazyFrame({"prob_0": [0.5], "prob_1": [0.5]}),
        "sparse": scipy.sparse.csr_matrix(x),
        "clf": LogisticRegression().fit(x, y),
        "regressor": LinearRegression().fit(x, y),
        "est": gdscore.AccuracyEstimator().fit(val),
        "used": used,
    }


def torch_scene() -> dict[str, Any]:
    """Names that lines about PyTorch use."""
    import torch
    from torch import nn

    from gdscore import models

    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    return {"torch": torch, "models": models, "model": nn.Sequential(*layers), "images": torch.rand(20, 3, 8, 8)}


# -- running ----------------------------------------------------------------------------------------------------


def told(mistake: Mistake, names: dict[str, Any]) -> str:
    """What the person is told: the error's message, or the warnings; empty where it is nothing."""
    if mistake.code.startswith("gdscore "):
        return _told_by_command(mistake.code)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # NumPy's own about numbers that are too large
        warnings.simplefilter("always", gdscore.GdscoreWarning)
        try:
            found = eval(mistake.code, dict(names))
        except gdscore.GdscoreError as error:
            return str(error)
    messages = [str(w.message) for w in caught if issubclass(w.category, gdscore.GdscoreWarning)]
    if isinstance(found, gdscore.Estimate):
        messages += [w.message for w in found.warnings if w.code != "outputs_only"]
    return "".join(f"Warning: {message}. " for message in dict.fromkeys(messages)).strip()


def _told_by_command(line: str) -> str:
    from typer.testing import CliRunner

    from gdscore.cli.commands import app

    done = CliRunner().invoke(app, shlex.split(line)[1:], prog_name="gdscore")
    if done.exit_code not in (1, 2, 3, 4):
        return ""
    (line,) = done.stderr.strip().splitlines()
    return f"{line.removeprefix('gdscore: ')} (exit code {done.exit_code})"


@contextlib.contextmanager
def all_names() -> Iterator[dict[str, Any]]:
    """Names and files of all mistakes, in a temporary folder that is the current one meanwhile."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield scene(Path(folder)) | torch_scene()
        finally:
            os.chdir(before)


# -- the page ---------------------------------------------------------------------------------------------------

SECTIONS = {
    "Arrays": ARRAYS,
    "Data frames": FRAMES,
    "Fitting, estimating, scores": ESTIMATES,
    "PyTorch": TORCH,
    "Command line and files": COMMANDS,
}

HEADER = """# Mistakes and what you are told

<!-- Written by `python -m tests.mistakes --write research/mistakes.md`, which runs each line and keeps what it is told. -->

{count} plausible mistakes, each run by a test. None of them ends in an exception of Python's own or passes silently with a wrong number: each is
refused with a `gdscore.GdscoreError`, or on the command line with one line and an exit code (2 where the command cannot be used
like that, 1 where a target cannot), or it is a warning. Errors of other libraries within a message are shown as …

In Python, `z`, `p`, `x` and `y` are logits, probabilities, features and labels of 600 rows and 3 classes, `val` holds them as `Outputs`, `df` as a
pandas data frame, and `est` is an estimator fitted on `val`.
"""

HARMLESS = """
## What is no mistake

- A model in training mode: `models.extract` runs it in evaluation mode and leaves it in training mode.
- Float labels 0.0 and 1.0 of a binary model, and logits of shape (m,), from a loader: they are taken as classes and as two columns.
- Columns in another order than `class_names`, where `prob_*` names them: names decide.
- Parquet under any name: the first bytes decide.
"""


def page(messages: dict[Mistake, str]) -> str:
    """Page with all mistakes and what they are told."""
    lines = [HEADER.format(count=sum(map(len, SECTIONS.values())))]
    for title, mistakes in SECTIONS.items():
        lines += [f"## {title}\n", "| what was done | | message |", "|---|---|---|"]
        lines += [f"| {m.did} | `{_cell(m.code)}` | {_cell(_plain(messages[m]))} |" for m in mistakes]
        lines.append("")
    return "\n".join(lines) + HARMLESS


def _plain(message: str) -> str:
    """Message without the words of other libraries, which change with their versions."""
    message = re.sub(r"(failed with \w+: ).*?(?=\. Images)", r"\1…", message)
    message = re.sub(r"(it answers: ).*", r"\1…", message)
    message = re.sub(r" \((Expected unique|Cannot only).*\)$", " (…)", message)
    return re.sub(r"(`[^`]*`)|([*_<>])", lambda match: match[1] or f"\\{match[2]}", message)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, required=True, metavar="PATH")
    path = parser.parse_args().write.resolve()
    with all_names() as names:
        text = page({mistake: told(mistake, names) for section in SECTIONS.values() for mistake in section})
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
