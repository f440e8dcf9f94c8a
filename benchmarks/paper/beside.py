"""The paper's tables beside ours, as Markdown: every method, thresholds, layers and calibration errors.

PACS and digits stand in for the paper's natural shifts, and CIFAR-100's superclasses for its subpopulation shifts: ours are reported
under their own names, beside the mean of the paper's cells of the same network.
"""

import numpy as np

from benchmarks.markdown import markdown
from benchmarks.paper import printed
from benchmarks.paper.long_tables import in_order, titled
from benchmarks.paper.relation import shifted
from benchmarks.row_files import read

__all__ = ["STAND_INS", "calibration_table", "choices_table", "in_paper", "methods_table", "usable"]

STAND_INS = {"cifar10": ("CIFAR-10",), "cifar100": ("CIFAR-100",), "tiny": ("TinyImageNet",)}
STAND_INS |= dict.fromkeys(("pacs", "pacs128"), ("Office-31", "Office-Home"))
STAND_INS |= {"cifar100sub": ("Entity-13", "Entity-30", "Living-17", "Nonliving-26"), "digits": ("Camelyon17-WILDS",)}
SAME_NETWORK = dict(zip(("resnet18", "resnet50", "wrn50_2"), printed.NETWORKS, strict=True))
METHODS = ("rotation", "confscore", "entropy", "agreescore", "atc", "frechet", "dispersion", "projnorm", "gdscore")
METHODS += ("nuclear", "gradnorm")


def in_paper(benchmark, method="gdscore", metric="r2"):
    """The paper's number for the same network, a mean over data sets where ours stands in for several; None without one."""
    data, _, network = benchmark.rpartition("-")
    table = method if method in ("nuclear", "gradnorm") else "main"
    cells = [
        printed.number(name, SAME_NETWORK.get(network), method, metric, of=table) for name in STAND_INS.get(data, ())
    ]
    cells = [cell for cell in cells if cell is not None]
    return float(np.mean(cells)) if cells else None


def methods_table(main, metric="r2"):
    """The paper's number, ours by the published protocol and ours deployed, of each method and each network that both have."""
    benchmarks = [name for name in in_order(dict.fromkeys(name for name, *_ in main)) if in_paper(name) is not None]
    lines = []
    for method in METHODS:
        line = [f"`{method}`"]
        for name in benchmarks:
            rows = [main.get((name, protocol, method)) for protocol in ("published", "deployed")]
            numbers = [in_paper(name, method, metric), *(abs(row[metric]) if row else None for row in rows)]
            texts = ["–" if number is None or np.isnan(number) else f"{number:.3f}" for number in numbers]
            line.append("/<wbr>".join(texts))  # wide tables may wrap there
        lines.append(line)
    return markdown(("method", *map(titled, benchmarks)), lines)


def usable(row):
    """Whether a choice of GdScore falls with accuracy, as it is documented to."""
    return row["rho"] < 0


def choices_table(head, choices, theirs, ours):
    """R² by choice, the highest of each column in bold: the paper's columns (choice → number), then ours (choice → row).

    ‡ marks a score that rises with accuracy, which is never the highest.
    """
    columns = [{choice: (value, True) for choice, value in numbers.items()} for numbers in theirs.values()]
    columns += [{choice: (row["r2"], usable(row)) for choice, row in rows.items()} for rows in ours.values()]
    lines = []
    for choice, label in choices.items():
        line = [label]
        for column in columns:
            value, falls = column.get(choice, (None, False))
            best = max((number for name, (number, good) in column.items() if good and name in choices), default=None)
            text = "–" if value is None else f"{value:.3f}{'' if falls else '‡'}"
            line.append(f"**{text}**" if falls and value == best else text)
        lines.append(line)
    return markdown((head, *(f"paper, {title}" for title in theirs), *ours), lines)


def calibration_table(cells):
    """Calibration errors in points: the paper's and ours, without shift and by severity of brightness, and of other domains."""
    theirs = {key: 100 * value for key, value in printed.table("calibration", "CIFAR-10", "ResNet18").items()}
    offices = {key: 100 * value for key, value in printed.table("calibration", "Office-31", "ResNet18").items()}
    file = cells / "deployed" / "cifar10-resnet18.csv"
    ours = {row["set"]: 100 * row["ece"] for row in read(file)} if file.exists() else {}
    lines = []
    for severity in range(6):
        label = f"brightness {severity}" if severity else "ID"
        mine = ours.get(f"brightness-{severity}" if severity else "unshifted", np.nan)
        lines.append([f"CIFAR-10, {label if severity else 'no shift'}", f"{theirs[label]:.1f}", f"{mine:.1f}"])
    if worst := [value for name, value in ours.items() if name.endswith("-5")]:
        lines.append(["CIFAR-10, severity 5, median (highest)", "–", f"{np.median(worst):.1f} ({max(worst):.1f})"])
    for data, label in (("pacs", "from scratch"), ("pacs128", "pretrained")):
        files = sorted((cells / "deployed").glob(f"{data}-*.csv"))
        domains = [100 * row["ece"] for file in files for row in shifted(read(file))]
        office = ", ".join(f"{value:.1f}" for key, value in offices.items() if "ID" not in key)
        if domains:
            span = f"{min(domains):.0f} to {max(domains):.0f}"
            lines.append([f"other domains: Office-31; PACS, {label}", office, span])
    return markdown(("set", "paper", "ours"), lines)
