"""Checks a report of `lathe opt --viz`: REPORT MAX_BYTES PASS...; with --browse also in Chromium.

The page must be one file without references to anything outside it, no larger than MAX_BYTES, and
name the passes. In the browser every control is used; no message may appear on its console.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

DATA = re.compile(r'<script id="data" type="application/json">(.*?)</script>', re.DOTALL)
OUTSIDE = re.compile(r"""https?:|//[a-z]|\bsrc\s*=|@import|url\(|\bfetch\(|XMLHttp|href="(?!data:,)""")
USE_EVERYTHING = """<script>
for (let i = 0; i < data.passes.length; ++i) {
  if (!data.passes[i].diff) continue;
  choosePass(i);
  for (const leaves of [true, false]) {
    document.getElementById("leaves").checked = leaves;
    showGraphs();
    for (const pane of view.panes) {
      for (const item of [...pane.layout.items.values()].slice(0, 50)) select(pane, item.node, true);
      pane.whole();
      pane.draw();
    }
    for (let k = 0; k < 20; ++k) step(k % 3 ? 1 : -1);
    document.getElementById("search").value = "nn.";
    search();
    nextHit(1);
    if (!view.hits.size) throw new Error("the search finds nothing");
  }
  for (const shown of ["before", "after", "both"]) {
    document.getElementById("view").value = shown;
    resizeAll();
  }
  for (const owner of view.pass.graph.after.nodes.filter(n => n.children.length)) {
    openPage(view.panes[1], owner.id);
    if (!view.panes[1].layout.frames.length) throw new Error("bodies without frames");
    const drawn = [...view.panes[1].layout.items.keys()];
    if (drawn.some(n => n.parent !== owner.id)) throw new Error("a body shows other ops");
    leavePage();
    if (view.panes[1].page !== owner.parent) throw new Error("the way out is lost");
  }
  while (view.panes.some(p => p.page >= 0)) leavePage();
  whatChanged();
  const words = document.querySelectorAll("#details .remark").length;
  if ((words > 0) !== (data.passes[i].remarks.length > 0)) throw new Error("remarks are not shown");
  for (const row of view.panes[1].layout.rows) {
    for (const [k, item] of row.entries()) {
      if (k && item.x - row[k - 1].x < (item.width + row[k - 1].width) / 2) throw new Error("overlap");
      if (item.down.some(to => to.row <= item.row)) throw new Error("an edge goes up");
    }
  }
}
document.body.dataset.used = "all";
</script></body>"""


def fail(words):
    sys.exit("FAIL: " + words)


def check_text(html, max_bytes, passes):
    if len(html.encode()) > max_bytes:
        fail(f"{len(html.encode())} bytes, more than {max_bytes}")
    (text,) = DATA.findall(html)
    if found := OUTSIDE.search(html.replace(text, "")):
        fail(f"a reference to something outside: {html[found.start() - 40:found.end() + 40]!r}")
    data = json.loads(text)
    names = [p["name"] for p in data["passes"]]
    if names != passes:
        fail(f"the report names {names}, not {passes}")
    for graph in data["graphs"]:
        if len(graph["n"]) != len(graph["i"]):
            fail("a graph has nodes without inputs")
    changes = [p["before"] != p["after"] for p in data["passes"]]
    if len(data["graphs"]) != 1 + sum(changes):
        fail(f"{len(data['graphs'])} graphs are kept for {sum(changes)} changes")


def browse(html):
    browser = shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "report.html"
        page.write_text(html.replace("</body>", USE_EVERYTHING))
        done = subprocess.run(
            [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={folder}/profile", "--enable-logging=stderr",
             "--virtual-time-budget=5000", "--dump-dom", page.as_uri()],
            capture_output=True, text=True, timeout=120)
    messages = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    if messages:
        fail("the console says:\n" + "\n".join(messages))
    if 'data-used="all"' not in done.stdout:
        fail("the page did not run to its end")
    if 'class="pass chosen"' not in done.stdout:
        fail("no pass is shown")


def main(arguments):
    in_browser = "--browse" in arguments
    path, max_bytes, *passes = [a for a in arguments if a != "--browse"]
    html = pathlib.Path(path).read_text()
    check_text(html, int(max_bytes), passes)
    if in_browser:
        browse(html)


if __name__ == "__main__":
    main(sys.argv[1:])
