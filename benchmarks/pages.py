"""Measured numbers of README and docs: written from ``benchmarks/results``, or checked.

    python -m benchmarks.pages              # write what stands between markers
    python -m benchmarks.pages --check      # name what is stale, and exit with 1

A block of a page stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``. `PAGES` names for each page the function
that gives its blocks, name → text.
"""

import argparse
import contextlib
import csv
import io
import json
import re
from dataclasses import fields
from functools import cache

import numpy as np

import gdscore
from benchmarks import RESULTS, ROOT
from benchmarks.estimates import check, late_labels
from benchmarks.estimates import summary as estimates_summary
from benchmarks.estimates.comparison import blocks as comparison_blocks
from benchmarks.estimates.few_labels_page import blocks as labeling_blocks
from benchmarks.markdown import attributes_of, filled, markdown
from benchmarks.monitor.summary import blocks as monitor_blocks
from benchmarks.paper.tables import all_tables
from gdscore._hashing import key_as_uint64, label_hash, row_key, value_words
from gdscore.estimator.settings import SETTINGS

__all__ = ["PAGES", "main", "stale"]

# Asked for by several pages.
check_blocks, estimate_blocks = cache(check.blocks), cache(estimates_summary.blocks)

# Blocks whose numbers come from a small model that is trained when they are made.
TRAINED_HERE = {"example", "printed"}
# Rows of README: a name, and the group of estimates.
SHORT = {
    "PACS, other domains": "PACS, pretrained network",
    "PACS, unshifted, other class mixes": "PACS, unshifted, other class mixes",
    "electricity": "tables in time order: electricity",
    "INSECTS": "tables in time order: INSECTS",
    "reviews": "reviews of other products",
    "reviews, other class mixes": "reviews of other products, other class mixes",
    "reviews, other class mixes, the mix given": "reviews of other products, other class mixes, the mix given",
}
# Settings that only decide whether there is a warning.
THRESHOLDS = {"few_rows", "small_reference", "far_mix"}


@cache
def results_blocks():
    """Tables and sentences of docs/results.md."""
    return all_tables(RESULTS / "cells", RESULTS / "ablations", RESULTS)[-1]


def complete_blocks():
    """Tables that are too long for the documentation, in research/tables.md."""
    return results_blocks() | labeling_blocks() | monitor_blocks() | check_blocks() | late_labels.blocks()


def readme_blocks():
    """An estimate, and how good estimates are, in README."""
    rows = {row["group"]: row for row in estimates_summary.summarised(estimates_summary.read_rows())}
    return {
        "example": printed_example().splitlines()[0],
        "short": short_table(rows),
        "claims": claims(rows),
    }


def short_table(rows):
    """Some of the groups of estimates, beside four other answers."""
    others = {"unchanged": "unchanged", "cot": "COT", "atc": "ATC", "cbpe": "CBPE"}
    lines = []
    for name, group in SHORT.items():
        numbers = [f"{rows[group][key]:.1f}" for key in ("error", *others)]
        lines.append([name, str(rows[group]["estimates"]), *numbers, f"{rows[group]['coverage']:.0f} %"])
    return markdown(("", "estimates", "gdscore", *others.values(), "90 % intervals cover"), lines)


def claims(rows):
    """What knowledge is worth, where another answer is better, and where none that reads outputs works."""
    shown = {name: rows[group] for name, group in SHORT.items()}
    electricity, pacs, mixes, insects = (
        shown[name] for name in ("electricity", "PACS, other domains", "PACS, unshifted, other class mixes", "INSECTS")
    )
    least = min(insects[answer] for answer in ("error", *estimates_summary.OTHERS) if insects[answer] != "")
    covered = [row["coverage"] for name, row in shown.items() if name != "INSECTS"]
    errors = {}
    with (RESULTS / "late_labels.csv").open(newline="") as opened:
        for row in csv.DictReader(opened):
            if (row["labels"], row["delay"]) == ("all", "1"):
                errors.setdefault((row["stream"], row["method"]), []).append(float(row["error"]))
                if row["split"] == "report":
                    errors.setdefault(row["method"], []).append(float(row["error"]))
    pairs = {
        stream: [np.mean(errors[stream, answer]) for answer in ("unchanged", "label-free")]
        for stream in ("weather", "traffic")
    }
    still = ", ".join(
        f"{same:.1f} against {estimate:.1f} points on the stream {s}" for s, (same, estimate) in pairs.items()
    )
    tracked, last, free = (np.mean(errors[answer]) for answer in ("tracked", "last known", "label-free"))
    return (
        f"- **Tell gdscore what you know.** A known class mix helps most: compare the last two rows. Late labels come next: on "
        f"streams whose labels arrive one window late, the tracker is {tracked:.1f} points off, the last known accuracy "
        f"{last:.1f}, and the estimate without labels {free:.1f} ([measured](docs/tracking.md#measured)).\n"
        f"- **COT is nearer while the class mix stays that of the reference** ({electricity['cot']:.1f} against "
        f"{electricity['error']:.1f} on electricity, {pacs['cot']:.1f} against {pacs['error']:.1f} on PACS) and fails when it "
        f"does not: on unshifted images in other class mixes it is {mixes['cot']:.1f} points off.\n"
        f"- **Unchanged is nearer where accuracy hardly moves**: {still}.\n"
        f"- **On INSECTS no method that reads outputs works** ({least:.0f} points off or more). The classes change places, and "
        f"only labels show that. The intervals, meant to cover 90 %, cover {insects['coverage']:.0f} % there and "
        f"{min(covered):.0f} to {max(covered):.0f} % in the other rows."
    )


