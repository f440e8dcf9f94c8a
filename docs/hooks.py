"""Parts of the site that Markdown does not have: formulas as MathML, and pages of notebooks.

Formulas are converted when the site is built, so that pages need no script and no network. MathML is laid out well only
with a font made for it, which not every system has: the site brings STIX Two Math, which the package ziamath contains.
``mkdocs.yml`` names this file twice: as hooks of MkDocs, and `RestMath` as an extension of mkdocstrings' reader of
docstrings.
"""

from __future__ import annotations

import html
import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

EXAMPLES = Path(__file__).parents[1] / "examples"
# Signs that the pages write as themselves; converted as letters they would get no space around them.
SIGNS = {
    "−": "-", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∈": r"\in ", "×": r"\times ", "·": r"\cdot ", "…": r"\dots ",
    "‖": r"\| ", "ᵀ": r"^\top ", "→": r"\to ", "∞": r"\infty ", "ℝ": r"\mathbb{R}", "Σ": r"\sum ", "∇": r"\nabla ",
    "∂": r"\partial ", "ℓ": r"\ell ", "⟨": r"\langle ", "⟩": r"\rangle ", "≈": r"\approx ", "∝": r"\propto ",
}  # fmt: skip


class RestMath(griffe.Extension):
    """Turns ``.. math::`` of docstrings into formulas of Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^\.\. math::\s*((?:.+\n?)+?)(?=\n\s*\n|\n?\Z)",
                lambda match: f"$${' '.join(match[1].split())}$$\n",
                obj.docstring.value,
                flags=re.MULTILINE,
            )


def mathml(tex: str, display: str) -> str:
    """A formula of LaTeX, with signs of Unicode, as MathML."""
    for sign, command in SIGNS.items():
        tex = tex.replace(sign, command)
    tex = re.sub(r"\\mathrm\{(\w\w+)\}", r"\\operatorname{\1}", tex)
    found = convert(tex, display=display)
    # Names of functions need a space after them, slashes and bars none; infinity is a quantity, not an operator.
    found = re.sub(r"(<mi>(?:ln|exp|max|min|log)</mi>)(?=<m(?:i|sub|sup|row)>)", r'\1<mspace width="0.17em"/>', found)
    found = re.sub(r"<mo[^>]*>(&#x0002F;|&#x0007C;)</mo>", r'<mo lspace="0" rspace="0" stretchy="false">\1</mo>', found)
    return found.replace("<mo>&#x0221E;</mo>", "<mi>&#x0221E;</mi>")


def on_page_content(text: str, **_: Any) -> str:
    """Replace formulas that Arithmatex has marked."""
    text = re.sub(
        r'<span class="arithmatex">\\\((.*?)\\\)</span>',
        lambda match: mathml(html.unescape(match[1]), "inline"),
        text,
        flags=re.DOTALL,
    )
    return re.sub(
        r'<div class="arithmatex">\\\[(.*?)\\\]</div>',
        lambda match: f'<div class="formula">{mathml(html.unescape(match[1]), "block")}</div>',
        text,
        flags=re.DOTALL,
    )


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name files of the repository where a link leads out of the site."""
    return re.sub(r"\[([^\]]+)\]\((?:\.\./)+([^)#]+)(?:#[^)]*)?\)", r"\1 (`\2`)", markdown)


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add a page for each notebook."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        files.append(File.generated(config, f"examples/{path.stem}.md", content=page_of(path)))
    return files


def page_of(path: Path) -> str:
    """A notebook as Markdown: text, code, and outputs as text or pictures."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [shown for output in cell.get("outputs", []) if (shown := output_of(output))]
    parts.append(f"*Made of the notebook `examples/{path.name}`.*")
    return "\n\n".join(parts) + "\n"


def output_of(output: dict[str, Any]) -> str:
    """One output of a cell; pictures are inside the page."""
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="Figure" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'.replace("\n", "")
    return f"```text\n{''.join(data['text/plain'])}\n```" if "text/plain" in data else ""


def on_post_build(config: Any, **_: Any) -> None:
    """Put the font of the formulas beside the style sheets."""
    folder = Path(config["site_dir"]) / "stylesheets"
    folder.mkdir(exist_ok=True)
    package = find_spec("ziamath")
    if package is None or package.origin is None:
        raise PluginError("Expected the package ziamath, which has the font of the formulas: install the extra docs")
    shutil.copyfile(Path(package.origin).parent / "fonts" / "STIXTwoMath-Regular.ttf", folder / "math.ttf")
