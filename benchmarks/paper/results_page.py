"""What docs/results.md shows: the paper beside ours, all methods in short, a ViT, and sentences with numbers.

Each function gives Markdown, or an empty text where the files that it needs are not there yet.
"""

import json

import numpy as np

from benchmarks.markdown import markdown
from benchmarks.paper import printed
from benchmarks.paper.beside import STAND_INS, calibration_table, choices_table, in_paper, methods_table
from benchmarks.paper.claims import CHOSEN_ON, JUDGED_ON, VIT, by_choice, of_protocol, signed
from benchmarks.paper.long_tables import NETWORKS, SHOWN, forms_table, in_order, titled
from benchmarks.paper.relation import group_of, relation_of, shifted
from benchmarks.row_files import read

__all__ = ["results_blocks"]

# Cells of the paper that can be had with our data: each of these with each network, and a ViT.
WANTED = [f"{data}-{network}" for data in ("cifar10", "cifar100", "tiny") for network in NETWORKS if network[0] in "rw"]
WANTED += [VIT]
LAYERS = {f"block{k}": f"block {k}" for k in (1, 2, 3, 4)} | {"last": "last layer", "all": "all"}
# Of a ViT "blocks" are thirds of the network: of the paper's 24, and of ours, which has six.
PAPERS_BLOCKS = {f"block {k}": f"block{k}" for k in (1, 2, 3)} | {"last layer": "last", "all": "all"}
PAPERS_BLOCKS |= {"blocks 1-8": "block1", "blocks 9-16": "block2", "blocks 17-24": "block3"}
FORMS = ("gdscore", "gdscore p=1.5", "gdscore whole", "confscore")


def pair(row):
    """R² (|ρ|), marked where the score went against its direction."""
    return f"{row['r2']:.3f}{'' if row['sign'] == 'as documented' else '‡'} ({abs(row['rho']):.3f})"


def difference(value, other):
    return f"{value - other:+.3f}".replace("-", "−")


def span(values, form="{:.3f}", between=" to "):
    """Lowest and highest of some numbers."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low}{between}{high}"


def trained_networks(training):
    """Epochs and accuracies on held-out images of the networks of each benchmark, the first seed's."""
    found = {}
    for row in training:
        if row["seed"] == 0:
            split = "" if row["split"] == "train" else f"-{row['split']}"
            found.setdefault(group_of(f"{row['data']}{split}-{row['network']}")[0], []).append(row)
    return found


def beside_table(main, training):
    """The paper's R² (ρ) of GdScore, ours by its protocol, and ours deployed, benchmark by benchmark."""
    networks = trained_networks(training)
    heads = ("data, network", "epochs, accuracy %", "sets", "paper", "published", "− paper", "deployed", "− paper")
    lines = []
    for name in in_order(dict.fromkeys(name for name, *_ in main)):
        published, deployed = (of_protocol(main, name, protocol) for protocol in ("published", "deployed"))
        there = [row for row in (published, deployed) if row]
        if not there:
            continue
        reached = [100 * row["validation_accuracy"] for row in networks.get(name, [])]
        recipe = f"{networks[name][0]['epochs']:.0f}, {span(reached, '{:.1f}', '–')}" if reached else "–"
        line = [titled(name), recipe, ", ".join(dict.fromkeys(f"{row['sets']:.0f}" for row in there))]
        theirs, rho = in_paper(name), in_paper(name, metric="rho")
        stands_in = len(STAND_INS.get(name.rpartition("-")[0], ())) > 1
        line.append("" if theirs is None else f"{theirs:.3f} ({rho:.3f}){'†' if stands_in else ''}")
        for row in (published, deployed):
            same = row is not None and row is published and row is deployed
            line.append("–" if row is None else "as deployed" if same and len(line) < 5 else pair(row))
            comparable = row is not None and theirs is not None and row["sign"] == "as documented"
            line.append(difference(row["r2"], theirs) if comparable else "")
        lines.append(line)
    return markdown(heads, lines)


def missing_text(main, training):
    """Cells that were not run, with the seconds of an epoch: measured, or for Tiny-ImageNet expected from CIFAR-100's."""
    seconds = {name: rows[0]["seconds"] / rows[0]["epochs"] for name, rows in trained_networks(training).items()}
    left = []
    for name in WANTED:
        if (name, "deployed", "gdscore") in main:
            continue
        smaller = name.replace("tiny", "cifar100")
        if name in seconds:
            left.append(f"{titled(name)} (trained, {seconds[name]:.0f} s an epoch)")
        elif smaller in seconds:
            # 95,000 images of 64 px in place of 45,000 of 32.
            expected = seconds[smaller] * 4 * 95 / 45
            left.append(f"{titled(name)} (about {expected:.0f} s an epoch)")
        else:
            left.append(titled(name))
    return "Not run: " + "; ".join([*left, "the paper's own recipe"]) + "."


