"""The Python code of pages runs as it stands, in order, each page as one session."""

import re

import pytest
from conftest import ROOT


@pytest.mark.parametrize("name, least", [("README.md", 1), ("docs/python.md", 8)])
def test_blocks_of_the_page(name, least, tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / name).read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    assert len(blocks) >= least
    session: dict[str, object] = {}
    for block in blocks:
        line = page.count("\n", 0, block.start()) + 1
        code = "\n" * line + block[1]
        exec(compile(code, name, "exec"), session)
