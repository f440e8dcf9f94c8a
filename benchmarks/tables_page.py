"""Tables of docs/results.md as Markdown, put between their marks."""

import re

import numpy as np

from relation import read

__all__ = ["fill", "page_tables"]

FEW = 10
# In the order of the paper's table, then what is beyond it; `soft` and `…@T` stay in the file.
SHOWN = ("rotation", "confscore", "entropy", "agreescore", "atc", "frechet", "dispersion", "projnorm", "gdscore")
SHOWN += ("nuclear", "gradnorm", "doc", "mano", "cot", "cott")


def sorted_rows(row):
    """A mark for a score of mini-batches of rows sorted by class."""
    return "§" if row["method"] == "gdscore" and "by class" in row["order"] else ""


def methods_table(rows, protocol):
    """R² / |ρ| / held-out error, methods down, benchmarks across; the best R² of a column in bold."""
    chosen = [row for row in rows if row["protocol"] == protocol and row["method"] in SHOWN and np.isfinite(row["r2"])]
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
        marks = sorted_rows(row) + ("" if row["sign"] == "as documented" else "‡")
        if row["sets"] != sets[benchmark]:
            marks += f" ({row['sets']} sets)"
        error = "–" if np.isnan(row["mae"]) else f"{row['mae']:.1f}"
        return f"{strong}{row['r2']:.3f}{strong} / {abs(row['rho']):.3f} / {error}{marks}"

    heads = [f"{name}, {sets[name]}{'†' if sets[name] < FEW else ''}" for name in benchmarks]
    lines = [f"| method | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for method in SHOWN:
        if any((method, name) in cell for name in benchmarks):
            lines.append(f"| `{method}` | {' | '.join(shown(cell.get((method, n)), n) for n in benchmarks)} |")
    return "\n".join(lines)


def fill(page, tables):
    """Put each table between its marks ``<!-- table NAME -->`` and ``<!-- end -->``."""
    text = page.read_text()
    for name, table in tables.items():
        marks = rf"(<!-- table {name} -->\n).*?(<!-- end -->)"
        text = re.sub(marks, lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text, flags=re.DOTALL)
    page.write_text(text)


def protocols_table(rows):
    """GdScore on each benchmark, by what score is set against what accuracy."""
    cell = {
        (row["benchmark"], row["protocol"]): row
        for row in rows
        if row["method"] == "gdscore" and np.isfinite(row["r2"])
    }
    names = list(dict.fromkeys(name for name, _ in cell))
    heads = ("deployed", "published", "crossed")
    lines = ["| benchmark | sets | deployed | published | released score, deployed accuracy |", "|---" * 5 + "|"]
    for name in names:
        found = [cell.get((name, protocol)) for protocol in heads]
        numbers = " | ".join("–" if r is None else f"{r['r2']:.3f} / {r['rho']:.3f}{sorted_rows(r)}" for r in found)
        lines.append(f"| {name} | {next(r['sets'] for r in found if r)} | {numbers} |")
    return "\n".join(lines)


def ablations_table(rows):
    """One line an ablation: R² / ρ of each choice; of random seeds, from the lowest to the highest."""
    lines = ["| ablation | source | sets | choice: R² / ρ |", "|---" * 4 + "|"]
    for key in dict.fromkeys((row["ablation"], row["source"]) for row in rows if row["ablation"] != "labelshift"):
        own = [row for row in rows if (row["ablation"], row["source"]) == key and np.isfinite(row["r2"])]
        if not own:
            continue
        choices = "; ".join(f"{r['choice'].replace('None', 'whole')}: {r['r2']:.3f} / {r['rho']:.3f}" for r in own)
        if key[0] == "seeds":
            spans = [sorted(row[name] for row in own) for name in ("r2", "rho")]
            choices = f"{len(own)} seeds: " + " / ".join(f"{span[0]:.3f} to {span[-1]:.3f}" for span in spans)
        lines.append(f"| {key[0]} | {key[1]} | {own[0]['sets']} | {choices} |")
    return "\n".join(lines)


def label_shift_table(rows):
    """R² / held-out error of each score by the strength of the mix."""
    own = [row for row in rows if row["ablation"] == "labelshift"]
    levels = {"none": "as corrupted", 1.0: "Dirichlet 1", 0.1: "Dirichlet 0.1", "any": "all together"}
    cell = {(row["choice"], row["alpha"]): row for row in own}
    sets = [next((str(row["sets"]) for row in own if row["alpha"] == level), "–") for level in levels]
    heads = " | ".join(f"{label}, {count}" for label, count in zip(levels.values(), sets, strict=True))
    lines = [f"| method | {heads} |", "|---" * (len(levels) + 1) + "|"]
    for name in dict.fromkeys(row["choice"] for row in own):
        values = [cell.get((name, level)) for level in levels]
        numbers = " | ".join("–" if r is None else f"{r['r2']:.3f} / {r['mae']:.1f}" for r in values)
        lines.append(f"| `{name}` | {numbers} |")
    return "\n".join(lines)


def cost_table(folder):
    """Seconds of one set."""
    lines = ["| method | set | rows | seconds | times GdScore | device |", "|---" * 6 + "|"]
    for file in sorted(folder.glob("*.csv")):
        for row in read(file):
            about = f"{row['method']} | {file.stem}, {row['set'].split('/')[0]} | {row['n']:.0f}"
            lines.append(f"| {about} | {row['seconds']:.3g} | {row['times_gdscore']:.3g} | {row['device']} |")
    return "\n".join(lines)


def released_table(folder):
    """The released algorithm written directly beside the published part of the cells."""
    lines = ["| set | rows | cells | released | relative difference | accuracy, both | device |", "|---" * 7 + "|"]
    for file in sorted(folder.glob("*.csv")):
        for row in read(file):
            norms = f"{row['cells_gdscore']:.6g} | {row['released_gdscore']:.6g} | {row['relative_difference']:.1e}"
            both = f"{row['accuracy']:.4f}, {row['released_accuracy']:.4f}"
            lines.append(f"| {file.stem}, {row['set']} | {row['n']:.0f} | {norms} | {both} | {row['device']} |")
    return "\n".join(lines)


def page_tables(rows, chosen, ablations):
    """Every table by the name of its mark, as far as there are files for it."""
    tables = {protocol: methods_table(rows, protocol) for protocol in ("deployed", "published")}
    tables["protocols"] = protocols_table(rows)
    if chosen:
        tables |= {"ablations": ablations_table(chosen), "labelshift": label_shift_table(chosen)}
    if (ablations / "runtime").exists():
        tables["cost"] = cost_table(ablations / "runtime")
    if (ablations / "released").exists():
        tables["released"] = released_table(ablations / "released")
    return tables
