"""What only the paper's experiments need of a network: ablations of layers and epochs, the released protocol's model.

- `gradient_scores`: GdScore of the gradient by groups of parameters, by backpropagation;
- `finetuned_scores`: GdScore after r epochs of training on its own labels;
- `ProjNorm`: the distance of `models.projnorm` for many targets, whose reference is trained on once;
- `adapted_copy`: the model that the released protocol leaves behind;
- `joint_rotation_loss`: the rotation task as one more term of a training loop's loss, as its authors train.

All work on copies: the model given, its gradients and torch's random state stay as they were. Loaders are lists of
batches (x, y), since they are read more than once; y is not used.
"""

import copy
import itertools
import math

import torch
from torch import nn

import gdscore
from gdscore import models

__all__ = ["ProjNorm", "adapted_copy", "finetuned_scores", "gradient_scores", "joint_rotation_loss"]


def rows_and_labels(model, loader, *, seed=0, batchnorm="eval"):
    """All inputs, and GdScore's label of each: the predicted class where the model is confident, else a random one.

    Random labels depend on the bits of the logits, so these are the logits of the loader's own batches.
    """
    labels = [
        torch.where(out.confidence > 0.5, out.predictions, out.random_labels(seed)).long()
        for out in models.extract(model, loader, head=False, with_labels=False, batchnorm=batchnorm, progress=False)
    ]
    return torch.cat([x for x, *_ in loader]), torch.cat(labels)


def gradient_scores(model, loader, groups, *, p=0.3, batch_size=128, seed=0, batchnorm="eval"):
    """Mean p-norm over mini-batches of the cross-entropy's gradient by each group of parameters.

    `groups` maps a name to a prefix of parameter names, or several; ``""`` is the whole network. The group of the last
    layer's weights has the value of ``gdscore.score("gdscore", ...)``. With ``batchnorm="batch"`` BatchNorm has the
    statistics of each mini-batch, which are the loader's, and a last short one counts as much as the others, as released.
    """
    x, y = rows_and_labels(model, loader, seed=seed, batchnorm=batchnorm)
    twin = copy.deepcopy(model).eval().requires_grad_(True)
    if batchnorm == "batch":
        for layer in batchnorm_layers(twin):
            layer.train()
    parameters = dict(twin.named_parameters())
    members = {name: parameters_under(parameters, prefixes) for name, prefixes in groups.items()}
    totals, weights = dict.fromkeys(groups, 0.0), 0
    for inputs, labels in zip(x.split(batch_size), y.split(batch_size), strict=True):
        z = twin(inputs)
        gradients = torch.autograd.grad(z, list(parameters.values()), residual(z, labels), allow_unused=True)
        found = {name: g.double().flatten() for name, g in zip(parameters, gradients, strict=True) if g is not None}
        weight = 1 if batchnorm == "batch" else len(labels)
        weights += weight
        for group, names in members.items():
            used = [found[name] for name in names if name in found]
            totals[group] += weight * float(torch.linalg.vector_norm(torch.cat(used), p)) if used else 0.0
    return {name: total / weights for name, total in totals.items()}


def residual(z, labels):
    """Gradient of the mean cross-entropy by the logits, with full relative precision where the model is sure."""
    s = z.detach().double().softmax(1)
    s.scatter_(1, labels[:, None], 0.0)
    s.scatter_(1, labels[:, None], -s.sum(1, keepdim=True))
    return (s / len(labels)).to(z.dtype)


def parameters_under(parameters, prefixes):
    prefixes = [prefixes] if isinstance(prefixes, str) else prefixes
    names = [n for n in parameters if any(p in ("", n) or n.startswith(f"{p}.") for p in prefixes)]
    if not names:
        raise ValueError(f"No parameters under {prefixes}; there are {', '.join(parameters)}")
    return names