def short_table(rows, chosen):
    """R² of every method, deployed: corruptions in short, other subpopulations, other domains, other class mixes."""
    own = [row for row in rows if row["protocol"] == "deployed" and np.isfinite(row["r2"])]
    mixed = {name: row for name, row in by_mix(chosen).items() if np.isfinite(row["r2"])}
    kinds = {
        "subpopulations": lambda name: name.startswith("cifar100sub"),
        "PACS, pretrained": lambda name: name.startswith("pacs128-"),
    }

    def values(method, chosen_ones):
        found = [row for row in own if row["method"] == method and chosen_ones(row["benchmark"])]
        return ", ".join(f"{row['r2']:.3f}{'' if row['sign'] == 'as documented' else '‡'}" for row in found)

    # Without a score, of the benchmarks with corruptions.
    synthetic = [row["constant"] for row in own if (row["method"], row["shift"]) == ("gdscore", "synthetic")]
    lines = []
    for method in SHOWN:
        found = [row for row in own if (row["method"], row["shift"]) == (method, "synthetic")]
        line = [f"`{method}`"]
        if found:
            r2, errors = ([row[key] for row in found] for key in ("r2", "mae"))
            sets = f", {len(found)} only" if len(found) < len(synthetic) else ""
            line += [f"{np.median(r2):.3f} ({min(r2):.3f}{sets})", f"{np.mean(errors):.1f}"]
        else:
            line += [""] * 2
        line += [values(method, chosen_ones) for chosen_ones in kinds.values()]
        line.append(f"{mixed[method]['r2']:.3f}" if method in mixed else "")
        if any(line[1:]):
            lines.append(line)
    lines.append(["no score", "", f"{np.mean(synthetic):.1f}" if synthetic else "", *[""] * (len(kinds) + 1)])
    heads = ("method", "corruptions", "error", *kinds, "class mixes")
    return markdown(heads, lines)


def by_mix(chosen, alpha=0.1):
    """Rows of the strongest mix of classes, by score."""
    rows = [row for row in chosen if (row["ablation"], row["source"], row["alpha"]) == ("labelshift", CHOSEN_ON, alpha)]
    return {row["choice"]: row for row in rows}


def adapted_text(main, cells):
    """What the released protocol's adaptation does to the sets on which GdScore fails."""
    files = [cells / protocol / f"{CHOSEN_ON}.csv" for protocol in ("deployed", "published")]
    if not all(file.exists() for file in files):
        return ""
    deployed, published = (read(file) for file in files)
    low = [100 * min(row["accuracy"] for row in shifted(rows)) for rows in (deployed, published)]
    half = [row for row in shifted(deployed) if row["accuracy"] < deployed[0]["accuracy"] / 2]
    ours, cott = (relation_of(half, name)["r2"] for name in ("gdscore", "cott"))
    scores = {name: row["r2"] for name in SHOWN if (row := main.get((CHOSEN_ON, "published", name)))}
    least, most = min(scores, key=scores.get), max(scores, key=scores.get)
    return (
        f"On CIFAR-10 with ResNet-18, the adaptation raises the lowest of {len(shifted(deployed))} accuracies from "
        f"{low[0]:.1f} % to {low[1]:.1f} % and so removes the sets on which GdScore fails: over the {len(half)} sets that keep less than "
        f"half of the accuracy when deployed, its R² is {ours:.3f} and that of COTT {cott:.3f}. By the published protocol all scores "
        f"have R² from {scores[least]:.3f} (`{least}`) to {scores[most]:.3f} (`{most}`)."
    )


def crossed_text(main):
    """GdScore with the statistics of each batch against the accuracy of the deployed model, on PACS."""
    found = {
        kind: [row for (name, *_), row in main.items() if name.startswith(kind) and row["protocol"] == "crossed"]
        for kind in ("pacs128-", "pacs-")
    }
    texts = []
    for rows in found.values():
        ours = [row for row in rows if row["method"] == "gdscore"]
        others = [max(row["r2"] for row in rows if row["benchmark"] == own["benchmark"]) for own in ours]
        first = bool(ours) and all(own["r2"] == best for own, best in zip(ours, others, strict=True))
        texts.append(", ".join(f"{row['r2']:.3f}" for row in ours) + (" (the highest of all scores)" if first else ""))
    if not all(texts):
        return ""
    return f"R² {texts[0]} on PACS with pretrained networks, {texts[1]} from scratch"


