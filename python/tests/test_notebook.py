"""examples/python/notebook.ipynb: every cell runs, and what it shows is there."""

import ast
import json
import re

import pytest
from conftest import ROOT
from test_package import test_types_are_right as check_types

NOTEBOOK = json.loads((ROOT / "examples" / "python" / "notebook.ipynb").read_text())
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def run(code, session):
    """Of a cell; what a notebook would show: the value of an expression at its end."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), session)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), session) if last else None


@pytest.fixture(scope="module")
def shown():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        session = {}
        return [run(code, session) for code in CELLS]


def test_cells_show_what_they_are_to_show(shown):
    digit, exe, program, profile, changed, scores, accuracy, trained, nothing = shown
    assert digit == 7 and trained == 7 and nothing is None
    assert "<td>conv relu</td>" in exe._repr_html_()
    page = program._repr_html_()
    assert page.startswith("<iframe") and "nn.conv" in page and not re.search("(src|href)=[^ >]*http", page)
    assert "<table>" in profile._repr_html_()
    assert 0 < changed < 1 and scores.shape == ("N", 10) and accuracy > 0.85


def test_the_notebook_has_no_outputs_and_is_of_format_4():
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])
    assert not any(cell.get("outputs") for cell in NOTEBOOK["cells"])


def test_types_of_the_notebook(tmp_path, tmp_path_factory):
    code = tmp_path / "notebook.py"
    code.write_text("\n\n".join(CELLS))
    check_types([code], tmp_path_factory)
