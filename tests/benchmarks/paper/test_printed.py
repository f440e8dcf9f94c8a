"""The paper's printed numbers: which averages are wrong, which are exchanged, and where its tables disagree."""

from benchmarks.paper import printed


def test_averages_that_rounding_does_not_explain():
    wrong = {
        (dataset, method, metric): (shown, mean) for _, dataset, method, metric, shown, mean in printed.wrong_averages()
    }
    assert wrong["Entity-13", "agreescore", "r2"][0] == 772
    assert round(wrong["Office-31", "entropy", "rho"][1], 3) == 0.752
    assert ("CIFAR-10", "gdscore", "r2") not in wrong
    assert "entropy 0.276 (0.752)" in printed.averages_table()
    assert "agreescore 772 (0.772)" in printed.averages_table()


def test_exchanged_averages_and_repeated_columns():
    swapped = [("Entity-13", "dispersion", "projnorm"), ("Nonliving-26", "dispersion", "projnorm")]
    assert list(printed.exchanged()) == swapped
    assert printed.repeated_columns() == {"TinyImageNet": ["rotation", "confscore", "agreescore", "atc", "frechet"]}


def test_one_cell_in_several_tables():
    cells = dict(printed.repeated_cells())
    assert cells["Office-31"] == {"main": 0.675, "gradnorm": 0.675, "thresholds": 0.667}
    assert "Office-Home" not in cells


def test_means_and_small_tables():
    assert round(printed.mean("CIFAR-100"), 3) == 0.991
    assert printed.mean("ImageNet", "rotation") is None, "the paper has none"
    assert printed.table("threshold", "CIFAR-10", "ResNet18")["tau=0.5"] == 0.972
    assert printed.rival_text("gradnorm") == "7 of 7 cells"
