"""Streams of outputs with their segments, and the progress bar."""

from __future__ import annotations

import re

import numpy as np
import pytest

import gdscore
from gdscore import GdscoreError, Outputs
from gdscore._stream import batches, progress_bar


def printed(capfd) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capfd.readouterr().err)


def test_shows_what_is_done_and_the_time_left(capfd):
    with progress_bar(4, True) as advance:
        advance(4)
    assert re.search(r"rows.*4/4.*\d+:\d\d:\d\d", printed(capfd))


def test_an_unknown_total(capfd):
    with progress_bar(None, True, "sets") as advance:
        advance(3)
    assert re.search(r"sets.*3/\?", printed(capfd))


@pytest.mark.parametrize(("convert", "total"), [(list, "3"), (iter, r"\?")])
def test_fit_counts_the_sets(capfd, convert, total):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 3))
    out = gdscore.Outputs(logits=3 * z, labels=np.where(rng.random(200) < 0.8, z.argmax(axis=1), 0))
    sets = [gdscore.ShiftedSet(out, name) for name in "abc"]
    gdscore.AccuracyEstimator().fit(out, shifted_sets=convert(sets), progress=True)
    assert re.search(rf"sets.*3/{total}", printed(capfd))


def test_silent_where_no_terminal_is_attached(capfd):
    with progress_bar(4, None) as advance:
        advance(4)
    assert not capfd.readouterr().err


@pytest.mark.parametrize("by", [np.array("a"), np.array(3), 3, "a"])
def test_a_single_value_names_no_segments_of_a_stream(by):
    with pytest.raises(GdscoreError, match="segments for each part of the stream, but got"):
        list(batches(iter([Outputs(logits=3 * np.eye(2))]), by))
