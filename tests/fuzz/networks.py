"""Networks and loaders that use their memory again, batches of every form, images of mixed scales."""

import numpy as np
import torch
from torch import nn

from gdscore import models, shifts

from .harness import attack
from .values import pick

SHIFTS = shifts.corruptions((3, 7), names=("contrast", "gaussian_noise"))
SCALES = [1.0, 1.0, 1.0, 16.0, 255.0, 65535.0, -1.0, 1e-30, 1e30, float("nan"), float("inf")]


class Kept(nn.Module):
    """A classifier that returns new memory, or its own: a buffer, an attribute or a tensor of a closure."""

    def __init__(self, memory, classes):
        super().__init__()
        self.norm, self.fc = nn.BatchNorm2d(1), nn.Linear(64, classes)
        self.register_buffer("out", torch.zeros(64, classes))
        self.attribute, closure = torch.zeros(64, classes), torch.zeros(64, classes)
        self.memory = {"new": None, "buffer": lambda: self.out, "attribute": lambda: self.attribute}.get(
            memory, lambda: closure
        )

    def forward(self, pixel_values):
        z = self.fc(self.norm(pixel_values).flatten(1))
        return z if self.memory is None else self.memory()[: len(z)].copy_(z)


class Loader:
    """Batches of one form, all in memory of their own or all in the same."""

    def __init__(self, x, y, size, form, reuse):
        self.x, self.y, self.size, self.form, self.reuse = x, y, size, form, reuse

    def __iter__(self):
        kept = self.x[: self.size].clone(), self.y[: self.size].clone()
        for start in range(0, len(self.x), self.size):
            parts = [part[start : start + self.size] for part in (self.x, self.y)]
            if self.reuse:
                parts = [memory[: len(part)].copy_(part) for memory, part in zip(kept, parts, strict=True)]
            x, y = parts
            yield {"pixel_values": x, self.form: y} if self.form else (x, y)


def state_of(net):
    tensors = {**net.state_dict(), "attribute": net.attribute}
    return {name: t.detach().numpy().tobytes() for name, t in tensors.items()}, net.training


@attack
def networks_and_loaders(folder):
    """The answer is that of a plain network and loader, and the network stays as it is."""

    def case(rng):
        torch.manual_seed(int(rng.integers(2**31)))
        classes, rows, size = int(pick(rng, [2, 3, 10])), int(pick(rng, [1, 7, 40])), int(pick(rng, [1, 7, 16, 64]))
        x = torch.rand(rows, 1, 8, 8) + 1e-3
        scales = [pick(rng, SCALES), pick(rng, SCALES)] if not rng.integers(3) else [1.0, 1.0]
        x = torch.cat([scales[0] * x[: rows // 2], scales[1] * x[rows // 2 :]]).clamp(-3e38, 3e38)
        y = torch.randint(classes, (rows,)).to(pick(rng, [torch.int64, torch.int32, torch.float32]))
        y = torch.cat([torch.arange(min(classes, rows)).to(y), y])[:rows]
        net = Kept(pick(rng, ["new", "buffer", "attribute", "closure"]), classes).train(bool(rng.integers(2)))
        plain = Kept("new", classes)
        plain.load_state_dict(net.state_dict())
        form = pick(rng, ["", "labels", "target", "y"])
        before = state_of(net)
        try:
            if rng.integers(2):
                found = list(models.extract(net, Loader(x, y, size, form, True), head=False, progress=False))
                expected = list(models.extract(plain, Loader(x, y, size, "", False), head=False, progress=False))
                for out, other in zip(found, expected, strict=True):
                    if not (torch.equal(out.logits, other.logits) and torch.equal(out.labels, other.labels)):
                        raise AssertionError("outputs are not those of a plain network and loader")
                return [out.logits.numpy() for out in found]
            options = {"shifts": SHIFTS, "head": False, "progress": False, "batch_size": int(pick(rng, [5, 64]))}
            est = models.estimator(net, Loader(x, y, size, form, True), **options)
            other = models.estimator(plain, Loader(x, y, size, "", False), **options)
            if not np.array_equal(est.shifted_sets_.accuracy, other.shifted_sets_.accuracy):
                raise AssertionError("the fit is not that of a plain network and loader")
            return [est.reference_accuracy_]
        finally:
            if state_of(net) != before:
                raise AssertionError("the network was changed")

    return case
