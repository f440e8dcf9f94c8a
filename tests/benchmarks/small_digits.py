"""A source that trains in a second, in a folder of the test's own."""

import dataclasses

from benchmarks.data import images as datasets
from benchmarks.models import networks, sources, train
from benchmarks.paper import small


def small_source(folder, monkeypatch):
    """scikit-learn's digits packed in `folder`, where every function of the benchmark then looks for data and models."""
    packed, checkpoints = folder / "packed", folder / "checkpoints"
    for function in (
        datasets.load,
        datasets.training_parts,
        datasets.class_names,
        train.load_model,
        train.train,
        small.pack_digits,
    ):
        monkeypatch.setitem(function.__kwdefaults__, "folder", packed)
        if "checkpoints" in function.__kwdefaults__:
            monkeypatch.setitem(function.__kwdefaults__, "checkpoints", checkpoints)
    monkeypatch.setitem(networks.SmallCNN.__init__.__kwdefaults__, "widths", (8, 8, 16))
    source = sources.SOURCES[small.SOURCE]
    quick = source.recipe | {"epochs": 4, "rows": 512}
    source = dataclasses.replace(source, recipe=quick, corruptions=("fog", "contrast"))
    monkeypatch.setitem(sources.SOURCES, small.SOURCE, source)
    small.pack_digits()
    return source
