"""A page in headless Chromium, without a network: axe-core's checks, or what keys do."""

import html
import importlib.resources
import itertools
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
LIGHT, DARK = 1, 0
"""What Chromium calls the schemes that a page is asked to have."""
KEYS = {"End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}
"""Keys that write no letter, with their numbers in Windows, by which Chromium knows them."""
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
    program = browser()
    if find_spec("axe_core_python") is None:
        pytest.skip('axe-core is not here: pip install "lexppl[tests]"')
    axe = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    text = page.read_text("utf-8")
    assert text.count("</body>") == text.count("</head>") == 1
    # No window of a headless Chromium is narrower than 500 pixels.
    text = text.replace("</head>", f"<style>html {{ width: {width}px; }}</style></head>")
    with_script = folder / "with_script.html"
    script = CHECK.format(axe=axe, result=RESULT)
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


class Keyboard:
    """A page in Chromium, and the keys that are pressed in it, by the DevTools protocol: messages
    of JSON that end with NUL."""

    def __init__(self, commands: int, answers: int, page: Path) -> None:
        self._commands, self._answers = commands, answers
        self._numbers, self._session = itertools.count(1), {}
        target = self._call("Target.createTarget", url=page.as_uri())["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        until = time.monotonic() + 60.0
        while self.read("document.readyState + location.protocol") != "completefile:":
            assert time.monotonic() < until, "the page has not been loaded"

    def press(self, *keys: str) -> None:
        """Press keys one after another: those of KEYS, or letters and digits."""
        for key in keys:
            named = {"windowsVirtualKeyCode": KEYS[key], "code": key} if key in KEYS else {}
            text = {} if key in KEYS else {"text": key}
            down = "rawKeyDown" if key in KEYS else "keyDown"
            self._call("Input.dispatchKeyEvent", type=down, key=key, **named, **text)
            self._call("Input.dispatchKeyEvent", type="keyUp", key=key, **named)

    def read(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def _call(self, method: str, **params: Any) -> dict:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params, **self._session}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            text = b""
            while not text.endswith(b"\0"):
                text += (letter := os.read(self._answers, 1))
                assert letter, "Chromium has ended"
            answer = json.loads(text[:-1])
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]


@contextmanager
def keyboard(page: Path, folder: Path) -> Iterator[Keyboard]:
    """A page in headless Chromium, with the keys that are pressed in it.

    Args:
        page: an HTML file.
        folder: for the browser's profile.
    """
    program = browser()
    (theirs, commands), (answers, their_answers) = os.pipe(), os.pipe()
    # A shell, as Chromium's ends of the pipes must be 3 and 4.
    words = ["sh", "-c", f'exec "$@" 3</dev/fd/{theirs} 4>/dev/fd/{their_answers}', "sh", program]
    words += ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
    started = subprocess.Popen(
        [*words, f"--user-data-dir={folder / 'profile'}", "about:blank"],
        pass_fds=(theirs, their_answers),
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    os.close(their_answers)
    try:
        yield Keyboard(commands, answers, page)
    finally:
        os.close(commands)
        os.close(answers)
        started.terminate()
        started.wait(30)