def finetuned_scores(model, loader, *, epochs=(0, 1, 5, 10, 20), lr=1e-3, p=0.3, batch_size=128, seed=0):
    """GdScore by epoch of training a copy on the labels that GdScore gives the rows before training.

    SGD in training mode at a constant rate, so that the value after r epochs does not depend on which others are
    measured. Each epoch is a permutation by the seed; rows that do not fill a mini-batch wait for the next one.
    """
    x, y = rows_and_labels(model, loader, seed=seed)
    twin, generator, values = copy.deepcopy(model).requires_grad_(True), torch.Generator().manual_seed(seed), {}
    optimizer = torch.optim.SGD(twin.parameters(), lr=lr, momentum=0.9)
    size = min(batch_size, len(y))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for epoch in range(max(epochs) + 1):
            if epoch in epochs:
                batches = list(zip(x.split(batch_size), y.split(batch_size), strict=True))
                outputs = models.extract(twin, batches, progress=False)
                values[epoch] = gdscore.score("gdscore", outputs, p=p, batch_size=batch_size, label_rule="true")
            twin.train()
            order = torch.randperm(len(y), generator=generator).to(x.device)
            for rows in order[: len(y) // size * size].split(size):
                optimizer.zero_grad()
                nn.functional.cross_entropy(twin(x[rows]), y[rows]).backward()
                optimizer.step()
    return values


class ProjNorm:
    """`gdscore.models.projnorm` of many targets of one model: the training on the reference is done once, not for each.

    Rows stay on the model's device. `images` and `labels` are those of the reference; both trainings start from the model.
    """

    def __init__(self, model, images, labels, *, steps=500, lr=1e-3, momentum=0.9, batch_size=128, seed=0):
        self.model, self.steps, self.seed = model, steps, seed
        self.lr, self.momentum, self.batch_size = lr, momentum, batch_size
        self.reference = self.trained(images, labels)

    def trained(self, x, y):
        """Parameters of a copy of the model after SGD on the rows, its rate on a cosine down to 0."""
        twin = copy.deepcopy(self.model).train().requires_grad_(True)
        optimizer = torch.optim.SGD(twin.parameters(), lr=self.lr, momentum=self.momentum)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        generator, size = torch.Generator().manual_seed(self.seed), min(self.batch_size, len(y))
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            for rows in itertools.islice(self.batches(len(y), size, generator), self.steps):
                chosen = rows.to(x.device)
                optimizer.zero_grad()
                nn.functional.cross_entropy(twin(x[chosen]), y[chosen]).backward()
                optimizer.step()
                schedule.step()
        return [parameter.detach() for parameter in twin.parameters()]

    @staticmethod
    def batches(rows, size, generator):
        """Full mini-batches of one permutation after the other."""
        while True:
            yield from torch.randperm(rows, generator=generator)[: rows // size * size].split(size)

    def __call__(self, x):
        """Distance between the parameters trained on the reference and on `x` with the model's own predictions."""
        with torch.no_grad():
            labels = torch.cat([self.model(part).argmax(1) for part in x.split(self.batch_size)])
        pairs = zip(self.reference, self.trained(x, labels), strict=True)
        return math.sqrt(math.fsum((a.double() - b.double()).square().sum().item() for a, b in pairs))


def batchnorm_layers(model):
    return [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]


def adapted_copy(model, loader):
    """Copy of a model whose BatchNorm statistics were moved by one pass over unlabelled data.

    The code released with the GdScore paper scores a model in training mode, which moves the running statistics of
    BatchNorm towards the test data, and only then measures its accuracy. The published numbers therefore relate the
    score, ``extract(model, loader, batchnorm="batch")``, to the accuracy of this copy, and not of the model itself.
    Only BatchNorm is in training mode during the pass; dropout is not.
    """
    adapted = copy.deepcopy(model)
    modes = {module: module.training for module in adapted.modules()}
    layers = [layer for layer in batchnorm_layers(adapted) if layer.running_mean is not None]
    if not layers:
        raise ValueError("Expected a model with BatchNorm statistics to adapt, but it has none")
    adapted.eval()
    for layer in layers:
        layer.train()
    with torch.no_grad():
        for x, *_ in loader:
            adapted(x)
    for module, training in modes.items():
        module.training = training
    return adapted


def joint_rotation_loss(features_of, rotation_head, images, generator=None):
    """Cross-entropy of a rotation head on square images, each turned by a random number of quarter turns.

    `features_of` is the network up to its last layer, `rotation_head` a ``models.RotationHead`` whose parameters the
    optimizer holds too.
    """
    where = images.device if generator is None else generator.device
    shown = torch.randint(4, (len(images),), generator=generator, device=where).to(images.device)
    turned = images.clone()
    for quarter_turns in (1, 2, 3):
        chosen = shown == quarter_turns
        turned[chosen] = torch.rot90(images[chosen], quarter_turns, (2, 3))
    return nn.functional.cross_entropy(rotation_head(features_of(turned)), shown)
