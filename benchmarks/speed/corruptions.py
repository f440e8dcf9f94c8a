"""How long do 19 corruptions × 5 severities of 32×32×3 images take, on the GPU where torch has one?

    python -m benchmarks.speed.corruptions                          # 10,000 images on a GPU, 200 on a CPU
    python -m benchmarks.speed.corruptions --images 1000 --library numpy --output benchmarks/results/corruption_cpu.json

Ends with status 1 when 10,000 images or more take over 60 seconds on a GPU.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch

import gdscore
from gdscore import shifts

BOUND_SECONDS = 60
SEVERITIES = range(1, 6)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, help="10,000 on a GPU, 200 on a CPU unless given")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--library", choices=["torch", "numpy"], default="torch")
    parser.add_argument("--output", type=Path, help="write the numbers as JSON")
    return parser.parse_args()


def main():
    options = arguments()
    gpu = options.library == "torch" and torch.cuda.is_available()
    count = options.images or (10_000 if gpu else 200)
    x = np.random.default_rng(0).integers(0, 256, (count, 3, options.size, options.size), dtype=np.uint8)
    images = torch.from_numpy(x).to("cuda" if gpu else "cpu") if options.library == "torch" else x

    def wait():
        if gpu:
            torch.cuda.synchronize()

    seconds = {}
    for name in shifts.corruption_names():
        shifts.Corruption(name, 1)(images[:2])
        wait()
        begin = time.perf_counter()
        for severity in SEVERITIES:
            shifts.Corruption(name, severity)(images)
        wait()
        seconds[name] = time.perf_counter() - begin
        per_thousand = seconds[name] / len(SEVERITIES) / count * 1000
        print(f"{name:20s} {seconds[name]:8.3f} s   {1000 * per_thousand:8.1f} ms per 1,000 images", flush=True)
    total = sum(seconds.values())
    result = {
        "images": count,
        "size": options.size,
        "severities": len(SEVERITIES),
        "library": options.library,
        "device": torch.cuda.get_device_name() if gpu else f"{platform.machine()}, {torch.get_num_threads()} threads",
        "versions": {"numpy": np.__version__, "torch": torch.__version__, "gdscore": gdscore.__version__},
        "seconds": seconds,
        "total_seconds": total,
        "peak_gpu_bytes": torch.cuda.max_memory_allocated() if gpu else None,
    }
    print(f"total {total:.1f} s for {count:,} images × {len(seconds)} × {len(SEVERITIES)} on {result['device']}")
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(int(gpu and count >= 10_000 and total > BOUND_SECONDS))


if __name__ == "__main__":
    main()
