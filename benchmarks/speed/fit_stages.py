"""Seconds by stage of a fit, for `benchmarks/speed/fit.py --profile`: the host's by the clock, the device's by CUDA events.

Stages are inclusive: JPEG is part of its shift, and the copy part of the summary on the device. Time of the device is
the time between two events of its stream, so it holds the gaps in which the host was too slow to keep it busy.
"""

import contextlib
import functools
import time
from collections import defaultdict

import torch

from gdscore import _arrays
from gdscore.estimator.correctness import Correction, SetSummary
from gdscore.estimator.evidence import Profile
from gdscore.models import _inputs, _network
from gdscore.shifts import _corruptions, _resample


class Stages:
    """Context in which the functions of a fit are timed."""

    def __init__(self, device):
        self._cuda = device.type == "cuda"
        self._spans = defaultdict(list)
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        self._watch(_inputs.LabelledInputs, "__init__", lambda *_: ["reading the inputs"])
        self._watch(_inputs.ImageForm, "decode", lambda *_: ["8-bit images to floats"])
        self._watch(
            _inputs,
            "corrupt",
            lambda shift, *_: ["shift", f"  {shift.family if '+' not in shift.family else 'compositions'}"],
        )
        self._watch(_resample, "through_jpeg", lambda *_: ["  JPEG on the device"])
        self._watch(_corruptions, "_by_pillow", lambda *_: ["  JPEG by Pillow"])
        self._watch(_network.Network, "run", lambda *_: ["forward"])
        self._watch(Profile, "begin", lambda *_: ["summary on the device"])
        self._watch(_arrays, "fetch", lambda *_: ["  copy to the host"], inner="waiting for the copy")
        self._watch(SetSummary, "of", lambda *_: ["summary on the host"])
        self._watch(Correction, "fit", lambda *_: ["learning the correction"])
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _watch(self, owner, name, stages, inner=None):
        original = owner.__dict__[name]
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*given, **options):
            found = self._timed(stages(*given), function, *given, **options)
            return functools.partial(self._timed, [inner], found) if inner else found

        setattr(owner, name, staticmethod(timed) if isinstance(original, classmethod) else timed)
        self._stack.callback(setattr, owner, name, original)

    def _timed(self, stages, function, *given, **options):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if self._cuda else None
        begin = time.perf_counter()
        if events:
            events[0].record()
        try:
            return function(*given, **options)
        finally:
            if events:
                events[1].record()
            for stage in stages:
                self._spans[stage].append((time.perf_counter() - begin, events))

    def table(self):
        """Calls, seconds of the host and seconds of the device (None without one) by stage."""
        if self._cuda:
            torch.cuda.synchronize()
        return {
            stage: {
                "calls": len(spans),
                "host_seconds": round(sum(seconds for seconds, _ in spans), 3),
                "device_seconds": round(sum(e[0].elapsed_time(e[1]) for _, e in spans) / 1000, 3)
                if self._cuda
                else None,
            }
            for stage, spans in self._spans.items()
        }


def print_table(table):
    """Stages as lines of text."""
    print(f"  {'stage':28s} {'calls':>6s} {'host s':>9s} {'device s':>9s}")
    for stage, row in table.items():
        device = "" if row["device_seconds"] is None else f"{row['device_seconds']:9.3f}"
        print(f"  {stage:28s} {row['calls']:6d} {row['host_seconds']:9.3f} {device}")
