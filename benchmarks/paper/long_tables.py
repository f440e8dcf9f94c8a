"""Long tables, for research/tables.md, as Markdown."""

import numpy as np

from benchmarks.markdown import markdown
from benchmarks.paper.relation import group_of, preferred, relation_of, shifted
from benchmarks.row_files import read

__all__ = [
    "SHOWN",
    "TITLES",
    "forms_table",
    "in_order",
    "measured",
    "page_tables",
    "titled",
]

FEW = 10
# In the order of the paper's table, then what is beyond it; `soft` and `…@T` stay in the file.
SHOWN = ("rotation", "confscore", "entropy", "agreescore", "atc", "frechet", "dispersion", "projnorm", "gdscore")
SHOWN += ("nuclear", "gradnorm", "doc", "mano", "cot", "cott")
TITLES = {"norms": "norm p", "thresholds": "threshold τ", "batches": "batch size", "seeds": "seeds of random labels"}
# Their columns are scores, not choices of GdScore: they are in tables of their own.
APART = ("labelshift", "projnorm")
TITLES |= {"epochs": "epochs of fine-tuning", "losses": "loss", "order": "order of rows"}
# Benchmarks in the order of tables: data, then networks.
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny": "Tiny-ImageNet", "cifar100sub": "subpopulations"}
DATA |= {"pacs128": "PACS", "pacs": "PACS", "digits": "digits"}
NETWORKS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50", "wrn50_2": "WRN-50-2", "vit": "ViT"}
NETWORKS |= {"lite0": "Lite0", "lite1": "Lite1", "small": "small CNN"}


def titled(benchmark, *, network=True):
    """Data of a benchmark, and its network, as a person writes them."""
    data, _, name = benchmark.rpartition("-")
    return DATA.get(data, data) + (f", {NETWORKS.get(name, name)}" if network else "")


def in_order(benchmarks):
    """Benchmarks by data and network; those that have no title last."""

    def place(name):
        data, _, network = name.rpartition("-")
        return [[*known, key].index(key) for known, key in ((DATA, data), (NETWORKS, network))]

    return sorted(benchmarks, key=place)


def methods_table(rows):
    """R² / |ρ| / held-out error, methods down, benchmarks across; the best R² of a column in bold."""
    chosen = [row for row in rows if row["method"] in SHOWN and np.isfinite(row["r2"])]
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in chosen))
    cell = {(row["method"], row["benchmark"]): row for row in chosen}
    sets = {
        name: max(row["sets"] + row["refused"] for row in chosen if row["benchmark"] == name) for name in benchmarks
    }
    best = {name: max(row["r2"] for row in chosen if row["benchmark"] == name) for name in benchmarks}

    def shown(row, benchmark):
        if row is None:
            return "–"
        strong = "**" if row["r2"] == best[benchmark] else ""
        marks = "" if row["sign"] == "as documented" else "‡"
        if row["sets"] != sets[benchmark]:
            marks += f" ({row['sets']} sets)"
        error = "–" if np.isnan(row["mae"]) else f"{row['mae']:.1f}"
        return f"{strong}{row['r2']:.3f}{strong} / {abs(row['rho']):.3f} / {error}{marks}"

    heads = ["method", *(f"{name}, {sets[name]}{'†' if sets[name] < FEW else ''}" for name in benchmarks)]
    lines = [
        [f"`{method}`", *(shown(cell.get((method, name)), name) for name in benchmarks)]
        for method in SHOWN
        if any((method, name) in cell for name in benchmarks)
    ]
    # ProjNorm is measured on sets of its own, and sometimes on other networks.
    largest_last = sorted(chosen, key=lambda row: (row["method"] != "projnorm", row["sets"] + row["refused"]))
    constant = {row["benchmark"]: row["constant"] for row in largest_last}
    errors = ("–" if np.isnan(constant[name]) else f"– / – / {constant[name]:.1f}" for name in benchmarks)
    return markdown(heads, [*lines, ["no score", *errors]])


