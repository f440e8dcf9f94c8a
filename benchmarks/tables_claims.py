"""The paper's claims beside what was measured, and choices made on one data set judged on others, as Markdown."""

import numpy as np

from tables_page import SHOWN, TITLES, markdown

__all__ = ["DEFAULTS", "claims_table", "transfer_table"]

# What the paper chose, by the ablation that looks at it.
DEFAULTS = {"norms": "p=0.3", "thresholds": "tau=0.5", "batches": "batch=128", "labels": "mixed"}
DEFAULTS |= {"losses": "cross_entropy", "layers": "last"}
CHOSEN_ON, JUDGED_ON = "cifar10-resnet18", ("cifar100-resnet18", "pacs128-lite0")
ORACLE = "true"
RELATED = {
    "GdScore has R² 0.971 and ρ 0.994 on CIFAR-10 with ResNet-18, and is ahead of other scores": (CHOSEN_ON,),
    "So it is with other networks and data under corruptions": (
        *("cifar10-resnet50", "cifar10-wrn50_2", "cifar100-resnet18", "cifar100-resnet50", "tiny-resnet18"),
    ),
    "Under natural shift, with networks pretrained on ImageNet": ("pacs128-lite0", "pacs128-lite1"),
    "The same with networks trained from scratch": ("pacs-resnet18", "digits-small"),
    "Under subpopulation shift and corruptions": ("cifar100sub-resnet18",),
}


def plain(choice):
    return choice.rpartition("=")[2].replace("None", "whole set").replace("_", "-")


def related(main, benchmark, protocol):
    """R² / |ρ| of GdScore, how many of the other scores have a higher R², and the number of sets."""
    own = main.get((benchmark, protocol, "gdscore"))
    if own is None or not np.isfinite(own["r2"]):
        return None
    # ProjNorm has sets of its own.
    others = [main[key] for name in SHOWN if name != "projnorm" and (key := (benchmark, protocol, name)) in main]
    others = [row["r2"] for row in others if row["method"] != "gdscore"]
    ahead = sum(value > own["r2"] for value in others)
    sign = "" if own["sign"] == "as documented" else "‡"
    return f"{own['r2']:.3f}{sign} / {abs(own['rho']):.3f}, {ahead} of {len(others)} ahead, {own['sets']:.0f} sets"


def related_lines(main):
    for claim, benchmarks in RELATED.items():
        cells = []
        for protocol in ("published", "deployed"):
            found = {name: text for name in benchmarks if (text := related(main, name, protocol))}
            cells.append("<br>".join(text if len(found) == 1 else f"{name}: {text}" for name, text in found.items()))
        if any(cells):
            yield [claim, *(cell or "–" for cell in cells)]


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
        "norms": "p = 0.3 is the norm to take",
        "thresholds": "τ = 0.5 is the threshold to take",
        "labels": "Mixed labels are what makes it work",
        "layers": "The last layer is enough",
        "epochs": "More epochs add little to one step",
    }
    for ablation, claim in claims.items():
        texts = []
        for source in (CHOSEN_ON, *JUDGED_ON):
            own = by_choice(chosen, ablation, source)
            default = "epochs=0" if ablation == "epochs" else DEFAULTS[ablation]
            if default not in own:
                continue
            rows = [row for name, row in own.items() if name not in (default, ORACLE) and "," not in name]
            best = max((row for row in rows if row["rho"] < 0), key=lambda row: row["r2"], default=None)
            other = f", highest of the {len(rows)} others {best['r2']:.3f} ({plain(best['choice'])})" if best else ""
            texts.append(f"{source}: {signed(own[default])}{other}, {own[default]['sets']} sets")
        if texts:
            yield [claim, "–", "<br>".join(texts)]


def cost_line(chosen, runtime):
    """GdScore beside ProjNorm: seconds on one set, and R² on the sets that both were measured on."""
    texts = []
    for source, row in runtime:
        if row["method"] == "projnorm":
            texts.append(
                f"{source}, {row['device']}: ProjNorm takes {row['times_gdscore']:.0f} times as long "
                f"({row['n']:.0f} rows, {row['seconds']:.3g} s)"
            )
    for source in sorted({row["source"] for row in chosen if row["ablation"] == "projnorm"}):
        own = by_choice(chosen, "projnorm", source)
        if {"projnorm", "gdscore"} <= own.keys():
            pair = " against ".join(signed(own[name]) for name in ("projnorm", "gdscore"))
            texts.append(f"{source}: R² of ProjNorm {pair} of GdScore, {own['projnorm']['sets']} sets")
    return ["It is cheaper than ProjNorm, and ahead of it", "–", "<br>".join(texts)] if texts else None


def claims_table(rows, chosen, runtime):
    """Claims down; measured by the paper's protocol and deployed across."""
    main = {(row["benchmark"], row["protocol"], row["method"]): row for row in rows}
    lines = [*related_lines(main), *choice_lines(chosen)]
    cost = cost_line(chosen, runtime)
    lines += [cost] if cost else []
    return markdown(("the paper", "here, by its protocol", "here, deployed"), lines)
