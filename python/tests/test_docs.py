"""The code of docs/python.md runs as it stands, in order, as one session."""

import re

from conftest import ROOT


def test_blocks_of_the_page(tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "python.md").read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    assert len(blocks) >= 8
    session: dict[str, object] = {}
    for block in blocks:
        line = page.count("\n", 0, block.start()) + 1
        code = "\n" * line + block[1]
        exec(compile(code, "docs/python.md", "exec"), session)