def forms_table(rows, scores):
    """R² of scores for each network of ``benchmarks/paper/image_forms.py`` on each form of the images, and the rows above τ."""
    rows = [row for row in rows if row["family"] != "unshifted"]
    lines = []
    for key in sorted({(row["trained on"], row["seed"], row["images"]) for row in rows}):
        own = [row for row in rows if (row["trained on"], row["seed"], row["images"]) == key]
        above = np.mean([row["over tau"] for row in own if row["accuracy"] < 0.25])
        cells = [f"{relation_of(own, name)['r2']:.3f}" for name in scores]
        lines.append([f"{key[0]}, {key[1]:g}", key[2], *cells, f"{100 * above:.0f} %"])
    return markdown(("trained on, seed", "images", *scores, "rows above τ where accuracy is below 25 %"), lines)


def protocols_table(rows):
    """GdScore on each benchmark, by what score is set against what accuracy."""
    cell = {
        (row["benchmark"], row["protocol"]): row
        for row in rows
        if row["method"] == "gdscore" and np.isfinite(row["r2"])
    }
    names = list(dict.fromkeys(name for name, _ in cell))
    lines = []
    for name in names:
        found = [cell.get((name, protocol)) for protocol in ("deployed", "published", "crossed")]
        numbers = ("–" if r is None else f"{r['r2']:.3f} / {r['rho']:.3f}" for r in found)
        lines.append([name, " / ".join(dict.fromkeys(str(r["sets"]) for r in found if r)), *numbers])
    return markdown(("benchmark", "sets", "deployed", "published", "released score, deployed accuracy"), lines)


def halves_table(cells):
    """Deployed: R² / ρ of GdScore and R² of COTT, of sets that keep half of the unshifted accuracy and of the others."""
    heads = ("benchmark", "half kept: GdScore", "COTT", "less kept: GdScore", "COTT", "lowest accuracy, its GdScore")
    lines = []
    for file in sorted((cells / "deployed").glob("*.csv")):
        every = read(file)
        # Other subpopulations alone cost half of the accuracy.
        if every[0]["set"] != "unshifted" or len(every) < FEW or group_of(file.stem)[1] != "synthetic":
            continue
        cut, rows = every[0]["accuracy"] / 2, shifted(every)
        found = [file.stem]
        for part in ([row for row in rows if row["accuracy"] >= cut], [row for row in rows if row["accuracy"] < cut]):
            ours, cott = (relation_of(part, name) for name in ("gdscore", "cott"))
            found += [f"{len(part)} sets: {ours['r2']:.3f} / {ours['rho']:.3f}", f"{cott['r2']:.3f}"]
        worst = min(rows, key=lambda row: row["accuracy"])
        found.append(f"{100 * worst['accuracy']:.1f} %, × {worst['gdscore'] / every[0]['gdscore']:.2f}")
        lines.append(found)
    return markdown(heads, lines)


def splits_table(cells):
    """Subpopulation splits one by one, each with one model: R² / ρ of GdScore by both protocols, and the best score."""
    heads = (
        "split",
        "sets",
        "deployed accuracies, %",
        "GdScore deployed",
        "published",
        "COTT deployed",
        "best deployed",
    )
    lines = []
    for file in sorted((cells / "deployed").glob("cifar100sub*.csv")):
        deployed = shifted(read(file))
        published = cells / "published" / file.name
        pairs = [relation_of(deployed, "gdscore")]
        pairs += [relation_of(shifted(read(published)), "gdscore")] if published.exists() else []
        numbers = [f"{found['r2']:.3f} / {found['rho']:.3f}" for found in pairs]
        sets = " / ".join(dict.fromkeys(str(found["sets"]) for found in pairs))
        scores = {name: relation_of(deployed, name)["r2"] for name in SHOWN if name in deployed[0]}
        best = max(scores, key=scores.get)
        reached = sorted(100 * row["accuracy"] for row in deployed)
        line = [file.stem, sets, f"{reached[0]:.1f} to {reached[-1]:.1f}", *numbers]
        lines.append([*line, *["–"] * (2 - len(pairs)), f"{scores['cott']:.3f}", f"`{best}` {scores[best]:.3f}"])
    return markdown(heads, lines)


