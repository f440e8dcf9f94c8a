"""Train a benchmark network on a packed data set, from a seed: the same seed gives the same network on one machine.

    python -m benchmarks.models.train --data mnist --network small --seed 0 --epochs 3 --rows 20000 --test mnist mnistm usps
    python -m benchmarks.models.train --data cifar10 --network resnet18 --epochs 50 --batch 512 --rate 0.4 --device cuda
    python -m benchmarks.models.train --data pacs --split photo --network resnet18 --epochs 80 --batch 64 --device cuda
    python -m benchmarks.models.train --data pacs128 --split photo --network lite0 --epochs 25 --optimizer adamw --rate 0.001

SGD with Nesterov momentum, or AdamW (``--optimizer adamw``, for transformers), a one-cycle rate, plain cross-entropy. The
GdScore paper's own recipe: ``--optimizer plain --schedule cosine --rate 0.001 --batch 128 --epochs 20`` (50 for some sets).
Writes a state dict,
``data/checkpoints/<data>-<net>-seed<k>.pt`` (``<data>-<split>-<net>-…`` for splits other than ``train``), and beside it
a ``.json`` with the recipe and the accuracy on held-out rows, of which ``benchmarks/models/training_table.py`` makes a table. A checkpoint
that exists is not trained again; if it was trained by another recipe, that is an error.
"""

import argparse
import json
import time
from functools import partial

import torch
from torch import nn

from benchmarks.data.images import PACKED, class_names, load, training_parts
from benchmarks.models.networks import NAMES, network

__all__ = ["CHECKPOINTS", "accuracy", "fit", "load_model", "logits", "train"]

CHECKPOINTS = PACKED.parent / "checkpoints"


def cropped(images, pad, generator):
    """Each image moved by up to `pad` pixels in each direction, black where nothing was."""
    n, _, height, width = images.shape
    padded = nn.functional.pad(images, (pad, pad, pad, pad))
    down, right = torch.randint(0, 2 * pad + 1, (2, n, 1), generator=generator).to(images.device)
    ys = (down + torch.arange(height, device=images.device))[:, None, :, None]
    xs = (right + torch.arange(width, device=images.device))[:, None, None, :]
    rows = torch.arange(n, device=images.device)[:, None, None, None]
    channels = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    return padded[rows, channels, ys, xs]


def augmented(images, augment, shift, generator):
    if augment == "none":
        return images
    images = cropped(images, images.shape[-1] // 8 if shift is None else shift, generator)
    if augment == "crop-flip":
        flip = torch.rand(len(images), generator=generator).to(images.device) < 0.5
        images = torch.where(flip[:, None, None, None], images.flip(3), images)
    return images


def unit(images):
    """Images of uint8 as the networks want them: floats in [0, 1]."""
    return images.to(torch.float32).div(255).contiguous(memory_format=torch.channels_last)


OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, momentum=0.9, weight_decay=5e-4, nesterov=True),
    "adamw": partial(torch.optim.AdamW, weight_decay=0.05),
    # The GdScore paper's: no decay, no Nesterov momentum.
    "plain": partial(torch.optim.SGD, momentum=0.9),
}


SCHEDULES = {
    "onecycle": lambda stepper, rate, steps: torch.optim.lr_scheduler.OneCycleLR(
        stepper, max_lr=rate, total_steps=steps
    ),
    "cosine": lambda stepper, rate, steps: torch.optim.lr_scheduler.CosineAnnealingLR(stepper, steps),
}


def fit(
    model,
    images,
    labels,
    *,
    epochs,
    seed,
    batch=128,
    rate=0.1,
    augment="none",
    shift=None,
    optimizer="sgd",
    schedule="onecycle",
    device="cpu",
):
    """Train `model` in place on uint8 images, to evaluation mode; prints and returns the mean loss of each epoch."""
    device, generator = torch.device(device), torch.Generator().manual_seed(seed)
    model.to(device, memory_format=torch.channels_last).train()
    images, labels = torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)
    # The last rows of an epoch wait for the next one: a batch of one row would break BatchNorm.
    batch = min(batch, len(labels))
    steps = len(labels) // batch
    stepper = OPTIMIZERS[optimizer](model.parameters(), lr=rate)
    pace = SCHEDULES[schedule](stepper, rate, epochs * steps)
    losses = []
    for epoch in range(1, epochs + 1):
        order, total = torch.randperm(len(labels), generator=generator).to(device), torch.zeros((), device=device)
        for step in range(steps):
            chosen = order[step * batch : (step + 1) * batch]
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = nn.functional.cross_entropy(
                    model(unit(augmented(images[chosen], augment, shift, generator))), labels[chosen]
                )
            stepper.zero_grad(set_to_none=True)
            loss.backward()
            stepper.step()
            pace.step()
            total += loss.detach()
        losses.append(float(total / steps))
        print(f"epoch {epoch}/{epochs}: loss {losses[-1]:.3f}", flush=True)
    model.eval()
    return losses


@torch.inference_mode()
def logits(model, images, *, batch=500):
    """Logits (on the CPU) of uint8 images, whose network is in evaluation mode."""
    device = next(model.parameters()).device
    parts = torch.from_numpy(images).split(batch)
    return torch.cat([model(unit(part.to(device))).float().cpu() for part in parts])


