"""Take the pictures of the page in this directory: run it with the Python of .venv, from the checkout.

It fills a Redis of its own with what the tests of the page show, and needs Chromium.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "web"), str(ROOT / "tests")]

from chromium import find_chromium  # noqa: E402
from site_data import seeded  # noqa: E402
from transactions import protocol  # noqa: E402

from blueque import Client  # noqa: E402
from blueque.model.attempt_ref import AttemptRef  # noqa: E402
from blueque.model.log_line import Line  # noqa: E402
from blueque.system.embedded_redis import running_server  # noqa: E402

TOKEN = "0123456789abcdef"
PICTURES = {
    "overview": ("/", 1280, "light"),
    "task": ("/tasks/{running}", 1280, "light"),
    "hosts": ("/nodes?span=24h", 1280, "dark"),
    "phone": ("/", 390, "light"),
}


def print_more(url: str) -> None:
    """Let the running task print lines as programs do; those of the tests are hostile."""
    attempt = AttemptRef("render.4k", "aurora", "token-aurora", "gpu-1_0")
    lines = [
        Line(number, time.time(), "stdout", f"frame {848 + number}/1440  \x1b[32mok\x1b[0m  7.4 s")
        for number in range(31, 60)
    ]
    with contextlib.closing(Client(url)) as client:
        protocol.log(client.connections, attempt, 1, lines)


def take(browser: Browser, url: str, ids: dict[str, str]) -> None:
    """Take each picture."""
    for name, (path, width, scheme) in PICTURES.items():
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        context.request.post(f"{url}/login", form={"token": TOKEN}, headers={"origin": url})
        page = context.new_page()
        page.goto(url + path.format(**ids), wait_until="commit")
        page.get_by_text("live", exact=True).wait_for()
        page.screenshot(path=Path(__file__).with_name(f"{name}.png"), full_page=name != "hosts")
        context.close()


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no chromium: apt install chromium")
    with running_server("--appendonly", "yes") as server, sync_playwright() as playwright:
        ids = seeded(server.url)
        print_more(server.url)
        environ = os.environ | {"BLUEQUE_REDIS_URL": server.url, "BLUEQUE_WEB_TOKEN": TOKEN}
        page = subprocess.Popen(
            [sys.executable, "-m", "blueque.cli.main", "web", "--listen", "127.0.0.1:0"],
            env=environ,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert page.stderr is not None
        line = next(line for line in page.stderr if "http://" in line)
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=options)
        take(browser, line.strip().rstrip("/"), ids)
        browser.close()
        page.terminate()
        page.communicate()


if __name__ == "__main__":
    main()
