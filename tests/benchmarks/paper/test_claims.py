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


def by_claim(rows, choices, choices_published, runtime):
    return {line[0]: line[1:] for line in lines(claims_table(rows, choices, choices_published, runtime))}


def test_the_papers_own_cells_say_on_how_many_data_sets_it_is_best():
    best = by_claim([], [], [], [])["best of its scores on 10 of 11 data sets"]
    assert best[0].startswith("ρ: 10 of 11 (Office-Home: rotation); R²: 8 of 11 (")
    assert best[1:] == ["", "", "does not hold"], "nothing was run"


def test_scores_that_are_ahead_are_counted():
    rows = scored("cifar10-resnet18", "synthetic", "deployed", gdscore=0.5, cott=0.9, atc=0.4, projnorm=0.99)
    rows += scored("tiny-resnet18", "synthetic", "deployed", gdscore=0.5, cott=0.4, atc=0.4, **{"cott@T": 0.95})
    found = by_claim(rows, [], [], [])["best of its scores on 10 of 11 data sets"]
    assert found[1:] == ["", "1 of 2 (Tiny-ImageNet, ResNet-18)", "in part"]


def test_a_high_r2_holds_by_one_protocol_or_both():
    rows = scored("cifar100-resnet18", "synthetic", "published", gdscore=0.995, nuclear=0.9)
    rows += scored("cifar100-resnet18", "synthetic", "deployed", gdscore=0.5, nuclear=0.9)
    found = by_claim(rows, [], [], [])
    high = found["R² above 0.99 on CIFAR-100 (ResNet-18, ResNet-50, WRN-50-2)"]
    assert high == ["0.987, 0.991, 0.995", "0.995", "0.500", "only as published"]
    nuclear = found["higher R² than the nuclear norm"]
    assert nuclear == ["10 of 18 cells, 4 of 6 data sets", "1 of 1", "0 of 1", "only as published"]


def test_a_transformer_is_the_same_by_both_protocols():
    rows = scored("cifar10-vit", "synthetic", "deployed", gdscore=0.9, atc=0.8)
    best = by_claim(rows, [], [], [])["best of its scores on 10 of 11 data sets"]
    assert best[1:3] == ["1 of 1 (CIFAR-10, ViT)"] * 2
    layers = {"last": (0.7, -0.9), "block1": (0.71, -0.9), "all": (0.9, 0.9)}
    found = by_claim(rows, chosen("cifar10-vit", "layers", **layers), [], [])["the last layer is enough"]
    assert found[1:] == ["", "CIFAR-10, ViT 0.700 against 0.710 (block1)", "holds"]


def test_choices_by_both_protocols_and_cost():
    rows = chosen("cifar10-resnet18", "labels", **LABELS) + chosen("cifar100-resnet18", "labels", mixed=(0.3, -0.9))
    rows += chosen("cifar10-resnet18", "projnorm", gdscore=(0.5, -0.9), projnorm=(0.9, -0.9))
    rows += chosen("cifar10-resnet18", "norms", **{"p=0.3": (0.5, -0.9), "p=0.8": (0.6, -0.9), "p=1.5": (0.7, -0.9)})
    published = chosen("cifar10-resnet18", "labels", mixed=(0.9, -0.9), pseudo=(0.91, -0.9))
    facts = {"device": "cpu", "times_gdscore": 50, "n": 10, "seconds": 7.0}
    runtime = [("cifar10-small", facts | {"method": name}) for name in ("projnorm", "layers")]
    found = by_claim([], rows, published, runtime)
    mixed = "CIFAR-10 0.500 against 0.600 (expected); CIFAR-100 0.300 against none that falls"
    assert found["mixed labels are the best"] == [
        "",
        "CIFAR-10 0.900 against 0.910 (pseudo)",
        mixed,
        "only as published",
    ]
    below_one = "CIFAR-10 0.600 against 0.700 (1.5)"
    assert found["a norm with p < 1 is the best"] == ["", "", below_one, "does not hold"], "the best of those below 1"
    assert found["80 % faster than ProjNorm"] == ["", "", "98 % (cpu, 1/50)", "holds"]
    ahead = found["higher R² than ProjNorm"]
    assert ahead[2:] == ["CIFAR-10, ResNet-18 0.500 against 0.900", "does not hold"]
