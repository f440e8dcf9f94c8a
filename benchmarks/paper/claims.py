"""The paper's claims judged by what was measured, and choices made on one data set judged on others, as Markdown."""

import numpy as np

from benchmarks.markdown import markdown
from benchmarks.paper.long_tables import SHOWN, TITLES, titled

__all__ = [
    "DEFAULTS",
    "NEAR",
    "PAPER",
    "R2_HIGH",
    "by_choice",
    "claims_table",
    "of_protocol",
    "signed",
    "transfer_table",
]

# R² and ρ of GdScore in the paper, as far as they are at hand.
PAPER = {"cifar10-resnet18": (0.971, 0.994)}
# A claim of a high R² holds from this value on, and a choice holds where no other is ahead by more than `NEAR`.
R2_HIGH, NEAR = 0.85, 0.02
# What the paper chose, by the ablation that looks at it.
DEFAULTS = {"norms": "p=0.3", "thresholds": "tau=0.5", "batches": "batch=128", "labels": "mixed"}
DEFAULTS |= {"losses": "cross_entropy", "layers": "last"}
CHOSEN_ON, VIT = "cifar10-resnet18", "cifar10-vit"
JUDGED_ON = ("cifar100-resnet18", "pacs128-lite0")
ORACLE = "true"
VERDICTS = ("holds", "only as published", "in part", "in part, only as published", "does not hold")
# Train mode changes nothing in a network without BatchNorm and dropout: its deployed numbers are those of both protocols.
WITHOUT_BATCHNORM = (VIT,)


def plain(choice):
    return choice.rpartition("=")[2].replace("None", "whole set").replace("_", "-")


def of_protocol(main, benchmark, protocol, method="gdscore"):
    """The row of a method, or None; by the published protocol that of the deployed model where both are the same."""
    if protocol == "published" and benchmark in WITHOUT_BATCHNORM:
        protocol = "deployed"
    row = main.get((benchmark, protocol, method))
    return row if row and np.isfinite(row["r2"]) else None


def verdict(published, deployed):
    """What a claim comes to; each argument lists whether it is true of a benchmark, and is empty where none was run."""
    holds, only_published, in_part, part_published, fails = VERDICTS
    if deployed and all(deployed):
        return holds
    if published and all(published):
        return only_published
    if any(deployed):
        return in_part
    return part_published if any(published) else fails


def related_line(claim, main, benchmarks):
    """R² of GdScore on some benchmarks: true of one where it is high and the score falls with accuracy."""
    texts, true = [], []
    for protocol in ("published", "deployed"):
        found = {name: row for name in benchmarks if (row := of_protocol(main, name, protocol))}
        least = {name: PAPER[name][0] - NEAR if name in PAPER else R2_HIGH for name in found}
        true.append([row["sign"] == "as documented" and row["r2"] >= least[name] for name, row in found.items()])
        shown = sorted(found.values(), key=lambda row: row["r2"])
        marked = [f"{row['r2']:.3f}{'' if row['sign'] == 'as documented' else '‡'}" for row in shown]
        many = f"{marked[0]} to {marked[-1]} on {len(marked)}" if len(marked) > 2 else ", ".join(marked)
        texts.append(many)
    return [claim, verdict(*true), *texts]


def ahead(main, benchmark, protocol):
    """How many of the other scores have a higher R² than GdScore on its sets, and how many others there are."""
    own = main.get((benchmark, protocol, "gdscore"))
    if own is None or not np.isfinite(own["r2"]):
        return None
    # ProjNorm has sets of its own.
    others = [row for name in SHOWN if name != "projnorm" and (row := main.get((benchmark, protocol, name)))]
    others = [row["r2"] for row in others if row["method"] != "gdscore"]
    return sum(value > own["r2"] for value in others), len(others)


def ahead_line(main, benchmarks):
    texts, true = [], []
    for protocol in ("published", "deployed"):
        found = {name: counts for name in benchmarks if (counts := ahead(main, name, protocol))}
        first = [name for name, (higher, _) in found.items() if not higher]
        true.append([name in first for name in found])
        named = f" ({'; '.join(map(titled, first))})" if first else ""
        others = sorted(higher for higher, _ in found.values())
        most = max((count for _, count in found.values()), default=0)
        median = f"; median {np.median(others):.0f} of {most} ahead" if found else ""
        texts.append(f"on {len(first)} of {len(found)}{named}{median}" if found else "")
    return ["its R² is the highest of all scores", verdict(*true), *texts]


def related_lines(rows):
    main = {(row["benchmark"], row["protocol"], row["method"]): row for row in rows}
    shift = {row["benchmark"]: row["shift"] for row in rows if row["protocol"] == "deployed"}
    natural = [name for name, kind in shift.items() if kind == "natural"]
    pretrained = [name for name in natural if "-lite" in name]
    claims = {
        f"R² {PAPER[CHOSEN_ON][0]} on CIFAR-10 with ResNet-18": [name for name in shift if name == CHOSEN_ON],
        "R² is high under corruptions elsewhere": [
            name for name, kind in shift.items() if kind == "synthetic" and name not in (CHOSEN_ON, VIT)
        ],
        "R² is high with a ViT": [name for name in shift if name == VIT],
        "R² is high under natural shift, pretrained": pretrained,
        "R² is high under natural shift, from scratch": [name for name in natural if name not in pretrained],
        "R² is high under subpopulation shift": [name for name, kind in shift.items() if kind == "subpopulation"],
    }
    for claim, benchmarks in claims.items():
        if benchmarks:
            yield related_line(claim, main, benchmarks)
    yield ahead_line(main, shift)


