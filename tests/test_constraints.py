"""constraints.txt pins what `.[dev]` asks for; ``make lock`` writes it."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def name_of(requirement):
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def test_every_dependency_has_one_exact_version():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = [name_of(line) for line in lines]
    assert len(set(pinned)) == len(pinned)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted, extras = set(map(name_of, project["dependencies"])), ["dev"]
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            own = re.match(r"gdscore\[(.*)\]", requirement)
            if own:
                extras += own[1].split(",")
            else:
                wanted.add(name_of(requirement))
    assert wanted <= set(pinned), f"run make lock: {sorted(wanted - set(pinned))}"
