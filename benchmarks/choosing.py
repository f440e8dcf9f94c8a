"""What should a cautious estimate look at? Chosen on networks and splits that are not reported on.

    python benchmarks/choosing.py                   # from the committed cells, seconds on a CPU

Reads the cells of ``sources.DEVELOPMENT``, made as in ``benchmarks/README.md``: PACS with the small network, digits with
ResNet-18, other splits of CIFAR-100's subclasses. Every candidate is a list of views; an estimate is the lowest of what
the shifted sets nearest in each view say. Writes ``benchmarks/results/choosing.csv``, errors in points by candidate, and
the table of ``docs/estimator.md``.
"""

import argparse
from pathlib import Path

import numpy as np

from estimates import POPULATION, RESULTS, ROOT, benchmark_of, family, fitted, read, write
from gdscore.estimator.interval import LeftOut
from gdscore.estimator.regress import NEIGHBOURS, VAGUE, Cautious
from gdscore.shifts.families import is_made_of_outputs
from tables_page import fill, markdown

CELLS = RESULTS / "development"
# Name here: score of the library, column of the cells.
SCORES = {name: (name, column) for name, column in POPULATION.items()}
SCORES |= {name: (name, f"{name}@T") for name in ("atc", "cott")}
SCORES |= {name: (name, name) for name in ("gradnorm", "gdscore", "entropy", "mano")}
SCORES |= {"itself": ("selfscore", "selfscore"), "peer": ("agreescore", "soft")}
TITLES = {"pacs": "PACS", "digits": "digits", "cifar100sub": "CIFAR-100"}
CHOSEN = {
    "without a second opinion": "atc",
    "with the model itself": "atc | itself",
    "with a second model": "atc | peer",
    "with both": "atc | itself | peer",
}
CANDIDATES = ("", "confscore", "mano", "entropy", "gradnorm", "gdscore", "cott", "atc")
CANDIDATES += (
    "+itself",
    "itself",
    "atc | itself",
    "+peer",
    "peer",
    "atc | peer",
    "itself | peer",
    "atc | itself | peer",
)
# Deviations up to which a view has its say, and from which on it has none; the first: it always has.
LIMITS = ((9.0, 9.0), (0.2, 0.2), (0.175, 0.175), (0.1, 0.2), (0.1, 0.3), (0.15, 0.25), (0.2, 0.3), VAGUE)


def named(candidate):
    """Scores of rows that a candidate names."""
    return [name.strip() for name in candidate.split("|") if name.strip()]


def views_of(candidate):
    """Views of a candidate: the population's, with what follows a plus, then confidence with each score named."""
    if candidate.startswith("+"):
        return [[*POPULATION, candidate[1:]]]
    return [list(POPULATION), *(list(dict.fromkeys(["confscore", name])) for name in named(candidate))]


class Table:
    """Transformed scores of a source's shifted sets and of the sets it meets."""

    def __init__(self, cells, source):
        meta = read(cells / "shifted_sets" / f"{source}.csv")
        sets = read(cells / "deployed" / f"{source}.csv") + read(cells / "mixed" / f"{source}.csv")
        self.families, self.x, self.met = [family(row) for row in meta], {}, []
        values = {}
        for name, (score, column) in SCORES.items():
            table = fitted(meta, {score: column}, "nearest").table
            self.x[name], self.y, self.accuracy = table.x()[:, 0], table.y(), table.accuracy
            values[name] = [
                table.transformed({score: float(row[column])}, int(row["n"]))[0] if column in row else np.nan
                for row in sets
            ]
        for index, row in enumerate(sets):
            kind = row["family"] if row["family"] in ("unshifted", "label-shift") else benchmark_of(source)
            self.met.append((kind, float(row["accuracy"]), {name: v[index] for name, v in values.items()}))

    def errors(self, views, neighbours, vague):
        """Kind of set and error in points: of the sets met, and of families of shifted sets left out."""
        names = list(dict.fromkeys(name for view in views for name in view))
        x = np.array([self.x[name] for name in names]).T
        regressor = Cautious(x, self.y, [[names.index(name) for name in view] for view in views], neighbours, vague)
        for kind, truth, scores in self.met:
            query = np.array([scores[name] for name in names])
            if not np.isnan(query).any():
                yield kind, 100 * (accuracy(regressor.predict(query[None])[0]) - truth)
        left_out = accuracy(LeftOut.make(regressor, self.families).predicted) - self.accuracy
        for name, error in zip(self.families, left_out, strict=True):
            if not is_made_of_outputs(name):
                yield "left out", 100 * error


