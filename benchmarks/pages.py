"""Measured numbers of README and docs: written from ``benchmarks/results``, or checked.

    python benchmarks/pages.py              # write what stands between markers
    python benchmarks/pages.py --check      # name what is stale, and exit with 1

A block of a page stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``. `PAGES` names for each page the function
that gives its blocks, name → text. Sentences of docs/results.md with numbers in them come from ``claims.py``: they are
only checked, as a person has to rewrite what no longer holds.
"""

import argparse
import contextlib
import io
import json
import re
from dataclasses import fields
from functools import cache

import gdscore
from claims import claims
from estimates_summary import blocks as estimate_blocks
from gdscore.demo import Digits
from gdscore.estimator.settings import SETTINGS
from tables import RESULTS, ROOT, ablation_rows, main_rows
from tables_page import filled, markdown, page_tables

__all__ = ["PAGES", "main", "stale"]

# Blocks whose numbers come from a small model that is trained when they are made.
TRAINED_HERE = {"example", "printed"}
# Settings that only decide whether there is a warning.
THRESHOLDS = {"few_rows", "small_reference", "easy_reference", "collapse", "far_mix", "beyond"}


def results_blocks():
    """Tables of docs/results.md."""
    cells, ablations = RESULTS / "cells", RESULTS / "ablations"
    return page_tables(list(main_rows(cells, ablations)), list(ablation_rows(ablations)), cells, ablations)


def readme_blocks():
    """An estimate of the demo, and cost, in README."""
    gpu = json.loads((RESULTS / "speed_gpu.json").read_text())["ratio_to_forward"]
    big = json.loads((RESULTS / "bigfile.json").read_text())
    fit = json.loads((RESULTS / "fit_speed_cuda.json").read_text())["fits"][0]
    digits = Digits()
    estimator = gdscore.AccuracyEstimator().fit(digits.reference, shifted_sets=digits.shifted_sets(), progress=False)
    trial = digits.trial("rotated-15", estimator)
    e = trial.estimate
    return {
        "example": f"about {e.accuracy:.0%} accurate, between {e.low:.0%} and {e.high:.0%}; it was "
        f"{e.reference_accuracy:.0%} on the reference data",
        "estimates": estimate_blocks()["estimates"],
        "fit": f"{fit['fit_seconds']:.0f} s, {fit['ratio']:.1f} times the bare forward passes",
        "gpu_gdscore": f"{100 * (gpu['gdscore'] - 1):.1f} %",
        "bigfile": f"{big['seconds']:.0f} s and {big['peak_mb']:.0f} MB",
    }


def index_blocks():
    """What the example of the landing page prints."""
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE | re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    return {"printed": f"```text\n{printed.getvalue().strip()}\n```"}


def estimator_blocks():
    """Constants of the estimator, with the descriptions of their docstring."""
    described = re.findall(r"^    ([\w, ]+) : \w+\n((?:        .+\n)+)", type(SETTINGS).__doc__, re.MULTILINE)
    meaning = {name: " ".join(text.split()) for names, text in described for name in names.split(", ")}
    lines = [
        [
            f"`{field.name}`",
            str(getattr(SETTINGS, field.name)),
            meaning[field.name],
            "it changes warnings only"
            if field.name in THRESHOLDS
            else "development exports, by scripts that were not kept, or set by hand",
        ]
        for field in fields(SETTINGS)
    ]
    return {
        "settings": markdown(("constant", "value", "what it does", "chosen by"), lines),
        "results": estimate_blocks()["results"],
    }


def scores_table(page, block, computed):
    """A table of all scores whose first cells are computed from what a score needs; the others are written by hand."""
    text = (ROOT / page).read_text().partition(f"<!-- {block}:begin -->")[2].partition(f"<!-- {block}:end -->")[0]
    heads, _, *rows = ([cell.strip() for cell in line.strip("| ").split("|")] for line in text.strip().splitlines())
    written = {name.strip("`"): cells for name, *cells in rows}
    if sorted(written) != sorted(gdscore.list_scores()):
        odd = set(written) ^ set(gdscore.list_scores())
        raise SystemExit(f"{page}: expected a row for every score, but these differ: {', '.join(sorted(odd))}")
    lines = []
    for name, cells in written.items():
        own = computed(gdscore.create_score(name).needs)
        lines.append([f"`{name}`", *own, *cells[len(own) :]])
    return {block: markdown(heads, [row + [""] * (len(heads) - len(row)) for row in lines])}


def choosing_blocks():
    """What each score needs, in docs/choosing.md."""
    found = scores_table("docs/choosing.md", "needs", lambda needs: [", ".join(sorted(needs))])
    return found | {"direct": estimate_blocks()["estimates"]}


def properties_blocks():
    """The paper's four properties, in docs/properties.md."""

    def properties(needs):
        trained = bool(needs & {"network", "peer_logits", "rotation_logits"})
        alone = not trained and "reference" not in needs
        found = ("network" in needs, not trained, alone, not needs & {"rotation_logits", "batch_logits"})
        return ["yes" if holds else "no" for holds in found]

    return scores_table("docs/properties.md", "properties", properties)


PAGES = {
    "README.md": readme_blocks,
    "docs/choosing.md": choosing_blocks,
    "docs/estimator.md": estimator_blocks,
    "docs/index.md": index_blocks,
    "docs/properties.md": properties_blocks,
    "docs/results.md": results_blocks,
}


@cache
def measured():
    """Blocks of every page, and the sentences of docs/results.md."""
    return {page: blocks() for page, blocks in PAGES.items()}, [sentence for _, sentence in claims()]


def stale(root=ROOT):
    """What does not agree with the results: page, and name of the block or sentence as it should be."""
    blocks, sentences = measured()
    found = []
    for page, own in blocks.items():
        text = (root / page).read_text()
        found += [(page, name) for name, block in own.items() if not same(text, filled(text, {name: block}), name)]
    text = " ".join((root / "docs/results.md").read_text().split())
    found += [("docs/results.md", sentence) for sentence in sentences if sentence not in text]
    return found + [(page, f"no test is named {name}") for page, name in unknown_tests(root)]


def same(text, other, name):
    """Whether two texts agree; numbers of models trained on the spot may differ by 2, as processors round differently."""
    if name not in TRAINED_HERE:
        return text == other
    (first, second), (numbers, others) = (
        [what(r"\d+\.?\d*", found) for found in (text, other)] for what in (re.split, re.findall)
    )
    return first == second and all(abs(float(a) - float(b)) <= 2 for a, b in zip(numbers, others, strict=True))


def unknown_tests(root):
    """Pages that name a test for a statement, and names that no test has."""
    sources = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^ *def (test_\w+)", sources, re.MULTILINE))
    for page in ("docs/methods.md", "docs/theory.md"):
        for name in re.findall(r"(?:`|::)(test_\w+)`", (root / page).read_text()):
            if name not in defined:
                yield page, name


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 where a page is stale")
    options = parser.parse_args(given)
    if not options.check:
        for page, blocks in measured()[0].items():
            (ROOT / page).write_text(filled((ROOT / page).read_text(), blocks))
    left = stale()
    for page, what in left:
        print(f"{page}: stale: {what}")
    if left:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
