"""README's Python examples with the gdscore of the environment: ``python -m tests.readme``, as ``make dist`` does with the wheel."""

import re
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]


def examples(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def readers_model() -> dict[str, object]:
    """What README calls yours: a network, labelled images that training has not seen, and images without labels."""
    import torch
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (torch.tensor(digits.images[:, None], dtype=torch.float32) / 16 - 0.5) / 0.5
    labels = torch.tensor(digits.target)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[:700]), labels[:700]).backward()
        optimizer.step()
    labelled = torch.utils.data.TensorDataset(images[700:900], labels[700:900])
    return {"model": model, "val_set": labelled, "new_set": torch.utils.data.TensorDataset(images[1300:1500])}


if __name__ == "__main__":
    import gdscore

    warnings.simplefilter("ignore")
    names = readers_model()
    for example in examples(ROOT / "README.md"):
        exec(compile(example, "README.md", "exec"), names)
    sys.stdout.write(f"README's examples ran with {gdscore.__file__}\n")
