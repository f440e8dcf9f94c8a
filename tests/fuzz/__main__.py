"""Attack everything and print counts: ``python -m tests.fuzz [--seconds N] [--seed S] [--only NAME …] [--case K]``.

Each attack runs in a process of its own, so that one that ends the process is found too. Exits with 1 where anything but
a `GdscoreError` came out, or an answer that is not finite.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from . import arrays, estimates, files, networks, saved  # noqa: F401
from .harness import ATTACKS, Outcome, run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="for each attack")
    parser.add_argument("--cases", type=int, help="at most so many for each attack")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=sorted(ATTACKS), default=sorted(ATTACKS))
    parser.add_argument("--case", type=int, help="one case of one attack, with its traceback")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        outcome = attacked(options.only[0], options, options.child)
        (options.child / "outcome").write_text(outcome.to_json())
        return 0
    failed = False
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            if options.case is not None:
                outcome = attacked(name, options, Path(folder))
            else:
                outcome = apart(name, options, Path(folder))
        failed |= outcome.failed
        print(*outcome.lines(options.seed), sep="\n", flush=True)  # noqa: T201
    return int(failed)


def attacked(name, options, folder):
    # Written before each case: where the process ends, this is the one that ended it.
    note = (folder / "case").write_text
    return run(
        name,
        folder,
        seed=options.seed,
        cases=options.cases,
        seconds=options.seconds,
        only=options.case,
        on_case=lambda case: note(str(case)),
    )


def apart(name, options, folder):
    command = [sys.executable, "-m", "tests.fuzz", "--only", name, "--child", str(folder)]
    command += ["--seed", str(options.seed), "--seconds", str(options.seconds)]
    command += [] if options.cases is None else ["--cases", str(options.cases)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return Outcome.from_json((folder / "outcome").read_text())
    outcome = Outcome(name)
    last_line = (done.stderr.strip().splitlines() or [""])[-1]
    case = (folder / "case").read_text() if (folder / "case").exists() else "?"
    outcome.add(f"the process ended with {done.returncode} ({last_line[:200]})", case)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
