"""The wheel is complete: built, installed where gdscore is not, and run there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import gdscore

ROOT = Path(__file__).parents[1]
OFFLINE = ("No matching distribution found for hatchling", "Could not find a version that satisfies the requirement")


def pip(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", *map(str, args), "--disable-pip-version-check"]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    if pip("--version").returncode:
        pytest.skip("the wheel was not built: there is no pip")
    folder = tmp_path_factory.mktemp("wheel")
    built = pip("wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    if built.returncode and any(words in built.stdout + built.stderr for words in OFFLINE):
        pytest.skip("the wheel was not built: pip cannot get hatchling here")
    assert built.returncode == 0, built.stdout + built.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Run a program of an environment that has the wheel, and borrows everything else from this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    if not python.exists():
        pytest.skip("environments are laid out differently here")
    base = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "posix_prefix", vars=base))
    # A path in a .pth file: .pth files in there, such as that of an editable gdscore, are not read again.
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "borrowed.pth").write_text("\n".join(sorted(borrowed)))
    done = pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    assert done.returncode == 0, done.stderr

    def run(program: str, *args: str) -> str:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([folder / "bin" / program, *args], capture_output=True, text=True, cwd=folder, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run.folder = folder
    return run


def test_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"gdscore", f"gdscore-{gdscore.__version__}.dist-info"}
    sources = {p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src").rglob("*") if p.is_file()}
    assert {n for n in names if n.startswith("gdscore/")} == {n for n in sources if "__pycache__" not in n}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "gdscore/py.typed" in names


def test_metadata(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    metadata = message_from_string(archive.read(name).decode())
    assert metadata["Version"] == gdscore.__version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    extras = {"torch", "ray", "monitor", "mlflow", "docs", "dev"}
    assert set(metadata.get_all("Provides-Extra")) == extras
    core = {re.match(r"[\w-]+", line)[0] for line in metadata.get_all("Requires-Dist") if "extra ==" not in line}
    core_packages = {"numpy", "scipy", "scikit-learn", "array-api-compat", "narwhals", "typer", "rich", "matplotlib"}
    assert core == core_packages | {"jinja2", "pillow", "pyarrow", "tzdata"}


def test_description_has_no_link_that_an_index_cannot_follow(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    text = message_from_string(archive.read(name).decode()).get_payload()
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert text.startswith("# gdscore")
    assert all(link.startswith("https://") for link in links)
    assert text.count("```") % 2 == 0
    assert "<!--" not in text


def test_command_runs(installed):
    assert installed("gdscore", "--version") == f"gdscore {gdscore.__version__}\n"
    shown = installed("gdscore", "methods")
    assert {line.split()[0] for line in shown.splitlines() if line.split()} >= set(gdscore.list_scores())


def test_estimate_of_the_installed_package(installed):
    code = (
        "import gdscore, numpy as np; z = 3 * np.random.default_rng(0).normal(size=(600, 3));"
        "r = gdscore.Outputs(logits=z, labels=z.argmax(1)); print(gdscore.AccuracyEstimator().fit(r).estimate(r).accuracy)"
    )
    assert 0.9 < float(installed("python", "-c", code)) <= 1


def test_report_finds_its_templates(installed):
    code = (
        "import gdscore.report, gdscore.report.page as page; print(gdscore.__file__);"
        "print(page._environment().list_templates())"
    )
    where, templates = installed("python", "-c", code).splitlines()
    assert Path(where).is_relative_to(installed.folder)
    assert templates == "['report.css', 'report.html']"


def test_citation_has_the_version():
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["title"], cited["license"]) == ("gdscore", "Apache-2.0")
    assert cited["version"] == gdscore.__version__
    assert f'version = "{gdscore.__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"## {gdscore.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert cited["references"][0]["journal"] == "Transactions on Machine Learning Research"


def test_the_workflow_runs_make_test_on_every_supported_python():
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"]
    supported = re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert job["strategy"]["matrix"]["python"] == supported
    assert job["steps"][-1]["run"].endswith("make test")
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert [hook["entry"].split()[0].rpartition("/")[2] for hook in hooks] == re.findall(r"\$\(BIN\)/([\w-]+)", lint)


def workflow(name):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))["jobs"]


def test_other_systems_and_lowest_versions_are_tested():
    jobs = workflow("test.yml")
    assert jobs["systems"]["strategy"]["matrix"]["system"] == ["macos-latest", "windows-latest"]
    assert any("lowest-direct" in step.get("run", "") for step in jobs["lowest"]["steps"])
    folders = [word for word in jobs["lowest"]["steps"][-1]["run"].split() if word.startswith("tests/")]
    assert folders
    assert all((ROOT / folder).is_dir() for folder in folders)


def test_release_publishes_what_was_tested_without_a_token():
    """Parsed only: the workflow has never run."""
    jobs = workflow("release.yml")
    assert any("make test dist" in step.get("run", "") for step in jobs["build"]["steps"])
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "password" not in str(jobs)
    assert any("mike deploy" in step.get("run", "") for step in jobs["documentation"]["steps"])


def test_images_of_containers_have_versions():
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))["services"].values()
    images = [service["image"] for service in services if "image" in service]
    images += re.findall(r"^FROM (\S+)", (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(images) == 4
    assert all(re.search(r":v?\d+\.\d+[\w.-]*$", image) for image in images)


def test_documents_of_a_release_are_there():
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "CITATION.cff", "docs/policy.md"):
        assert (ROOT / name).stat().st_size > 500
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(changes.split()) <= 400
    assert "### Added" in changes
