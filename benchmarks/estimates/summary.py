"""Tables and figure of `benchmarks/estimates/run.py`: from the rows in ``results/estimates`` to pages and a picture.

    python -m benchmarks.estimates.summary      # docs/images/estimates.png; prints the tables

Error, bias, coverage and width are in points. ``benchmarks/pages.py`` writes the tables into README and docs/estimator.md.
"""

import numpy as np
from matplotlib.figure import Figure

from benchmarks import ROOT
from benchmarks.estimates.rows import read_rows

__all__ = ["GOALS", "blocks", "main", "summarised"]

PICTURE = ROOT / "docs" / "images" / "estimates.png"
SCRATCH = ("scratch-pacs", "scratch-digits", "scratch-subclasses")
# What is compared, under which name: suites, variant, whether targets are unshifted, assumption about the class mix.
GROUPS = {
    "PACS, pretrained network": (("pacs",), "as-is", False, "unknown"),
    "PACS, drawn with the reference's class mix, class_mix='stable'": (("pacs",), "drawn", False, "stable"),
    "PACS, other class mixes": (("pacs",), "mixed", False, "unknown"),
    "PACS, unshifted, other class mixes": (("pacs",), "mixed", True, "unknown"),
    "PACS, unshifted": (("pacs",), "as-is", True, "unknown"),
    "networks from scratch: PACS, digits, CIFAR-100 subclasses": (SCRATCH, "as-is", False, "unknown"),
    "the same, drawn with the reference's class mix, class_mix='stable'": (SCRATCH, "drawn", False, "stable"),
    "CIFAR-10 corruptions, family left out": (("cifar10",), "as-is", False, "unknown"),
    "tables in time order: electricity": (("tables",), "as-is", False, "unknown"),
    "electricity, class_mix='stable'": (("tables",), "as-is", False, "stable"),
    "tables in time order: INSECTS": (("tables",), "as-is", False, "unknown"),
    "INSECTS, class_mix='stable'": (("tables",), "as-is", False, "stable"),
    "tables, other class mixes": (("tables",), "mixed", False, "unknown"),
    "tables, other class mixes, the mix given": (("tables",), "mixed", False, "given"),
    "tables, unshifted": (("tables",), "as-is", True, "unknown"),
    "tables, unshifted, other class mixes": (("tables",), "mixed", True, "unknown"),
    "tables, unshifted, other class mixes, class_mix='estimated'": (("tables",), "mixed", True, "estimated"),
    "reviews of other products": (("text",), "as-is", False, "unknown"),
    "reviews of other products, other class mixes": (("text",), "mixed", False, "unknown"),
    "reviews of other products, other class mixes, the mix given": (("text",), "mixed", False, "given"),
    "reviews of the same products": (("text",), "as-is", True, "unknown"),
    "reviews of the same products, other class mixes": (("text",), "mixed", True, "unknown"),
    "reviews of the same products, other class mixes, class_mix='estimated'": (("text",), "mixed", True, "estimated"),
    "tables and reviews, outputs only: electricity, reviews": (("tables", "text"), "as-is", False, "outputs-only"),
}
SOURCES = {
    "tables in time order: electricity": ("electricity",),
    "electricity, class_mix='stable'": ("electricity",),
    "INSECTS, class_mix='stable'": ("insects",),
    "tables in time order: INSECTS": ("insects",),
    "tables and reviews, outputs only: electricity, reviews": ("electricity", "reviews"),
}
CLASS_GROUPS = {
    "PACS, pretrained network": ("pacs", ""),
    "electricity": ("tables", "electricity"),
    "INSECTS": ("tables", "insects"),
    "reviews of other products": ("text", ""),
}
CLASS_QUANTITIES = ("recall", "precision", "f1", "macro-f1", "brier")
# Error, coverage and width asked for.
GOALS = {
    "PACS, pretrained network": (6.0, 85, 32),
    "PACS, drawn with the reference's class mix, class_mix='stable'": (5.0, 85, 25),
    "PACS, other class mixes": (8.0, 85, 32),
    "PACS, unshifted, other class mixes": (2.0, 88, 12),
    "networks from scratch: PACS, digits, CIFAR-100 subclasses": (6.5, 85, 30),
    "the same, drawn with the reference's class mix, class_mix='stable'": (6.0, 85, 30),
    "CIFAR-10 corruptions, family left out": (1.5, 88, 14),
    "tables, unshifted, other class mixes": (6.5, 88, 28),
    "tables, unshifted, other class mixes, class_mix='estimated'": (3.5, 88, 28),
}
README_GROUPS = (
    *("PACS, pretrained network", "PACS, drawn with the reference's class mix, class_mix='stable'"),
    *("PACS, other class mixes", "PACS, unshifted, other class mixes"),
    *("tables in time order: electricity", "electricity, class_mix='stable'", "tables in time order: INSECTS"),
    *("tables, other class mixes, the mix given", "reviews of other products"),
    *("reviews of other products, other class mixes", "reviews of other products, other class mixes, the mix given"),
)
NANNYML = "nannyml"
UNCHANGED = "unchanged"
OTHERS = {
    UNCHANGED: "unchanged",
    "cot": "COT",
    "cott": "COTT",
    "atc": "ATC",
    "doc": "DoC",
    "confscore": "mean confidence",
    "cbpe": "CBPE",
}
OTHERS |= {NANNYML: "NannyML"}
# Those of docs/estimator.md.
SHOWN = (UNCHANGED, "cot", "atc", "cbpe", NANNYML)


def chosen(rows, group):
    suites, variant, unshifted, _ = GROUPS[group]
    parts = SOURCES.get(group, ("",))
    return [
        row
        for row in rows
        if row["suite"] in suites
        and row["variant"].startswith(variant)
        and (row["target"] == "unshifted") == unshifted
        and row["source"].startswith(parts)
    ]


