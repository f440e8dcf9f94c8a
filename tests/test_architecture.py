"""What docs/architecture.md names exists, and every public module has tests: under its name, or under the one given here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "gdscore"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
# Modules that are tested through what uses them.
TESTED_IN = {
    "cli/images.py": "cli/test_extract.py",
    "cli/label.py": "labeling/test_cli.py",
    "cli/monitor.py": "monitor/test_command.py",
    "cli/results.py": "cli/test_estimate.py",
    "errors.py": "test_mistakes.py",
    "estimator/estimate.py": "estimator/test_core.py",
    "estimator/settings.py": "benchmarks/estimates/test_constants.py",
    "io/blocks.py": "io/test_read.py",
    "io/columns.py": "cli/test_columns.py",
    "monitor/auth.py": "monitor/test_api.py",
    "monitor/app.py": "monitor/test_api.py",
    "demo/monitored.py": "monitor/test_deploy.py",
    "monitor/queries.py": "monitor/test_history.py",
    "monitor/schema.py": "monitor/test_history.py",
    "monitor/sequential.py": "monitor/test_rules.py",
    "monitor/alarms.py": "monitor/test_rules.py",
    "monitor/migrations/env.py": "monitor/test_database.py",
    "monitor/migrations/versions/0001_first.py": "monitor/test_database.py",
    "monitor/migrations/versions/0002_labels_of_earlier_windows.py": "monitor/test_database.py",
    "monitor/settings.py": "monitor/test_api.py",
    "scores/agreescore.py": "scores/test_means.py",
    "scores/confscore.py": "scores/test_means.py",
    "scores/cott.py": "scores/test_cot.py",
    "scores/doc.py": "scores/test_means.py",
    "scores/entropy.py": "scores/test_means.py",
    "scores/gradnorm.py": "scores/test_means.py",
    "scores/projnorm.py": "models/test_projnorm.py",
    "scores/rotation.py": "scores/test_means.py",
    "scores/selfscore.py": "scores/test_means.py",
    "shifts/sets.py": "estimator/test_predictor.py",
    "tracking/rows.py": "tracking/test_hostile.py",
    "tracking/windows.py": "tracking/test_tracker.py",
}
MODULES = sorted(
    path.relative_to(SOURCE).as_posix()
    for path in SOURCE.rglob("*.py")
    if "/_" not in f"/{path.relative_to(SOURCE).as_posix()}"
)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_module_has_tests(module):
    folder, _, name = module.rpartition("/")
    of_its_name = (ROOT / "tests" / folder / f"test_{name}").exists()
    assert of_its_name != (module in TESTED_IN), "either tests under its own name, or an entry in TESTED_IN"
    assert of_its_name or (ROOT / "tests" / TESTED_IN[module]).exists()


def test_no_entry_is_of_a_module_that_is_gone():
    assert TESTED_IN.keys() <= set(MODULES)


def test_every_file_and_package_that_the_page_names_exists():
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", PAGE))
    assert len(named) > 20
    for name in named:
        places = (
            SOURCE / name,
            ROOT / name,
            *(
                SOURCE / package / name
                for package in (
                    "scores",
                    "shifts",
                    "models",
                    "estimator",
                    "io",
                    "labeling",
                    "tracking",
                    "distributed",
                    "monitor",
                    "report",
                    "cli",
                )
            ),
        )
        assert any(place.exists() for place in places), name


def test_every_package_is_named():
    for folder in SOURCE.iterdir():
        if (folder / "__init__.py").exists():
            assert f"`{folder.name}/`" in PAGE
