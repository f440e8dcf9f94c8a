"""The main table and the table of ablations, from the rows that ``benchmarks/paper/cells.py`` and ``benchmarks/paper/ablations.py`` left.

    python -m benchmarks.paper.tables                       # benchmarks/results/{main,ablations}.csv, docs/results.md
    python -m benchmarks.paper.tables --cells out/cells --ablations out/ablations --output out --pages

For each benchmark, protocol and method: R² (squared Pearson correlation of score and accuracy over the sets, a line
fitted and judged on the same sets), Spearman's ρ with its sign, the number of sets, the number of sets a score refused
(NaN), and the mean absolute error in points of a straight line that never saw the set's family: all severities of a
corruption, or all pairs with the same target domain. ``constant`` is the error of the mean accuracy of the other
families, without any score. The unshifted test set is left out. Sources with few targets are pooled: PACS (12 pairs of
each network), digits (6), and the four subpopulation splits of CIFAR-100.

Protocols: ``deployed`` and ``published`` as in ``benchmarks/paper/cells.py``; ``crossed`` sets the published scores against the
accuracies of the deployed model.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

import gdscore
from benchmarks import RESULTS, ROOT
from benchmarks.markdown import fill
from benchmarks.paper.claims import CHOSEN_ON, claims_table, transfer_table
from benchmarks.paper.long_tables import ablations_table, measured, page_tables
from benchmarks.paper.relation import columns_of, constant_error, group_of, relation_of, shifted
from benchmarks.paper.results_page import results_blocks
from benchmarks.row_files import read

__all__ = ["ablation_rows", "all_tables", "main_rows"]

PROTOCOLS = ("deployed", "published")


def rises(column):
    """Whether the score is documented to rise with accuracy."""
    name = column.removesuffix("@T")
    return gdscore.create_score("agreescore" if name == "soft" else name).higher_is_better


def main_rows(cells, ablations):
    """One row for each benchmark, protocol and method."""
    pooled = defaultdict(list)
    for protocol in PROTOCOLS:
        for file in sorted((cells / protocol).glob("*.csv")):
            pooled[(*group_of(file.stem), protocol)].append((file.stem, shifted(read(file))))
    # The released score against the accuracy of the model as it is deployed.
    for file in sorted((cells / "published").glob("*.csv")):
        if (cells / "deployed" / file.name).exists():
            truth = {row["set"]: row["accuracy"] for row in read(cells / "deployed" / file.name)}
            rows = [row | {"accuracy": truth[row["set"]]} for row in shifted(read(file)) if row["set"] in truth]
            pooled[(*group_of(file.stem), "crossed")].append((file.stem, rows))
    for file in sorted((ablations / "projnorm").glob("*.csv")):
        rows = [{key: row[key] for key in ("family", "accuracy", "projnorm")} for row in shifted(read(file))]
        pooled[(*group_of(file.stem), "deployed")].append((file.stem, rows))
    for (benchmark, shift, protocol), parts in pooled.items():
        rows = [row for _, part in parts for row in part]
        for column in dict.fromkeys(name for _, part in parts for name in (columns_of(part) if part else ())):
            own = [row for row in rows if column in row]
            found = relation_of(own, column)
            as_documented = found["rho"] != found["rho"] or (found["rho"] > 0) == rises(column)
            facts = {"benchmark": benchmark, "shift": shift, "protocol": protocol, "method": column}
            models = {"models": len({source for source, part in parts if part and column in part[0]})}
            sign = {"sign": "as documented" if as_documented else "against"}
            yield facts | models | found | sign | {"constant": constant_error(own)}


def ablation_rows(ablations):
    """One row for each ablation, benchmark and choice; label shift by the strength of the mix."""
    for folder in sorted(path for path in ablations.glob("*") if path.name not in ("runtime", "released")):
        pooled = defaultdict(list)
        for file in sorted(folder.glob("*.csv")):
            pooled[group_of(file.stem)[0]] += shifted(read(file))
        for source, every in pooled.items():
            parts = defaultdict(list)
            for row in every:
                parts[row.get("alpha", "")].append(row)
            if len(parts) > 1:
                parts["any"] = every
            for alpha, rows in parts.items():
                for column in columns_of(rows):
                    facts = {"ablation": folder.name, "source": source, "alpha": alpha, "choice": column}
                    yield facts | relation_of(rows, column) | {"mean": np.mean([row[column] for row in rows])}


def all_tables(cells, ablations, results=None):
    """Rows of both files, and blocks of pages by the name of their mark; those of docs/results.md need all `results`."""
    rows, chosen = list(main_rows(cells, ablations)), list(ablation_rows(ablations))
    chosen_published = list(ablation_rows(ablations.with_name("ablations_published")))
    tables = page_tables(rows, chosen, cells, ablations)
    tables["claims"] = claims_table(rows, chosen, chosen_published, measured(ablations / "runtime"))
    tables["transfer"] = transfer_table(chosen)
    tables["ablations_published"] = ablations_table(chosen_published, CHOSEN_ON)
    if results is not None:
        tables |= results_blocks(rows, chosen, chosen_published, cells, results)
    return rows, chosen, tables


def write(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{v:.4g}" if isinstance(v, float) else v for key, v in row.items()})


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=RESULTS / "cells")
    parser.add_argument("--ablations", type=Path, default=RESULTS / "ablations")
    parser.add_argument("--output", type=Path, default=RESULTS)
    pages = [str(ROOT / "docs" / "results.md"), str(ROOT / "research" / "tables.md")]
    parser.add_argument("--pages", nargs="*", default=pages, help="pages to fill")
    options = parser.parse_args(given)
    rows, chosen, tables = all_tables(options.cells, options.ablations, RESULTS if options.pages else None)
    write(options.output / "main.csv", rows)
    if chosen:
        write(options.output / "ablations.csv", chosen)
    for page in options.pages:
        fill(Path(page), tables)
    print("\n\n".join(f"{name}\n\n{table}" for name, table in tables.items()))


if __name__ == "__main__":
    main()