def accuracy(logit):
    return 1 / (1 + np.exp(-logit))


def judged(tables, candidate, neighbours=NEIGHBOURS, vague=VAGUE):
    """Mean absolute errors of a candidate by kind of set, and of all natural pairs."""
    kinds = {}
    for table in tables:
        for kind, error in table.errors(views_of(candidate), neighbours, vague):
            kinds.setdefault(kind, []).append(abs(error))
    kinds["natural"] = [error for name in TITLES for error in kinds[name]]
    found = {
        kind: round(float(np.mean(kinds[kind])), 3) if kind in kinds else ""
        for kind in ("natural", *TITLES, "label-shift", "unshifted", "left out")
    }
    limits = " to ".join(f"{limit:g}" for limit in dict.fromkeys(vague)) if vague[1] < 1 else "none"
    return {"views": candidate, "neighbours": neighbours, "vague": limits, "pairs": len(kinds["natural"])} | found


def page_table(lines):
    chosen = {views: why for why, views in CHOSEN.items()}

    def title(line):
        views = line["views"]
        name = f"population with {views[1:]}" if views.startswith("+") else " \\| ".join(["population", *named(views)])
        if line["neighbours"] != NEIGHBOURS:
            return f"{name}, {line['neighbours']} neighbours"
        return f"**{name}**, taken {chosen[views]}" if views in chosen else name

    kinds = {"natural": "natural", **TITLES, "label-shift": "class mixes", "unshifted": "unshifted"}
    kinds["left out"] = "families left out"
    usual = lines[0]["vague"]
    lines = [line for line in lines if line["vague"] == usual]
    rows = [[title(line), *(f"{line[k]:.1f}" if line[k] != "" else "" for k in kinds)] for line in lines]
    return markdown(["views", *kinds.values()], rows)


def limits_table(lines):
    """Error on the natural pairs by where views lose their say, for every set of views taken."""
    by = {}
    for line in lines:
        if line["views"] in CHOSEN.values() and line["neighbours"] == NEIGHBOURS:
            by.setdefault(line["vague"], {})[line["views"]] = line
    rows = []
    for limits, found in by.items():
        natural = [found[views]["natural"] for views in CHOSEN.values()]
        mixes, left = found[CHOSEN["without a second opinion"]]["label-shift"], found["atc"]["left out"]
        rows.append([limits, *(f"{n:.1f}" for n in (*natural, np.mean(natural), mixes, left))])
    return markdown(["deviation", *CHOSEN, "mean", "class mixes, alone", "families left out, alone"], rows)


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=CELLS)
    parser.add_argument("--output", type=Path, default=RESULTS / "choosing.csv")
    parser.add_argument("--page", default=str(ROOT / "docs" / "estimator.md"), help="page to fill; empty for none")
    options = parser.parse_args(given)
    tables = [Table(options.cells, file.stem) for file in sorted((options.cells / "shifted_sets").glob("*.csv"))]
    lines = [judged(tables, candidate) for candidate in CANDIDATES]
    lines += [judged(tables, "atc", neighbours) for neighbours in (3, 5, 10, 15)]
    lines += [judged(tables, views, vague=vague) for vague in LIMITS if vague != VAGUE for views in CHOSEN.values()]
    write(options.output, lines)
    if options.page:
        fill(Path(options.page), {"choosing": page_table(lines), "limits": limits_table(lines)})
    for line in lines:
        print(
            f"{line['views'] or 'population':<22} {line['neighbours']:>2} neighbours  natural {line['natural']:>5.1f}"
        )


if __name__ == "__main__":
    main()
