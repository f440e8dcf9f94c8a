"""The paper's claims judged by what was measured, and choices made on one data set judged on others, as Markdown."""

import numpy as np

from benchmarks.markdown import markdown
from benchmarks.paper import printed
from benchmarks.paper.long_tables import SHOWN, TITLES, in_order, titled

__all__ = [
    "DEFAULTS",
    "NEAR",
    "by_choice",
    "claims_table",
    "of_protocol",
    "signed",
    "transfer_table",
]

# A choice of GdScore, or another score, has to be ahead by more than this.
NEAR = 0.02
# What the paper chose, by the ablation that looks at it.
DEFAULTS = {"norms": "p=0.3", "thresholds": "tau=0.5", "batches": "batch=128", "labels": "mixed"}
DEFAULTS |= {"losses": "cross_entropy", "layers": "last"}
BELOW_ONE = ("p=0.1", "p=0.3", "p=0.5", "p=0.8")
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


def ahead(main, benchmark, protocol):
    """Scores with a higher R² than GdScore on its sets, or None where GdScore has none."""
    ours = of_protocol(main, benchmark, protocol)
    if ours is None:
        return None
    # ProjNorm has sets of its own.
    others = [row for name in SHOWN if name != "projnorm" and (row := main.get((benchmark, protocol, name)))]
    return [row["method"] for row in others if row["r2"] > ours["r2"]]


def best_line(main, benchmarks):
    """Whether no score is above GdScore."""
    texts, true = [], []
    for protocol in ("published", "deployed"):
        found = {name: others for name in benchmarks if (others := ahead(main, name, protocol)) is not None}
        first = [name for name, others in found.items() if not others]
        true.append([name in first for name in found])
        named = f" ({'; '.join(map(titled, first))})" if first else ""
        texts.append(f"{len(first)} of {len(found)}{named}" if found else "")
    own = f"{printed.ranked_text('rho')}; {printed.ranked_text('r2')}"
    return ["best of its scores on 10 of 11 data sets", own, *texts, verdict(*true)]


def high_line(main):
    """Whether R² is above 0.99 on CIFAR-100."""
    names = [name for name in in_order({name for name, *_ in main}) if name.startswith("cifar100-")]
    texts, true = [], []
    for protocol in ("published", "deployed"):
        rows = [row for name in names if (row := of_protocol(main, name, protocol))]
        texts.append(", ".join(f"{row['r2']:.3f}" for row in rows))
        true.append([row["r2"] > 0.99 for row in rows])
    own = ", ".join(f"{printed.number('CIFAR-100', network):.3f}" for network in printed.NETWORKS)
    return ["R² above 0.99 on CIFAR-100 (ResNet-18, ResNet-50, WRN-50-2)", own, *texts, verdict(*true)]


def rival_line(main, benchmarks, method, named):
    """Whether GdScore's R² is above that of another score."""
    texts, true = [], []
    for protocol in ("published", "deployed"):
        pairs = [[of_protocol(main, name, protocol, score) for score in ("gdscore", method)] for name in benchmarks]
        won = [ours["r2"] > theirs["r2"] for ours, theirs in pairs if ours and theirs]
        texts.append(f"{sum(won)} of {len(won)}" if won else "")
        true.append(won)
    return [f"higher R² than {named}", printed.rival_text(method), *texts, verdict(*true)]


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


def choice_text(rows, default):
    """R² of the paper's choice, and of the best other one; and whether that is not ahead by more than `NEAR`."""
    others = {name: row for name, row in rows.items() if name != default}
    best, ours = picked(others), rows[default]
    other = f"{others[best]['r2']:.3f} ({plain(best)})" if best else "none that falls"
    return f"{signed(ours)} against {other}", ours["rho"] < 0 and (
        best is None or ours["r2"] >= others[best]["r2"] - NEAR
    )


def choice_lines(chosen, chosen_published):
    """Claims about GdScore's choices, on every benchmark that they were looked at on."""
    claims = {
        "thresholds": ("τ = 0.5 is the best threshold", printed.choice_text("threshold", "tau=0.5")),
        "norms": ("a norm with p < 1 is the best", ""),
        "layers": ("the last layer is enough", printed.choice_text("layers", "last layer")),
        "labels": ("mixed labels are the best", ""),
        "epochs": ("more epochs add little to one step", ""),
    }
    for ablation, (claim, own) in claims.items():
        texts, true = [], []
        for rows in (chosen_published, chosen):
            found = {}
            for source in (CHOSEN_ON, VIT, *JUDGED_ON):
                choices = by_choice(rows, ablation, source)
                default = "epochs=0" if ablation == "epochs" else DEFAULTS[ablation]
                if ablation == "norms":
                    below = {name: row for name, row in choices.items() if name in BELOW_ONE}
                    default = picked(below) or default
                    choices = {name: row for name, row in choices.items() if name == default or name not in below}
                if default in choices:
                    text, holds = choice_text(choices, default)
                    found[f"{titled(source, network=source == VIT)} {text}"] = holds
            texts.append("; ".join(found))
            true.append(list(found.values()))
        if any(texts):
            yield [claim, own, *texts, verdict(*true)]


def projnorm_lines(chosen, runtime):
    """GdScore beside ProjNorm: seconds on one set, and R² on the sets that both were measured on."""
    times = [(row["times_gdscore"], row["device"]) for _, row in runtime if row["method"] == "projnorm"]
    if times:
        text = ", ".join(f"{100 * (1 - 1 / ratio):.0f} % ({device}, 1/{ratio:.0f})" for ratio, device in times)
        yield ["80 % faster than ProjNorm", "", "", text, verdict([], [ratio > 5 for ratio, _ in times])]
    texts, true = [], []
    for source in in_order({row["source"] for row in chosen if row["ablation"] == "projnorm"}):
        rows = by_choice(chosen, "projnorm", source)
        if {"projnorm", "gdscore"} <= rows.keys():
            texts.append(f"{titled(source)} {signed(rows['gdscore'])} against {signed(rows['projnorm'])}")
            true.append(rows["gdscore"]["rho"] < 0 and rows["gdscore"]["r2"] > rows["projnorm"]["r2"])
    if texts:
        yield ["higher R² than ProjNorm", printed.rival_text("projnorm"), "", "; ".join(texts), verdict([], true)]


def claims_table(rows, chosen, chosen_published, runtime):
    """Each claim of the paper: what its own tables, ours by its protocol and ours deployed show, and what it comes to."""
    main = {(row["benchmark"], row["protocol"], row["method"]): row for row in rows}
    benchmarks = in_order({row["benchmark"] for row in rows if row["protocol"] == "deployed"})
    lines = [best_line(main, benchmarks), high_line(main), *choice_lines(chosen, chosen_published)]
    lines += [
        rival_line(main, benchmarks, *rival) for rival in (("gradnorm", "GradNorm"), ("nuclear", "the nuclear norm"))
    ]
    lines += projnorm_lines(chosen, runtime)
    return markdown(("claim", "the paper's own cells", "ours, published", "ours, deployed", "verdict"), lines)
