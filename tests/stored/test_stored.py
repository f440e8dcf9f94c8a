"""What an earlier version wrote is read, and answers as it did then."""

import json

import pytest

from tests.stored.__main__ import FOLDER, answers, files

VERSIONS = sorted(path for path in FOLDER.iterdir() if (path / "answers.json").exists())


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_files_of_a_version_answer_as_they_did(folder):
    recorded = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    for name, values in answers(folder).items():
        # How a tracker weighs what it has kept may change with a version; what it has kept may not.
        assert values == pytest.approx(recorded[name], abs=0.05 if name == "tracker" else 0.01), name


def test_files_of_this_version_are_read(tmp_path):
    files(tmp_path)
    first = answers(tmp_path)
    assert set(first) == {"estimator", "state", "tracker", "score"}
    assert first == answers(tmp_path)