@cache
def printed_example():
    """What the example of the landing page prints."""
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE | re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    return printed.getvalue().strip()


@cache
def alternatives():
    """Rows of the comparison by constant and value; ("present", "") are the constants as they are."""
    rows = {}
    with (RESULTS / "choosing.csv").open(newline="") as opened:
        for row in csv.DictReader(opened):
            rows.setdefault((row["setting"], row["value"]), {})[row["data"], row["case"]] = row
    return rows


def value_text(value):
    """A number in few digits; anything else, such as a tuple, as it is."""
    try:
        return f"{float(value):g}"
    except ValueError:
        return value


def compared(setting):
    values = [value_text(value) for name, value in alternatives() if name == setting]
    return f"{', '.join(values)}: [below](#constants)" if values else "–"


def few_sets():
    """Error, coverage and width with few shifted sets, beside all of them, COT and CBPE."""
    cases = {"shifted": "unknown", "shifted, other class mixes": "unknown", "shifted, reference's class mix": "stable"}
    with (RESULTS / "few_sets.csv").open(newline="") as opened:
        rows = {(r["data"], r["case"], r["setting"]): r for r in csv.DictReader(opened)}
    ways = list(dict.fromkeys(way for *_, way in rows))
    lines = []
    for data in ("images", "tables", "text"):
        for case, mix in cases.items():
            cells = []
            for row in (rows[data, case, way] for way in ways):
                cells.append(f"{float(row['error']):.1f}, {float(row['coverage']):.0f} %, {float(row['width']):.0f}")
            lines.append([f"{data}, {case}", f"`{mix}`", *cells])
    return markdown(("error, coverage, width", "`class_mix`", *ways), lines)


def settings_table():
    """Constants of the estimator, with the descriptions of their docstring."""
    meaning = attributes_of(SETTINGS)
    lines = [
        [
            f"`{field.name}`",
            str(getattr(SETTINGS, field.name)),
            meaning[field.name],
            "it changes warnings only" if field.name in THRESHOLDS else compared(field.name),
        ]
        for field in fields(SETTINGS)
    ]
    return markdown(("constant", "value", "what it does", "compared with"), lines)


def notebook_blocks():
    """The constants, and error, coverage and width on development data, in research/lab-notebook.md."""
    cases = {
        "images": ("images", "shifted"),
        "images, other mixes": ("images", "shifted, other class mixes"),
        "images, stable": ("images", "shifted, reference's class mix"),
        "tables": ("tables", "shifted"),
        "text": ("text", "shifted"),
        "tables, other mixes": ("tables", "shifted, other class mixes"),
        "tables, the mix given": ("tables", "shifted, other class mixes, given"),
        "tables, unshifted, other mixes": ("tables", "unshifted, other class mixes"),
        "families left out, tables": ("tables", "shifted sets, family left out"),
        "outputs only, text": ("text", "shifted, outputs only"),
        "recall, images": ("images", "shifted: recall"),
    }
    return {
        "choosing": comparison(cases),
        "settings": settings_table(),
        **{block: check_blocks()[block] for block in check.DEVELOPED_ON},
        "few": few_sets(),
        "classes": estimate_blocks()["classes"],
        "results": estimate_blocks()["results"],
    }


def comparison(cases):
    """A row for each alternative, a column for each case that was run: error, coverage and width of intervals."""
    cases = {name: case for name, case in cases.items() if case in alternatives()["present", ""]}
    lines = []
    for (setting, value), rows in alternatives().items():
        cells = ["as they are" if setting == "present" else f"`{setting}` = {value_text(value)}"]
        for row in (rows[case] for case in cases.values()):
            interval = f", {float(row['coverage']):.0f} %, {float(row['width']):.0f}" if row["coverage"] else ""
            cells.append(f"{float(row['error']):.1f}{interval}")
        lines.append(cells)
    return markdown(("constants", *cases), lines)


