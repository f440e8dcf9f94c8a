"""How the figures look, and saving them so that equal data gives equal bytes."""

import matplotlib.pyplot as plt

__all__ = ["COLOURS", "panels", "plain", "save"]

# Okabe and Ito's palette, told apart with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")


def plain():
    """Settings of every figure, as a context."""
    return plt.rc_context(
        {
            "svg.hashsalt": "gdscore",
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "font.size": 8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": "#e5e5e5",
            "figure.constrained_layout.use": True,
        }
    )


def panels(rows, columns, *, width, height, **options):
    return plt.subplots(rows, columns, figsize=(width, height), squeeze=False, **options)


def save(figure, file):
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None}, dpi=130)
    plt.close(figure)
    return file
