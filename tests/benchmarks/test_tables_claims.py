"""Claims and choices: which row is picked, what is left out of the choice, and what the cells say."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from tables_claims import claims_table, picked, transfer_table


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


@pytest.mark.parametrize(("rho", "sign", "shown"), [(-0.8, "as documented", "0.500 / "), (0.8, "against", "0.500‡ / ")])
def test_claims_count_the_scores_that_are_ahead(rho, sign, shown):
    facts = {"benchmark": "cifar10-resnet18", "sets": 95, "refused": 0, "rho": rho, "sign": sign}
    values = {"gdscore": 0.5, "cott": 0.9, "atc": 0.4, "cott@T": 0.95, "projnorm": 0.99}
    rows = [facts | {"protocol": "deployed", "method": name, "r2": r2} for name, r2 in values.items()]
    runtime = [
        ("cifar10-small", {"method": "projnorm", "device": "cpu", "times_gdscore": 53.5, "n": 10, "seconds": 7.0})
    ]
    table = lines(claims_table(rows, chosen("cifar10-resnet18", "labels", **LABELS), runtime))
    assert table[0][1:] == ["–", f"{shown}0.800, 1 of 2 ahead, 95 sets"]
    assert table[1] == [
        "Mixed labels are what makes it work",
        "–",
        "cifar10-resnet18: 0.500, highest of the 2 others 0.600 (expected), 95 sets",
    ]
    assert table[2][2] == "cifar10-small, cpu: ProjNorm takes 54 times as long (10 rows, 7 s)"