def ablation_lines(rows):
    """One line an ablation, and one a variant of it (``rows=100,whole``): R² / ρ of each choice."""
    lines = {}
    for row in rows:
        choice, _, variant = row["choice"].partition(",")
        title = TITLES.get(row["ablation"], row["ablation"]) + (f", {variant}" if variant else "")
        lines.setdefault(title, []).append((choice.rpartition("=")[2].replace("None", "whole"), row))
    for title, own in lines.items():
        numbers = "; ".join(f"**{value}** {row['r2']:.3f} / {row['rho']:.3f}" for value, row in own)
        if own[0][1]["ablation"] == "seeds":
            spans = [sorted(row[key] for _, row in own) for key in ("r2", "rho")]
            numbers = f"**{len(own)} draws** " + " / ".join(f"{span[0]:.3f} to {span[-1]:.3f}" for span in spans)
        yield title, str(own[0][1]["sets"]), numbers


def ablations_table(rows, source):
    """The ablations of one source that are choices of GdScore."""
    own = [row for row in rows if row["source"] == source and row["ablation"] not in APART]
    lines = ablation_lines(row for row in own if np.isfinite(row["r2"]))
    return markdown(("ablation", "sets", "choice, its R² / ρ"), lines)


def label_shift_table(rows):
    """R² / held-out error of each score by the strength of the mix, of the largest network it was run on."""
    own = [row for row in rows if row["ablation"] == "labelshift"]
    source = preferred({row["source"] for row in own})
    own = [row for row in own if row["source"] == source]
    levels = {"none": "as corrupted", 1.0: "Dirichlet 1", 0.1: "Dirichlet 0.1", "any": "all together"}
    cell = {(row["choice"], row["alpha"]): row for row in own}
    sets = [next((str(row["sets"]) for row in own if row["alpha"] == level), "–") for level in levels]
    heads = [source, *(f"{label}, {count}" for label, count in zip(levels.values(), sets, strict=True))]
    lines = []
    for name in dict.fromkeys(row["choice"] for row in own):
        values = (cell.get((name, level)) for level in levels)
        lines.append([f"`{name}`", *("–" if r is None else f"{r['r2']:.3f} / {r['mae']:.1f}" for r in values)])
    return markdown(heads, lines)


def measured(folder):
    """Source and row, of every file of an ablation."""
    return [(file.stem, row) for file in sorted(folder.glob("*.csv")) for row in read(file)]


def cost_table(folder):
    """Seconds of one set."""
    lines = [
        [
            row["method"],
            f"{source}, {row['set'].split('/')[0]}",
            f"{row['n']:.0f}",
            f"{row['seconds']:.3g}",
            f"{row['times_gdscore']:.3g}",
            row["device"],
        ]
        for source, row in measured(folder)
    ]
    return markdown(("method", "set", "rows", "seconds", "times GdScore", "device"), lines)


def released_table(folder):
    """The released algorithm written directly beside the published part of the cells."""
    lines = [
        [
            f"{source}, {row['set']}",
            f"{row['n']:.0f}",
            f"{row['cells_gdscore']:.6g}",
            f"{row['released_gdscore']:.6g}",
            f"{row['relative_difference']:.1e}",
            f"{row['accuracy']:.4f}, {row['released_accuracy']:.4f}",
            row["device"],
        ]
        for source, row in measured(folder)
    ]
    heads = ("set", "rows", "cells", "released", "relative difference", "accuracy, both", "device")
    return markdown(heads, lines)


def page_tables(rows, chosen, cells, ablations):
    """Every table by the name of its mark, as far as there are files for it."""
    tables = {"protocols": protocols_table(rows), "halves": halves_table(cells)}
    for protocol in ("deployed", "published"):
        own = [row for row in rows if row["protocol"] == protocol]
        tables[protocol] = methods_table([row for row in own if row["shift"] == "synthetic"])
        tables[f"{protocol}_natural"] = methods_table([row for row in own if row["shift"] != "synthetic"])
    crossed = [row for row in rows if row["protocol"] == "crossed" and row["shift"] != "synthetic"]
    tables["crossed_natural"] = methods_table(crossed)
    if any((cells / "deployed").glob("cifar100sub*.csv")):
        tables["splits"] = splits_table(cells)
    if chosen:
        tables["labelshift"] = label_shift_table(chosen)
        for source in sorted({row["source"] for row in chosen if row["ablation"] not in APART}):
            tables[f"ablations_{source}"] = ablations_table(chosen, source)
    if (ablations / "runtime").exists():
        tables["cost"] = cost_table(ablations / "runtime")
    if (ablations / "released").exists():
        tables["released"] = released_table(ablations / "released")
    return tables