def options_text(chosen):
    """R² by batch size, order, rows and seed of the random labels."""
    found = {name: by_choice(chosen, name, CHOSEN_ON) for name in ("batches", "order", "rows", "seeds")}
    if not all(found.values()):
        return ""
    batches, order, rows, seeds = found.values()
    sizes = "; ".join(
        f"{label} {signed(batches[f'batch={size}'])}"
        for size, label in ((32, "32 rows"), (512, "512"), (None, "whole set"))
    )
    counts = "; ".join(f"{count:,} {signed(rows[f'rows={count}'])}" for count in (100, 1000, 10_000))
    return (
        f"**Batch size**: {sizes}. **Order**: rows sorted by class {signed(order['sorted'])} instead of "
        f"{signed(order['shuffled'])}. **Rows**: {counts}. **Seeds of the random labels**: "
        f"{span([row['r2'] for row in seeds.values()])}."
    )


def forms_text(rows):
    """How much R² depends on the form of the images and on the seed of the network."""
    networks = {}
    for row in shifted(rows):
        networks.setdefault((row["trained on"], row["seed"], row["images"]), []).append(row)
    if not networks:
        return ""
    r2 = {name: {key: relation_of(own, name)["r2"] for key, own in networks.items()} for name in FORMS}
    ours = r2["gdscore"]
    forms = sorted({form for *_, form in networks})
    apart = [abs(np.subtract(*(ours[data, seed, form] for form in forms))) for data, seed, _ in networks]
    above = [100 * np.mean([row["over tau"] for row in own if row["accuracy"] < 0.25]) for own in networks.values()]
    seeds = ", ".join(f"{ours[key]:.3f}" for key in sorted(networks) if key[0] == key[2] == forms[0])
    return (
        f"the same network has the same R² on both to {max(apart):.2f}, and different seeds give {seeds}. With p = 1.5 "
        f"R² is {span(r2['gdscore p=1.5'].values())}, with the whole set as one batch {span(r2['gdscore whole'].values())}. Where "
        f"accuracy is below 25 %, {span(above, '{:.0f}')} % of the rows are above τ"
    )


def gpu_text(file):
    """Cost beside a forward pass, from `benchmarks/speed/scores_on_gpu.py`."""
    found = json.loads(file.read_text())
    ratio = found["ratio_to_forward"]
    return (
        f"{len(found['compute_seconds'])} scores together cost {ratio['all']:.2f} forward passes, GdScore "
        f"{ratio['gdscore']:.2f}, the released algorithm {ratio['released']:.2f}; {found['projnorm_steps']} steps of ProjNorm "
        f"take {found['projnorm_over_gdscore']:.0f} times GdScore"
    )


def thresholds_table(chosen, chosen_published):
    """R² by τ: the paper's, and ours by both protocols."""
    theirs = {name: printed.table("threshold", name, "ResNet18") for name in printed.data_sets("threshold")}
    ours = {"CIFAR-10, published": by_choice(chosen_published, "thresholds", CHOSEN_ON)}
    ours |= {f"{titled(name)}, deployed": by_choice(chosen, "thresholds", name) for name in (CHOSEN_ON, *JUDGED_ON)}
    return choices_table("τ", {f"tau={k / 10:g}": f"{k / 10:g}" for k in range(11)}, theirs, ours)


def layers_table(chosen, chosen_published):
    """R² by the parameters that the gradient is of: the paper's, and ours by both protocols."""
    paper = {
        label: {PAPERS_BLOCKS[name]: value for name, value in printed.table("layers", "CIFAR-10", network).items()}
        for label, network in (("ResNet-18", "ResNet18"), ("ViT", "ViT"))
    }
    ours = {"ResNet-18, published": by_choice(chosen_published, "layers", CHOSEN_ON)}
    ours |= {"ResNet-18, deployed": by_choice(chosen, "layers", CHOSEN_ON), "ViT": by_choice(chosen, "layers", VIT)}
    return choices_table("gradient by", LAYERS, paper, ours)


def results_blocks(rows, chosen, chosen_published, cells, results):
    """Blocks of the page by the name of their mark; `results` is the folder of what is not a cell or an ablation."""
    main = {(row["benchmark"], row["protocol"], row["method"]): row for row in rows}
    training, forms = read(results / "training.csv"), read(results / "image_forms.csv")
    return {
        "beside": f"{beside_table(main, training)}\n\n{missing_text(main, training)}".strip(),
        "scores_in_short": short_table(rows, chosen),
        "adapted": adapted_text(main, cells),
        "crossed": crossed_text(main),
        "options": options_text(chosen),
        "seed": forms_text(forms),
        "forms": forms_table(forms, FORMS),
        "calibration": calibration_table(cells),
        "gpu": gpu_text(results / "speed_gpu.json"),
        "methods_beside": methods_table(main),
        "methods_beside_rho": methods_table(main, "rho"),
        "thresholds": thresholds_table(chosen, chosen_published),
        "layers": layers_table(chosen, chosen_published),
        "printed_averages": printed.averages_table(),
        "printed_text": printed.averages_text(),
    }