def named_rows(page, block, names):
    """A table that is written by hand, which must have a row for each name."""
    text = (ROOT / page).read_text().partition(f"<!-- {block}:begin -->")[2].partition(f"<!-- {block}:end -->")[0]
    heads, _, *rows = ([cell.strip() for cell in line.strip("| ").split("|")] for line in text.strip().splitlines())
    if odd := {name.strip("`") for name, *_ in rows} ^ set(names):
        raise SystemExit(f"{page}, {block}: expected a row for every name, but these differ: {', '.join(sorted(odd))}")
    return {block: markdown(heads, [row + [""] * (len(heads) - len(row)) for row in rows])}


def properties_table():
    """What each score is good for and when it fails, those that need least first."""
    made = map(gdscore.create_score, gdscore.list_scores())
    scores = sorted(made, key=lambda score: (len(score.needs), sorted(score.needs), score.name))
    return markdown(("score", "good for", "fails when"), [[f"`{s.name}`", s.good_for, s.fails_when] for s in scores])


def shifts_blocks():
    """The corruptions of images, in docs/shifts.md."""
    return named_rows("docs/shifts.md", "corruptions", gdscore.shifts.corruption_names())


def methods_blocks():
    """Two tables with a row for every score, in docs/methods.md."""
    return named_rows("docs/methods.md", "scores", gdscore.list_scores()) | {"properties": properties_table()}


def hash_blocks():
    """Test vectors of the row hash, in research/scores.md."""
    vectors = [((0.0, 0.0), 0, 10), ((1.0, 2.0, 3.0), 0, 10), ((1.0, 2.0, 3.0), 1, 10)]
    vectors += [((-0.5, 0.25, 0.001, 7.0), 0, 1000), ((3.0, 2.0, 1.0), 0, 10)]
    lines = []
    for values, seed, classes in vectors:
        key = row_key(value_words(np.array([values], dtype=np.float32)))
        label = label_hash(key[0], seed, classes)[0]
        lines.append([f"`{list(values)}`", str(seed), str(classes), f"`0x{key_as_uint64(key)[0]:016x}`", str(label)])
    return {"vectors": markdown(("logits", "seed", "K", "key", "label"), lines)}


def distributed_blocks():
    """Rows per second and memory on a local cluster, in docs/distributed.md."""
    timing = json.loads((RESULTS / "ray_scale.json").read_text())
    last, merged = timing["rounds"][-1], timing["merging"]
    speeds = (last["rows_per_second"][workers] / 1e6 for workers in ("1", "2"))
    return {
        "ray": "{:,} rows were read at {:.2f} million rows a second by one worker and {:.2f} by two".format(
            last["rows_so_far"], *speeds
        )
        + f" (median ratio {timing['ratio']:.2f}), with at most {max(last['worker_memory_mib']):.0f} MiB a worker; "
        f"{merged['states']:,} states were merged in {merged['seconds']:.1f} s"
    }


PAGES = {
    "research/lab-notebook.md": notebook_blocks,
    "README.md": readme_blocks,
    "docs/check.md": lambda: {"check": check_blocks()["check"]},
    "docs/comparison.md": comparison_blocks,
    "docs/distributed.md": distributed_blocks,
    "docs/estimator.md": lambda: {"estimates": estimate_blocks()["estimates"]},
    "docs/index.md": lambda: {"printed": f"```text\n{printed_example()}\n```"},
    "docs/labeling.md": labeling_blocks,
    "docs/methods.md": methods_blocks,
    "docs/monitor.md": monitor_blocks,
    "docs/results.md": results_blocks,
    "research/scores.md": hash_blocks,
    "research/tables.md": complete_blocks,
    "docs/shifts.md": shifts_blocks,
    "docs/tracking.md": late_labels.blocks,
}


@cache
def measured():
    """Blocks of every page."""
    return {page: blocks() for page, blocks in PAGES.items()}


def stale(root=ROOT):
    """Page and block of what does not agree with the results."""
    pairs = []
    for page, blocks in measured().items():
        text = (root / page).read_text()
        pairs += [(page, name) for name, block in blocks.items() if not same(text, filled(text, {name: block}), name)]
    return pairs


def same(text, other, name):
    """Whether two texts agree; numbers of models trained on the spot may differ by 2, as processors round differently."""
    if name not in TRAINED_HERE:
        return text == other
    (first, second), (numbers, others) = (
        [what(r"\d+\.?\d*", page) for page in (text, other)] for what in (re.split, re.findall)
    )
    return first == second and all(abs(float(a) - float(b)) <= 2 for a, b in zip(numbers, others, strict=True))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 where a page is stale")
    options = parser.parse_args(arguments)
    if not options.check:
        for page, blocks in measured().items():
            (ROOT / page).write_text(filled((ROOT / page).read_text(), blocks))
    left = stale()
    for page, what in left:
        print(f"{page}: stale: {what}")
    if left:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
