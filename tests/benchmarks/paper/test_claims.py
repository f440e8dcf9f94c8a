"""Claims and choices: when a claim holds, which row is picked, what is left out of the choice, and what the cells say."""

from benchmarks.paper.claims import claims_table, picked, transfer_table


def chosen(source, ablation, **choices):
    """Rows of one ablation; each choice has (R², ρ)."""
    facts = {"ablation": ablation, "source": source, "alpha": "", "sets": 95}
    return [facts | {"choice": name, "r2": r2, "rho": rho} for name, (r2, rho) in choices.items()]


LABELS = {"true": (0.99, -0.9), "random": (0.95, 0.9), "mixed": (0.5, -0.8), "expected": (0.6, -0.8)}


def lines(table):
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]


def test_neither_the_oracle_nor_a_score_that_rises_is_picked():
    rows = {row["choice"]: row for row in chosen("a", "labels", **LABELS)}
    assert picked(rows) == "expected"
    assert picked({"random": rows["random"]}) is None


def test_a_choice_of_one_benchmark_is_judged_on_another():
    rows = chosen("cifar10-resnet18", "labels", **LABELS)
    rows += chosen("cifar100-resnet18", "labels", mixed=(0.7, -0.9), expected=(0.4, 0.3), pseudo=(0.8, -0.9))
    rows += chosen("cifar10-resnet18", "norms", **{"p=0.3": (0.7, -0.9), "p=2": (0.9, -0.9)})
    norms, labels = lines(transfer_table(rows))
    assert labels == ["labels", "mixed", "expected", "0.500, 0.600 (95 sets)", "0.700, 0.400‡, 0.800 (pseudo); 95 sets"]
    assert norms == ["norm p", "0.3", "2", "0.700, 0.900 (95 sets)", "–"]


def scored(benchmark, shift, protocol, *, sign="as documented", **values):
    """Rows of the main table; each method has its R²."""
    facts = {"benchmark": benchmark, "shift": shift, "protocol": protocol, "sets": 95, "refused": 0, "rho": 0.8}
    return [facts | {"sign": sign, "method": name, "r2": r2} for name, r2 in values.items()]


def by_claim(*given):
    return {line[0]: line[1:] for line in lines(claims_table(*given))}


def test_a_claim_of_a_high_r2_holds_by_one_protocol_or_both():
    rows = scored("cifar10-resnet18", "synthetic", "published", gdscore=0.96, atc=0.99)
    rows += scored("cifar10-resnet18", "synthetic", "deployed", gdscore=0.5, cott=0.9, atc=0.4, projnorm=0.99)
    for name, published, deployed in (("cifar10-resnet50", 0.9, 0.86), ("tiny-resnet18", 0.88, 0.87)):
        rows += scored(name, "synthetic", "published", gdscore=published)
        rows += scored(name, "synthetic", "deployed", gdscore=deployed)
    rows += scored("pacs128-lite0", "natural", "published", gdscore=0.9)
    rows += scored("pacs128-lite0", "natural", "deployed", gdscore=0.9, sign="against")
    rows += scored("pacs-resnet18", "natural", "published", gdscore=0.9) + scored(
        "digits-small", "natural", "published", gdscore=0.2
    )
    rows += scored("pacs-resnet18", "natural", "deployed", gdscore=0.1) + scored(
        "digits-small", "natural", "deployed", gdscore=0.2
    )
    found = by_claim(rows, [], [])
    assert found["R² 0.971 on CIFAR-10 with ResNet-18"] == ["only as published", "0.960", "0.500"]
    assert found["R² is high under corruptions elsewhere"] == ["holds", "0.880, 0.900", "0.860, 0.870"]
    assert found["R² is high under natural shift, pretrained"] == ["only as published", "0.900", "0.900‡"]
    scratch = found["R² is high under natural shift, from scratch"]
    assert scratch == ["in part, only as published", "0.200, 0.900", "0.100, 0.200"]
    assert "R² is high under subpopulation shift" not in found, "not measured"
    assert lines(claims_table(rows, [], []))[0][1] == "holds", "those that hold come first"


def test_scores_that_are_ahead_are_counted():
    rows = scored("cifar10-resnet18", "synthetic", "deployed", gdscore=0.5, cott=0.9, atc=0.4, projnorm=0.99)
    rows += scored("tiny-resnet18", "synthetic", "deployed", gdscore=0.5, cott=0.4, atc=0.4, **{"cott@T": 0.95})
    found = by_claim(rows, [], [])["its R² is the highest of all scores"]
    assert found == ["in part", "", "on 1 of 2 (Tiny-ImageNet, ResNet-18); median 0 of 2 ahead"]


def test_a_transformer_is_the_same_by_both_protocols():
    rows = scored("cifar10-vit", "synthetic", "deployed", gdscore=0.9)
    assert by_claim(rows, [], [])["R² is high with a ViT"] == ["holds", "0.900", "0.900"]
    layers = {"last": (0.7, -0.9), "block1": (0.71, -0.9), "all": (0.9, 0.9)}
    found = by_claim(rows, chosen("cifar10-vit", "layers", **layers), [])["the last layer is enough, 95 sets"]
    assert found == ["holds", "", "CIFAR-10, ViT 0.700 against 0.710 (block1)"]


def test_choices_and_cost():
    rows = chosen("cifar10-resnet18", "labels", **LABELS) + chosen("cifar100-resnet18", "labels", mixed=(0.3, -0.9))
    rows += chosen("cifar10-resnet18", "projnorm", gdscore=(0.5, -0.9), projnorm=(0.9, -0.9))
    facts = {"device": "cpu", "times_gdscore": 53.5, "n": 10, "seconds": 7.0}
    runtime = [("cifar10-small", facts | {"method": name}) for name in ("projnorm", "layers")]
    found = by_claim([], rows, runtime)
    mixed = "CIFAR-10 0.500 against 0.600 (expected); CIFAR-100 0.300 against none that falls"
    assert found["mixed labels are the best, 95 sets"] == ["in part", "", mixed]
    assert found["it is cheaper than ProjNorm"] == ["holds", "", "ProjNorm takes 54 (cpu) times as long"]
    assert found["it is ahead of ProjNorm, 95 sets"] == ["does not hold", "", "CIFAR-10 0.500 against 0.900"]