def accuracy(model, images, labels):
    return float((logits(model, images).argmax(1) == torch.from_numpy(labels)).double().mean())


def fresh(name, classes, size, seed):
    """A network with weights drawn by `seed`; the global random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network(name, classes, small=size <= 64)


def load_model(data, name="small", seed=0, *, split="train", checkpoints=CHECKPOINTS, folder=PACKED):
    """A trained network in evaluation mode; its validation rows are ``training_parts(data, split, …)[1]``."""
    file = checkpoint(data, split, name, seed, checkpoints)
    if not file.exists():
        raise FileNotFoundError(f"No checkpoint {file.name}; first: python -m benchmarks.models.train --data {data} …")
    recipe = json.loads(file.with_suffix(".json").read_text())["recipe"]
    model = fresh(name, len(class_names(data, split, folder=folder)), recipe["size"], seed)
    model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return model.eval()


def checkpoint(data, split, name, seed, checkpoints):
    part = "" if split == "train" else f"{split}-"
    return checkpoints / f"{data}-{part}{name}-seed{seed}.pt"


def train(
    data,
    name="small",
    seed=0,
    *,
    split="train",
    epochs=3,
    rows=None,
    batch=128,
    rate=0.1,
    augment="none",
    shift=None,
    optimizer="sgd",
    schedule="onecycle",
    validation=3000,
    share=0.25,
    device="cpu",
    checkpoints=CHECKPOINTS,
    folder=PACKED,
):
    """Train and save a network, or find it trained; returns its record: recipe, validation accuracy, seconds."""
    (images, labels), held = training_parts(data, split, validation=validation, share=share, folder=folder)
    images, labels = images[:rows], labels[:rows]
    recipe = {"data": data, "split": split, "network": name, "seed": seed, "epochs": epochs, "rows": len(labels)}
    recipe |= {"validation": len(held[1]), "batch": batch, "rate": rate, "augment": augment, "size": images.shape[-1]}
    # Records of before there was a choice do not name it.
    recipe |= {} if optimizer == "sgd" else {"optimizer": optimizer}
    recipe |= {} if schedule == "onecycle" else {"schedule": schedule}
    recipe |= {} if shift is None else {"shift": shift}
    file = checkpoint(data, split, name, seed, checkpoints)
    record = file.with_suffix(".json")
    if file.exists():
        found = json.loads(record.read_text())
        other = {key: found["recipe"].get(key) for key in recipe if found["recipe"].get(key) != recipe[key]}
        if other:
            raise ValueError(f"{file.name} was trained with {other}; delete it to train it anew, or use those options.")
        return found
    start = time.perf_counter()
    model = fresh(name, len(class_names(data, split, folder=folder)), images.shape[-1], seed)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True), torch.random.fork_rng():
        # Of layers that draw, such as dropout.
        torch.manual_seed(seed)
        fit(
            model,
            images,
            labels,
            epochs=epochs,
            seed=seed,
            batch=batch,
            rate=rate,
            augment=augment,
            shift=shift,
            optimizer=optimizer,
            schedule=schedule,
            device=device,
        )
    seconds = round(time.perf_counter() - start, 1)
    result = {"recipe": recipe, "validation_accuracy": accuracy(model, *held), "seconds": seconds, "device": device}
    checkpoints.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    record.write_text(json.dumps(result, indent=1) + "\n")
    torch.save({key: value.cpu() for key, value in model.state_dict().items()}, partial)
    partial.replace(file)
    return result


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="name of a packed data set")
    parser.add_argument("--split", default="train", help="its split to train on; a domain for PACS")
    parser.add_argument("--network", default="small", choices=NAMES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, help="train on at most so many rows (default: all but the held-out ones)")
    parser.add_argument("--validation", type=int, default=3000, help="rows held out, at most --share of the split")
    parser.add_argument("--share", type=float, default=0.25, help="the most of the split that is held out")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=0.1, help="highest learning rate of the cycle")
    parser.add_argument("--augment", default="none", choices=["none", "crop", "crop-flip"])
    parser.add_argument(
        "--shift", type=int, help="pixels that `crop` moves by at most (default: an eighth of the size)"
    )
    parser.add_argument("--optimizer", default="sgd", choices=list(OPTIMIZERS))
    parser.add_argument("--schedule", default="onecycle", choices=list(SCHEDULES), help="of the learning rate")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--test", nargs="+", default=[], metavar="NAME", help="print the accuracy on these test splits")
    return parser.parse_args()


def main():
    options = vars(arguments())
    tests, data, name, seed = (options.pop(key) for key in ("test", "data", "network", "seed"))
    result = train(data, name, seed, **options)
    print(f"validation accuracy {result['validation_accuracy']:.4f}, trained in {result['seconds']} s")
    model = load_model(data, name, seed, split=options["split"]) if tests else None
    for test in tests:
        images, labels = load(test, "test")
        print(f"{test} test accuracy {accuracy(model, images, labels):.4f} ({len(labels)} rows)")


if __name__ == "__main__":
    main()
