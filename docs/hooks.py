"""Parts of the site that Markdown does not have: formulas as MathML, and tutorials with their output.

Formulas are converted when the site is built, so that pages need no script and no network. MathML is laid out well only
with a font made for it, which not every system has: the site brings STIX Two Math, which the package ziamath contains.
``mkdocs.yml`` names this file twice: as hooks of MkDocs, and `RestMath` as an extension of mkdocstrings' reader of
docstrings.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import html
import importlib
import io
import os
import re
import shutil
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Threads of OpenMP that wait sleep instead of spinning: on a busy machine tutorials take a tenth of the time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

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
    formula = convert(tex, display=display)
    # Names of functions need a space after them, slashes and bars none; infinity is a quantity, not an operator.
    formula = re.sub(
        r"(<mi>(?:ln|exp|max|min|log)</mi>)(?=<m(?:i|sub|sup|row)>)", r'\1<mspace width="0.17em"/>', formula
    )
    formula = re.sub(
        r"<mo[^>]*>(&#x0002F;|&#x0007C;)</mo>", r'<mo lspace="0" rspace="0" stretchy="false">\1</mo>', formula
    )
    return formula.replace("<mo>&#x0221E;</mo>", "<mi>&#x0221E;</mi>")


def on_page_content(text: str, **_: Any) -> str:
    """Replace formulas that Arithmatex has marked; options such as ``--every`` are not broken at their hyphens."""
    text = re.sub(r"<code>(--[\w-]{1,30})</code>", r'<code class="option">\1</code>', text)
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


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Run tutorials, and name files of the repository where a link leads out of the site."""
    if page.file.src_uri.startswith("tutorials/"):
        markdown = executed(markdown)
    depth = page.file.src_uri.count("/") + 1
    link = rf"\[([^\]]+)\]\((?:\.\./){{{depth}}}([^)#]+)(?:#[^)]*)?\)"
    return re.sub(link, r"\1 (`\2`)", re.sub(rf"\({link}\)", r"(\1: `\2`)", markdown))


def executed(markdown: str) -> str:
    """A page with what each of its Python blocks prints, returns and draws; they run in a temporary folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.sub(
            r"^```python\n(.*?)^```$",
            lambda block: f"{block[0]}\n\n{run_python(block[1], names)}",
            markdown,
            flags=re.MULTILINE | re.DOTALL,
        )


def run_python(code: str, names: dict[str, Any]) -> str:
    """What a block prints, the value of its last line as a notebook shows it, and its figures."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.use("agg")
    plt = importlib.import_module("matplotlib.pyplot")
    body = ast.parse(code).body
    shows = isinstance(body[-1], ast.Expr) and not code.rstrip().endswith(";")
    last = ast.Expression(body.pop().value) if shows else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body, []), "tutorial", "exec"), names)
        value = eval(compile(last, "tutorial", "eval"), names) if last else None
    figures = [plt.figure(number) for number in plt.get_fignums()]
    plt.close("all")
    if isinstance(value, Figure):
        figures, value = [*figures, value], None
    text = printed.getvalue() + ("" if value is None else repr(value))
    return "\n\n".join([text_block(text), *map(picture, figures)])


def text_block(text: str) -> str:
    """Text as it is printed."""
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def picture(figure: Figure) -> str:
    """A figure inside the page."""
    data = io.BytesIO()
    figure.savefig(data, dpi=100, bbox_inches="tight")
    return f'<img alt="Figure" src="data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}">'


def on_post_build(config: Any, **_: Any) -> None:
    """Put the font of the formulas beside the style sheets."""
    folder = Path(config["site_dir"]) / "stylesheets"
    folder.mkdir(exist_ok=True)
    package = find_spec("ziamath")
    if package is None or package.origin is None:
        raise PluginError("Expected the package ziamath, which has the font of the formulas: install the extra docs")
    shutil.copyfile(Path(package.origin).parent / "fonts" / "STIXTwoMath-Regular.ttf", folder / "math.ttf")
