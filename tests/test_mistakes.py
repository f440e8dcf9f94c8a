"""Every mistake of `tests.mistakes` is told with its cure, and the page has what is told now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import mistakes

pytest.importorskip("torch")
pytestmark = pytest.mark.xdist_group("mistakes")

ALL = [mistake for section in mistakes.SECTIONS.values() for mistake in section]


@pytest.fixture(scope="module")
def names():
    with mistakes.all_names() as found:
        yield found


@pytest.fixture(scope="module")
def messages(names):
    """What has been told; each mistake is made once."""
    return {}


@pytest.mark.parametrize("mistake", ALL, ids=lambda m: m.did)
def test_it_is_told_with_its_cure(mistake, names, messages):
    messages[mistake] = mistakes.told(mistake, names)
    assert mistake.cure in messages[mistake]


def test_the_page_is_what_is_told_now(names, messages):
    for mistake in ALL:
        if mistake not in messages:  # this test alone was chosen
            messages[mistake] = mistakes.told(mistake, names)
    path = Path(__file__).parents[1] / "research" / "mistakes.md"
    assert path.read_text(encoding="utf-8") == mistakes.page(messages), (
        "python -m tests.mistakes --write research/mistakes.md"
    )


def test_what_is_no_mistake(names):
    """As the page says: training mode, float labels, single logits, and columns in another order."""
    import numpy as np
    import torch

    import gdscore

    model, images = names["model"], names["images"]
    expected = next(names["models"].extract(model.eval(), [images])).logits
    found = next(names["models"].extract(model.train(), [images])).logits
    assert model.training
    assert torch.equal(found, expected)
    binary = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 1), torch.nn.Flatten(0))
    out = next(names["models"].extract(binary, [(images, torch.ones(20))]))
    assert out.logits.shape == (20, 2)
    assert out.labels.tolist() == [1] * 20
    df = names["df"]
    given = gdscore.from_frame(df[df.columns[::-1]], probabilities="prob_*", label="animal")
    assert given.accuracy == names["val"].accuracy
    assert given.class_names == ("fox", "dog", "cat")
    assert np.asarray(given.probabilities).shape == (600, 3)