def signed(row):
    """R² of a choice, marked where the score rises with accuracy."""
    return f"{row['r2']:.3f}{'‡' if row['rho'] > 0 else ''}"


def picked(own):
    """The choice with the highest R² among those that need no labels and have the documented direction."""
    usable = {name: row for name, row in own.items() if name != ORACLE and "," not in name and row["rho"] < 0}
    return max(usable, key=lambda name: usable[name]["r2"]) if usable else None


def by_choice(chosen, ablation, source):
    rows = [row for row in chosen if (row["ablation"], row["source"]) == (ablation, source)]
    return {row["choice"]: row for row in rows if np.isfinite(row["r2"])}


def transfer_table(chosen):
    """R² of the paper's choice, of the best one on CIFAR-10, and of the best one on each other benchmark itself."""
    others = [source for source in JUDGED_ON if any(row["source"] == source for row in chosen)]
    heads = ["choice of", "the paper's", f"best on {CHOSEN_ON}", CHOSEN_ON]
    heads += [f"{source}: the paper's, best on {CHOSEN_ON}, its own best" for source in others]
    lines = []
    for ablation, default in DEFAULTS.items():
        own = by_choice(chosen, ablation, CHOSEN_ON)
        best = picked(own)
        if best is None or default not in own:
            continue
        line = [TITLES.get(ablation, ablation), plain(default), plain(best)]
        line.append(f"{signed(own[default])}, {signed(own[best])} ({own[best]['sets']} sets)")
        for source in others:
            found = by_choice(chosen, ablation, source)
            if default not in found or best not in found:
                line.append("–")
                continue
            there = picked(found)
            highest = f"{found[there]['r2']:.3f} ({plain(there)})" if there else "none falls with accuracy"
            numbers = f"{signed(found[default])}, {signed(found[best])}, {highest}"
            line.append(f"{numbers}; {found[best]['sets']} sets")
        lines.append(line)
    return markdown(heads, lines)


def choice_lines(chosen):
    """Claims about GdScore's choices, on every benchmark that they were looked at on."""
    claims = {
        "norms": "p = 0.3 is the best norm",
        "thresholds": "τ = 0.5 is the best threshold",
        "labels": "mixed labels are the best",
        "layers": "the last layer is enough",
        "epochs": "more epochs add little to one step",
    }
    for ablation, claim in claims.items():
        texts, true, sets = [], [], []
        for source in (CHOSEN_ON, VIT, *JUDGED_ON):
            own = by_choice(chosen, ablation, source)
            default = own.pop("epochs=0" if ablation == "epochs" else DEFAULTS[ablation], None)
            if default is None:
                continue
            best = picked(own)
            other = f"{own[best]['r2']:.3f} ({plain(best)})" if best else "none that falls"
            texts.append(f"{titled(source, network=source == VIT)} {signed(default)} against {other}")
            true.append(default["rho"] < 0 and (best is None or default["r2"] >= own[best]["r2"] - NEAR))
            sets.append(default["sets"])
        if texts:
            yield [f"{claim}, {max(sets)} sets", verdict([], true), "", "; ".join(texts)]


def projnorm_lines(chosen, runtime):
    """GdScore beside ProjNorm: seconds on one set, and R² on the sets that both were measured on."""
    times = [(row["times_gdscore"], row["device"]) for _, row in runtime if row["method"] == "projnorm"]
    if times:
        text = "ProjNorm takes " + ", ".join(f"{ratio:.0f} ({device})" for ratio, device in times) + " times as long"
        yield ["it is cheaper than ProjNorm", verdict([], [ratio > 1 for ratio, _ in times]), "", text]
    texts, true, sets = [], [], []
    for source in sorted({row["source"] for row in chosen if row["ablation"] == "projnorm"}):
        own = by_choice(chosen, "projnorm", source)
        if {"projnorm", "gdscore"} <= own.keys():
            texts.append(
                f"{titled(source, network=not source.endswith(('-resnet18', '-small')))} {signed(own['gdscore'])} against {signed(own['projnorm'])}"
            )
            true.append(own["gdscore"]["rho"] < 0 and own["gdscore"]["r2"] > own["projnorm"]["r2"])
            sets.append(own["gdscore"]["sets"])
    if texts:
        yield [f"it is ahead of ProjNorm, {max(sets)} sets", verdict([], true), "", "; ".join(texts)]


def claims_table(rows, chosen, runtime):
    """Claims down, those that hold first; what they come to, then R² by the paper's protocol and deployed."""
    lines = [*related_lines(rows), *choice_lines(chosen), *projnorm_lines(chosen, runtime)]
    lines.sort(key=lambda line: VERDICTS.index(line[1]))
    return markdown(("the paper's claim", "verdict", "R², published", "R², deployed"), lines)
