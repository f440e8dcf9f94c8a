"""Draw docs/images/corruptions.png: every corruption at severities 1, 3, 5 and 8, on one of scikit-learn's photographs.

python -m benchmarks.estimates.corruption_gallery
python -m benchmarks.estimates.corruption_gallery --size 32 --output gallery32.png
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_sample_images

from benchmarks import ROOT
from gdscore import shifts

SEVERITIES = (1, 3, 5, 8)
LABEL, GAP, COLUMNS = 16, 4, 3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=96, help="pixels of the image that is corrupted")
    parser.add_argument("--tile", type=int, default=96, help="pixels it is shown at")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images" / "corruptions.png")
    return parser.parse_args()


def main():
    options = arguments()
    photo = Image.fromarray(load_sample_images().images[0]).crop((150, 40, 470, 360))
    clean = np.asarray(photo.resize((options.size, options.size), Image.Resampling.LANCZOS))
    batch = np.ascontiguousarray(clean.transpose(2, 0, 1)[None])
    names = shifts.corruption_names()
    rows = -(-(len(names) + 1) // COLUMNS)
    width, height = len(SEVERITIES) * options.tile + 4 * GAP, options.tile + LABEL + GAP
    sheet = Image.new("RGB", (COLUMNS * width, rows * height), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)

    def show(place, text, images):
        left, top = place // rows * width, place % rows * height
        draw.text((left + 1, top), text, fill="black", font=font)
        for k, image in enumerate(images):
            tile = Image.fromarray(image).resize((options.tile, options.tile), Image.Resampling.NEAREST)
            sheet.paste(tile, (left + k * options.tile, top + LABEL))

    show(0, f"clean, {options.size} px; below: severities {', '.join(map(str, SEVERITIES))}", [clean])
    for place, name in enumerate(names, start=1):
        shifted = [shifts.Corruption(name, severity)(batch)[0].transpose(1, 2, 0) for severity in SEVERITIES]
        show(place, name, shifted)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    # A palette, dithered, takes half the bytes.
    palette = sheet.quantize(256)
    sheet.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(options.output, optimize=True)
    print(f"{options.output.name}: {sheet.width}×{sheet.height}, {options.output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
