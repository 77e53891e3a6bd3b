"""noVNC in Debian's chromium shows the screen of a real guest. In `make test-all` only: installing chromium and noVNC
takes 100 s on two cores."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.guests.test_cloud import data as data
from tests.guests.test_consoles import guest as guest
from tests.guests.test_consoles import url_of
from tests.support.program import Http, until
from tests.support.servers import need

QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--window-size=900,600", "--remote-debugging-port=0"),
)
COLORS = """(() => {
  const canvas = document.querySelector("canvas");
  if (!canvas || !canvas.width) return {};
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, colors = {};
  for (let at = 0; at < data.length; at += 4) {
    const color = `${data[at]},${data[at + 1]},${data[at + 2]}`;
    colors[color] = (colors[color] || 0) + 1;
  }
  return colors;
})()"""
BLACK, GREY = "0,0,0", "168,168,168"  # of VGA's text: its background, and its letters
SECONDS = 60.0


@pytest.mark.full
def test_novnc_shows_the_screen(guest: tuple[Http, str]) -> None:
    """KILONOVA_SCREENSHOT=FILE keeps what the page looks like."""
    http, server = guest
    url = url_of(http, server, "vnc", "novnc")
    with tempfile.TemporaryDirectory(prefix="kilonova-browser-") as folder, browser(Path(folder)) as address:
        colors, screenshot = asyncio.run(look(address, url))
    if place := os.environ.get("KILONOVA_SCREENSHOT"):
        Path(place).write_bytes(screenshot)
    assert colors.get(BLACK, 0) > 100_000, f"no screen of 720 by 400 pixels: {colors}"
    assert colors.get(GREY, 0) > 500, f"no text on the screen: {colors}"


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[str]:
    """The address of its DevTools."""
    command = [str(need("browser")), *QUIET, f"--user-data-dir={folder}", "about:blank"]
    port = folder / "DevToolsActivePort"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: port.is_file() and len(port.read_text().split()) == 2, SECONDS, "chromium has started")
            number, path = port.read_text().split()
            yield f"ws://127.0.0.1:{number}{path}"
        finally:
            process.terminate()


async def look(address: str, url: str) -> tuple[dict[str, int], bytes]:
    async with connect(address, max_size=None) as connection:
        tools = _Tools(connection)
        made = await tools.ask("Target.createTarget", url=url)
        attached = await tools.ask("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        tools.session = attached["sessionId"]
        ends, colors = time.monotonic() + SECONDS, dict[str, int]()
        while not colors.get(GREY) and time.monotonic() < ends:
            await asyncio.sleep(0.3)
            answer = await tools.ask("Runtime.evaluate", expression=COLORS, returnByValue=True)
            colors = answer["result"].get("value", {})
        shot = await tools.ask("Page.captureScreenshot", format="png")
        return colors, base64.b64decode(shot["data"])


class _Tools:
    """The DevTools protocol, one question at a time."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection, self._numbers = connection, itertools.count(1)
        self.session = ""

    async def ask(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        session = {"sessionId": self.session} if self.session else {}
        await self._connection.send(json.dumps({"id": number, "method": method, "params": parameters, **session}))
        async with asyncio.timeout(SECONDS):
            while (answer := json.loads(await self._connection.recv())).get("id") != number:
                pass
        assert "result" in answer, answer
        return answer["result"]
