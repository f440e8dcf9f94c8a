"""Small real networks of every kind that extraction has to cope with."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

ROWS, CLASSES = 12, 5


def images(rows: int = ROWS, seed: int = 0, channels: int = 3, size: int = 16) -> torch.Tensor:
    return torch.randn(rows, channels, size, size, generator=torch.Generator().manual_seed(seed))


def labels(rows: int = ROWS, seed: int = 0, classes: int = CLASSES) -> torch.Tensor:
    return torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(seed + 1))


def loader(batches: int = 3, rows: int = ROWS, **kwargs) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(images(rows, seed, **kwargs), labels(rows, seed)) for seed in range(batches)]


def seeded(cls, *args, **kwargs) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return cls(*args, **kwargs)


class Backbone(nn.Sequential):
    def __init__(self, dropout: float = 0.0, norm: bool = True) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8) if norm else nn.Identity(),
            nn.ReLU(),
            nn.MaxPool2d(4),
            nn.Conv2d(8, 16, 3),
            nn.BatchNorm2d(16) if norm else nn.Identity(),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(dropout),
        )


class CNN(nn.Module):
    """Plain network; `after` is what becomes of the logits."""

    def __init__(self, dropout: float = 0.0, bias: bool = True, after=None, norm: bool = True) -> None:
        super().__init__()
        self.backbone = Backbone(dropout, norm)
        self.unused = nn.Linear(16, CLASSES)
        self.fc = nn.Linear(16, CLASSES, bias=bias)
        self.after = after

    def forward(self, x):
        z = self.fc(self.backbone(x))
        return z if self.after is None else self.after(z)


class TwoHeads(nn.Module):
    """Two heads of one shape, the first of which is returned; with tied weights if asked."""

    def __init__(self, tied: bool = False, copied: bool = False) -> None:
        super().__init__()
        self.backbone, self.main, self.aux = Backbone(), nn.Linear(16, CLASSES), nn.Linear(16, CLASSES)
        self.copied = copied
        if tied:
            self.aux.weight, self.aux.bias = self.main.weight, self.main.bias

    def forward(self, x):
        h = self.backbone(x)
        z = self.main(h)
        self.aux(h * 0.5)
        return z.clone() if self.copied else z


class Twice(nn.Module):
    """The head is called on an augmented view, too, before and after the call that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.fc = Backbone(), nn.Linear(16, CLASSES)

    def forward(self, x):
        h = self.backbone(x)
        self.fc(h.flip(1))
        z = self.fc(h).clone()
        self.fc(h + 1)
        return z


class ConvHead(nn.Module):
    def __init__(self, pool_last: bool = False) -> None:
        super().__init__()
        self.backbone, self.conv = nn.Sequential(*list(Backbone())[:7]), nn.Conv2d(16, CLASSES, 1)
        self.pool_last = pool_last

    def forward(self, x):
        if self.pool_last:
            return self.conv(self.backbone(x)).mean((2, 3))
        return self.conv(functional.adaptive_avg_pool2d(self.backbone(x), 1)).flatten(1)


class CosineHead(nn.Linear):
    """A linear layer by its class, but not by what it computes."""

    def forward(self, x):
        return functional.linear(functional.normalize(x), functional.normalize(self.weight))


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=16,
        patch_size=8,
        num_labels=CLASSES,
    )
    return seeded(ViTForImageClassification, config)


def resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=CLASSES)
    return seeded(ResNetForImageClassification, config)


def distilbert() -> nn.Module:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(vocab_size=50, dim=16, hidden_dim=32, n_layers=2, n_heads=2, num_labels=CLASSES)
    return seeded(DistilBertForSequenceClassification, config)


def decoder() -> nn.Module:
    from transformers import GPT2Config, GPT2ForSequenceClassification

    special = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2, num_labels=CLASSES, **special)
    return seeded(GPT2ForSequenceClassification, config)


def texts(batches: int = 2, rows: int = ROWS) -> list[dict[str, torch.Tensor]]:
    made = []
    for seed in range(batches):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(50, (rows, 7), generator=generator)
        mask = (torch.arange(7) < torch.randint(2, 8, (rows, 1), generator=generator)).long()
        made.append({"input_ids": ids, "attention_mask": mask, "labels": labels(rows, seed)})
    return made
