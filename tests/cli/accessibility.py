"""A page in headless Chromium, without a network: axe-core's checks, or what a script reads."""

import html
import importlib.resources
import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
LIGHT, DARK = 1, 0
"""What Chromium calls the schemes that a page is asked to have."""
RESULT = "axe-result"
CHECK = """
<script>{axe}</script>
<script>
axe.run(document, {{resultTypes: ["violations", "incomplete"]}}).then(found => {{
  const told = document.createElement("pre");
  told.id = "{result}";
  const brief = list => list.map(one => ({{
    id: one.id, help: one.help,
    nodes: one.nodes.map(node => node.html.slice(0, 200) + " | " + node.failureSummary),
  }}));
  told.textContent = JSON.stringify({{
    violations: brief(found.violations),
    passes: found.passes.map(one => one.id),
    picture: (document.querySelector("picture img") || {{currentSrc: ""}}).currentSrc.length,
    reach: Math.max(...[...document.querySelectorAll("main *")]
      .filter(one => !one.closest(".wide, pre, .unseen"))
      .map(one => one.getBoundingClientRect().right)),
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    paper: getComputedStyle(document.body).backgroundColor,
  }});
  document.body.appendChild(told);
}});
</script>
"""


def browser() -> str:
    """The browser's program; the test is skipped where there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no headless browser here: none of {', '.join(BROWSERS)} is on the path")
    return found


def checked(page: Path, folder: Path, width: int, scheme: int) -> dict:
    """What axe-core finds in a page.

    Args:
        page: an HTML file.
        folder: to put copies in.
        width: of the window in pixels.
        scheme: LIGHT or DARK.
    """
    browser()
    if find_spec("axe_core_python") is None:
        pytest.skip('axe-core is not here: pip install "lexppl[tests]"')
    axe = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    return run_in(page, folder, CHECK.format(axe=axe, result=RESULT), width, scheme)


def run_in(page: Path, folder: Path, script: str, width: int = 1000, scheme: int = LIGHT) -> dict:
    """The JSON that a script leaves in an element whose id is RESULT.

    Args:
        page, folder, width, scheme: as in :func:`checked`.
        script: HTML at the end of the page.
    """
    program, text = browser(), page.read_text("utf-8")
    assert text.count("</body>") == text.count("</head>") == 1
    # No window of a headless Chromium is narrower than 500 pixels.
    text = text.replace("</head>", f"<style>html {{ width: {width}px; }}</style></head>")
    with_script = folder / "with_script.html"
    with_script.write_text(text.replace("</body>", script + "</body>"), "utf-8")
    done = subprocess.run(
        [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder / 'profile'}",
            "--virtual-time-budget=60000",
            f"--blink-settings=preferredColorScheme={scheme}",
            f"--window-size={width},900",
            "--dump-dom",
            with_script.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    left = re.search(f'<pre id="{RESULT}">(.*?)</pre>', done.stdout, re.DOTALL)
    assert left is not None, f"{program} has left nothing: {done.stderr[-500:]}"
    found: dict = json.loads(html.unescape(left.group(1)))
    return found