def errors(rows, estimator):
    if estimator == UNCHANGED:  # the accuracy on the reference: what a person says who looks at nothing
        plain = [r for r in rows if r["estimator"] == "unknown"]
        return np.array([float(r["reference_accuracy"]) - float(r["truth"]) for r in plain])
    return np.array([float(r["accuracy"]) - float(r["truth"]) for r in rows if r["estimator"] == estimator])


def summarised(rows):
    """One dict for each group that has rows: estimates, error and bias in points, coverage and width in percent."""
    for group, (_, _, _, assumption) in GROUPS.items():
        own = chosen(rows, group)
        mine = [row for row in own if row["estimator"] == assumption]
        if not mine:
            continue
        held = [float(r["low"]) <= float(r["truth"]) <= float(r["high"]) for r in mine]
        width = [float(r["high"]) - float(r["low"]) for r in mine]
        found = {"group": group, "class_mix": assumption, "estimates": len(mine)}
        found |= {"sources": len({(r["source"], r["seed"]) for r in mine})}
        found |= {"error": 100 * np.abs(errors(own, assumption)).mean(), "bias": 100 * errors(own, assumption).mean()}
        found |= {"coverage": 100 * np.mean(held), "width": 100 * np.mean(width)}
        yield found | {
            name: 100 * np.abs(errors(own, name)).mean() if len(errors(own, name)) else "" for name in OTHERS
        }


def table(found, others, goals=False):
    """A row for each group: our error, coverage and width, and the errors of other answers."""
    heads = ["", "estimates", "error (bias)", "90 % intervals cover", "width", *(OTHERS[name] for name in others)]
    heads += ["goal: error, coverage, width"] if goals else []
    lines = [heads, ["---"] * len(heads)]
    for row in found:
        cells = [row["group"], str(row["estimates"]), f"{row['error']:.1f} ({row['bias']:+.1f})"]
        cells += [f"{row['coverage']:.0f} %", f"{row['width']:.0f}"]
        cells += [f"{row[name]:.1f}" if row[name] != "" else "" for name in others]
        if goals:
            goal = GOALS.get(row["group"])
            cells.append("" if goal is None else f"≤ {goal[0]}, ≥ {goal[1]} %, ≤ {goal[2]}")
        lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def class_table(rows):
    """Recall, precision and F1 of classes: error, and how often their intervals hold."""
    heads = ["", "class mix", "", "estimates", "error (bias)", "90 % intervals cover", "width"]
    lines = [heads, ["---"] * len(heads)]
    for group, (suite, source) in CLASS_GROUPS.items():
        for variant, mix in (("as-is", "as it is"), ("mixed-1", "another")):
            for name in CLASS_QUANTITIES:
                own = [
                    [float(row[key]) for key in ("truth", "accuracy", "low", "high")]
                    for row in rows
                    if (row["suite"], row["variant"], row["estimator"]) == (suite, variant, name)
                    and row["source"].startswith(source)
                    and row["target"] != "unshifted"
                ]
                if own:
                    truth, value, low, high = 100 * np.array(own).T
                    off, held = value - truth, (low <= truth) & (truth <= high)
                    cells = [
                        group,
                        mix,
                        name.replace("-", " "),
                        str(len(own)),
                        f"{np.abs(off).mean():.1f} ({off.mean():+.1f})",
                    ]
                    lines.append([*cells, f"{100 * held.mean():.0f} %", f"{(high - low).mean():.0f}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def blocks(rows=None):
    """Tables for README and docs/estimator.md."""
    rows = read_rows() if rows is None else rows
    found = list(summarised(rows))
    short = [row for row in found if row["group"] in README_GROUPS]
    return {
        "estimates": table(short, SHOWN),
        "results": table(found, OTHERS, goals=True),
        "classes": class_table(rows),
    }


def figure(rows):
    drawing = Figure(figsize=(8.4, 2.6), layout="constrained")
    panels = drawing.subplots(1, 2, sharey=True)
    reviews = chosen(rows, "reviews of other products")
    sets = (
        (panels[0], "PACS → other domains, pretrained network", chosen(rows, "PACS, pretrained network")),
        (panels[1], "product reviews → other products", [r for r in reviews if r["seed"] == 0]),
    )
    for axes, title, own in sets:
        axes.plot([0, 100], [0, 100], color="#bbbbbb", linewidth=0.8, zorder=0)
        for name, marker, label in (("confscore", "x", "mean confidence"), ("unknown", "o", "gdscore, 90 % interval")):
            mine = [row for row in own if row["estimator"] == name]
            truth, value = ([100 * float(row[key]) for row in mine] for key in ("truth", "accuracy"))
            colour = "#b23c17" if name == "unknown" else "#8a8a8a"
            axes.scatter(truth, value, s=14, marker=marker, color=colour, linewidths=0.8, label=label, zorder=3)
            if name == "unknown":
                low, high = ([100 * float(row[key]) for row in mine] for key in ("low", "high"))
                axes.vlines(truth, low, high, color=colour, linewidth=0.7, alpha=0.35, zorder=2)
        least = 0 if axes is panels[0] else 40
        axes.set(xlim=(least, 100), ylim=(0, 100), xlabel="true accuracy, %", title=title)
        axes.title.set_fontsize(9)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("estimated accuracy, %")
    panels[0].legend(frameon=False, fontsize=8, loc="lower right")
    return drawing


def main():
    rows = read_rows()
    figure(rows).savefig(PICTURE, dpi=160)
    print(*blocks(rows).values(), sep="\n\n")


if __name__ == "__main__":
    main()
