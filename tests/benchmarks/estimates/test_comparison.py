"""The page that compares packages: its tables from small results, and the scripts that it counts."""

import runpy
import sys

import pytest

from benchmarks.estimates import comparison

FIELDS = ("suite", "source", "seed", "target", "variant", "estimator", "truth", "accuracy", "low", "high")
FIELDS += ("reference_accuracy",)


def stored():
    install = {"version": "1.0", "packages": 3, "megabytes": 1234.5, "seconds": 61.2}
    run = {"seconds": 2.34, "peak_mb": 150.6, "reference_accuracy": 0.9}
    estimated = {
        "unshifted/as-is": [0.9, 0.84, 0.8, 0.9],
        "window 1/as-is": [0.8, 0.7, 0.6, 0.9],
        "window 2/as-is": [0.85, 0.9, 0.8, 1],
    }
    drifted = {"unshifted/as-is": [0.9, 0.0], "window 1/as-is": [0.8, 0.5], "window 2/as-is": [0.85, 0.4]}
    scripts = {
        script: {
            "lines": 9,
            "runs": {
                data: run | {"windows": drifted if script == "with_evidently" else estimated}
                for data in comparison.TIMED
            },
        }
        for script in comparison.TOOLS
    }
    about = {"gdscore": {"python": "3.11.7", "cores": 2}}
    return {"install": dict.fromkeys(comparison.PACKAGES, install), "scripts": scripts, "about": about}


def estimates():
    for suite, source, _ in comparison.DATA.values():
        for unshifted, variant in comparison.CASES.values():
            for name in comparison.ESTIMATORS:
                target = "unshifted" if unshifted else "window 1"
                shared = (
                    suite,
                    f"{source}-boosting",
                    0,
                    target,
                    f"{variant}-1" if variant == "mixed" else variant,
                    name,
                )
                yield dict(zip(FIELDS, (*shared, "0.8", "0.85", "0.8", "0.9", "0.9"), strict=True))
                yield dict(zip(FIELDS, (*shared, "0.7", "0.85", "0.8", "0.9", "0.9"), strict=True))


def test_tables_of_the_page():
    found = comparison.blocks(stored(), list(estimates()))
    assert "| NannyML (CBPE) | 9 | 3 | 1,234 | 61 | 2.3, 151 | 2.3, 151 | 2.3, 151 |" in found["cost"]
    assert "| reviews, unshifted | 2 | 10.0, 50 %, 10 | 10.0, 50 %, 10 | 10.0, 50 %, 10 | 15.0 |" in found["accuracy"]
    cases = (case.split(", ", 1) for case, *_ in comparison.summaries(list(estimates())))
    everything = ", ".join(f"{data} ({case})" for data, case in cases)
    assert found["better"].startswith(f"NannyML is as near to the truth as gdscore or nearer on {everything}. ")
    assert found["better"].endswith("cover 90 % or more on no data.")
    assert "| gdscore, probabilities | 1 of 2, 1 of 1 | 1 of 2, 1 of 1 | 1 of 2, 1 of 1 |" in found["falls"]
    assert "| Evidently (data drift) | 1 of 2, 0 of 1 |" in found["falls"]
    assert found["versions"] == "gdscore 1.0, nannyml 1.0, evidently 1.0; Python 3.11.7, 2 cores"


def test_what_cannot_be_installed_is_said():
    given = stored()
    given["install"]["evidently"] = {"failed": "ERROR: no matching distribution"}
    del given["scripts"]["with_evidently"]
    found = comparison.blocks(given, list(estimates()))
    assert "| Evidently (data drift) |  | not installed: ERROR: no matching distribution |" in found["cost"]
    assert "Evidently" not in found["falls"]
    assert "evidently could not be installed" in found["versions"]


def test_lines_of_code_are_without_docstring_comments_and_blank_lines(tmp_path, monkeypatch):
    (tmp_path / "one.py").write_text('"""Two\nlines."""\n\nimport sys  # why\n\n# a comment\nprint(sys.argv)\n')
    monkeypatch.setattr(comparison, "SCRIPTS", tmp_path)
    assert comparison.lines_of_code("one") == 2


def test_the_first_number_of_a_new_user(tmp_path, monkeypatch, capsys):
    pd, rng = pytest.importorskip("pandas"), pytest.importorskip("numpy").random.default_rng(0)
    p = rng.uniform(size=900)
    frame = pd.DataFrame({"p_0": 1 - p, "p_1": p, "label": rng.uniform(size=900) < p})
    frame.astype({"label": int})[:600].to_csv(tmp_path / "reference.csv", index=False)
    frame[600:].drop(columns="label").assign(window="a/as-is").to_csv(tmp_path / "target.csv", index=False)
    files = [str(tmp_path / name) for name in ("reference.csv", "target.csv")]
    monkeypatch.setattr(sys, "argv", ["with_gdscore.py", *files])
    runpy.run_path(str(comparison.SCRIPTS / "with_gdscore.py"))
    window, *numbers = capsys.readouterr().out.strip().split(",")
    assert window == "a/as-is"
    value, low, high = map(float, numbers)
    assert low < value < high
