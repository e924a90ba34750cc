"""The page in a real browser: how it looks, what changes by itself, and what works without a mouse or
without JavaScript.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from chromium import find_chromium
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from running import BLUEQUE, until
from site_data import seeded
from transactions import protocol

from blueque import Client
from blueque.model.attempt_ref import AttemptRef
from blueque.model.log_line import Line
from blueque.system.embedded_redis import Server, running_server

TOKEN = "0123456789abcdef"
expect.set_options(timeout=15000)
ALONE = "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"  # no name but ours is found
PAGES = (
    *("/", "/queues", "/queues/render.4k", "/tasks", "/tasks?state=pending", "/tasks/{running}"),
    *("/tasks/{failed}", "/tasks/{pending}", "/tasks/{running}/log", "/nodes", "/nodes/gpu-1"),
    *(
        "/failures",
        "/failures/OSError",
        "/schedule",
        "/schedule/nightly",
        "/groups",
        "/groups/night",
    ),
    *(
        "/statistics",
        "/doctor",
        "/activity",
        "/settings",
        "/help",
        "/acts/cancel?id={running}",
        "/new?from={pending}",
    ),
)
# Of each kind of page one: with tables, with a form, with pictures. bin/soak looks at all of them.
IS_LONG = bool(os.environ.get("BLUEQUE_SOAK"))
FEW = ("/", "/tasks?state=pending", "/tasks/{running}", "/nodes", "/acts/cancel?id={running}")
ALL_RULES = {"resultTypes": ["violations"]}
COLOURS = ALL_RULES | {"runOnly": ["color-contrast"]}  # the other rules do not depend on the scheme


class Site:
    """A Redis, the page that shows it, and the ids of some tasks."""

    def __init__(self, server: Server, url: str, ids: dict[str, str]) -> None:
        self.server, self.redis, self.url, self.ids = server, server.url, url, ids

    def at(self, path: str) -> str:
        return self.url + path.format(**self.ids)


@contextlib.contextmanager
def open_site() -> Iterator[Site]:
    with running_server() as server:
        ids = seeded(server.url)
        with serving(server) as url:
            yield Site(server, url, ids)


@contextlib.contextmanager
def serving(server: Server, token: str = TOKEN, listen: str = "127.0.0.1:0") -> Iterator[str]:
    """Serve the page until the end of the block; yield its address."""
    environ = os.environ | {"BLUEQUE_REDIS_URL": server.url, "BLUEQUE_WEB_TOKEN": token}
    program = subprocess.Popen(
        [*BLUEQUE, "web", "--listen", listen, "--env", "prod"],
        env=environ, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stderr is not None
    try:
        line = next(line for line in program.stderr if "http://" in line)
        yield line.strip().rstrip("/")
    finally:
        program.terminate()
        program.communicate()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with open_site() as site:
        yield site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    assert path is not None, "no chromium: bin/test installs it"
    arguments = ["--disable-gpu", "--disable-dev-shm-usage", f"--host-resolver-rules={ALONE}"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


class Watched:
    """A page of a context, and everything that its browser complained about.

    loses: whether its server goes away, so that requests fail.
    """

    def __init__(self, context: BrowserContext, site: Site, loses: bool) -> None:
        self.page, self.complaints = context.new_page(), []
        self._loses = loses
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._require_ours(request.url, site.url))

    def _note(self, message: Any) -> None:
        is_expected = self._loses and message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and not is_expected:
            self.complaints.append(message.text)

    def _require_ours(self, url: str, ours: str) -> None:
        if not url.startswith((ours, "data:")):
            self.complaints.append(f"a request to {url}")


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Any]:
    """Return a function that opens a page as an operator; afterwards nothing may have complained."""
    opened: list[tuple[BrowserContext, Watched]] = []

    def visit(path: str, site: Site = site, loses: bool = False, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        context.set_default_timeout(15000)
        watched = Watched(context, site, loses)
        opened.append((context, watched))
        answer = context.request.post(
            f"{site.url}/login",
            form={"token": TOKEN},
            headers={"origin": site.url},
            max_redirects=0,
        )
        assert answer.status == 303
        watched.page.goto(site.at(path), wait_until="commit")
        watched.page.wait_for_selector("footer")
        watched.page.wait_for_load_state("load")  # with the stylesheet
        return watched.page

    yield visit
    complaints = [complaint for _, watched in opened for complaint in watched.complaints]
    for context, _ in opened:
        context.close()
    assert complaints == []


def test_pages_fit_and_axe_finds_nothing_in_light_and_dark_and_on_a_phone(visit, site):
    """Each page is loaded once; the window and the scheme change then. The dark colours are the same
    in every width, so bin/soak alone looks at them on a phone.
    """
    page, found = visit("/"), []
    for path in PAGES if IS_LONG else FEW:
        page.goto(site.at(path), wait_until="commit")
        page.wait_for_selector("footer")
        page.evaluate(AXE_SCRIPT)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if wider > 0:
                found.append(f"{path} is {wider} pixels too wide for {width}")
            for scheme in ("light", "dark") if IS_LONG or width == 1280 else ("light",):
                page.emulate_media(color_scheme=scheme)
                rules = ALL_RULES if scheme == "light" else COLOURS
                for violation in page.evaluate(f"axe.run({json.dumps(rules)})")["violations"]:
                    nodes = "; ".join(str(node["target"]) for node in violation["nodes"][:3])
                    found.append(f"{path} {width} {scheme}: {violation['id']}: {nodes}")
    assert found == []


LOOKS_THE_SAME = """() => {
  const look = (it) => [it, it.parentElement, ...it.querySelectorAll("*")].map((each) => {
    const style = getComputedStyle(each);
    const outline = style.outlineStyle === "none" ? "" : style.outlineWidth;
    return [outline, style.stroke, style.strokeWidth].join();
  }).join(" ");
  const found = [];
  for (const it of document.querySelectorAll("a, button, input, select, summary, [tabindex]")) {
    const without = look(it);
    it.focus({ focusVisible: true });
    if (it === document.activeElement && look(it) === without) found.push(it.outerHTML.slice(0, 99));
    it.blur();
  }
  return found;
}"""


def test_whatever_has_the_focus_of_the_keyboard_looks_different(visit, site):
    page, found = visit("/"), []
    for path in (*FEW, "/tasks/{running}/log", "/groups/night", "/statistics"):
        page.goto(site.at(path), wait_until="load")
        found += page.evaluate(LOOKS_THE_SAME)
    assert sorted({*found}) == []


def test_names_that_are_links_look_like_the_other_links(visit, site):
    page, wrong = visit("/"), []
    for path in ("/tasks", "/groups", "/failures", "/schedule", "/nodes/gpu-1"):
        page.goto(site.at(path), wait_until="load")
        names, other = page.evaluate(
            """() => {
                const colour = link => getComputedStyle(link).color;
                const other = document.createElement("a");
                document.querySelector("main").append(other);
                return [[...document.querySelectorAll("main tbody th a")].map(colour), colour(other)];
            }"""
        )
        if {*names} != {other}:
            wrong.append(path)

    assert wrong == []


def test_long_names_and_progress_take_the_room_that_there_is(visit, site):
    title = "Aurora Borealis, reel 7 of 12, for the print"
    Client(site.redis).get_queue("train.gpu").enqueue({}, title=title)
    page = visit("/tasks", viewport={"width": 1280, "height": 900})

    name = page.locator("th", has_text=title)
    assert name.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
    assert page.locator("progress").first.bounding_box()["width"] > 130
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_printed_list_has_its_heads_and_hosts(visit):
    page = visit("/tasks?state=failed", viewport={"width": 718, "height": 1000})
    page.emulate_media(media="print")

    expect(page.get_by_role("columnheader", name="Host")).to_be_visible()
    expect(page.get_by_role("cell", name="gpu-1").first).to_be_visible()


def test_ticks_and_rows_stay_while_tasks_arrive_and_these_wait_for_a_click(visit, site):
    client = Client(site.redis)
    queue = client.get_queue("preview")

    def cancelled() -> str:
        task = str(queue.enqueue({"scene": 1}))
        queue.cancel(task)
        return task

    old = [cancelled() for _ in range(4)][::-1]
    page = visit("/tasks?state=cancelled&limit=4")
    expect(page.locator("#live")).to_have_text("live")
    for task in old[1:]:
        page.locator(f"#c-{task}").check()

    first = cancelled()
    expect(page.get_by_role("button", name="1 more")).to_be_visible()
    cancelled()
    more = page.get_by_role("button", name="2 more")
    expect(more).to_be_visible()
    page.get_by_role("button", name="Tick all").click()
    expect(page.locator("#rows :checked")).to_have_count(4)
    page.locator(f"#c-{old[0]}").uncheck()
    rows = page.locator("#rows tbody tr")
    shown = rows.evaluate_all("them => them.map(it => it.id)")
    ticked = page.locator("#rows :checked").evaluate_all("them => them.map(it => it.value)")
    more.click()

    expect(page.locator(f"#t-{first}")).to_be_visible()
    expect(page.locator("#rows :checked")).to_have_count(1)  # of the four newest ones
    assert (shown, ticked) == ([f"t-{task}" for task in old], old[1:])
    client.close()


def test_a_list_that_was_empty_when_loaded_can_be_ticked_and_goes_on(visit, site):
    client = Client(site.redis)
    queue = client.get_queue("empty-so-far")
    page = visit("/tasks?queue=empty-so-far")
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator(".bulk")).to_be_hidden()
    first = queue.enqueue("1")
    page.locator(f"#c-{first}").check()
    expect(page.locator(".bulk")).to_be_visible()

    queue.enqueue("2")
    page.get_by_role("button", name="1 more").click()

    expect(page.locator("#rows tbody tr")).to_have_count(2)
    client.close()


def test_a_line_of_a_log_arrives_as_text(visit, site):
    page = visit("/tasks/{running}")
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#lines li").last).to_contain_text("<script>alert(29)</script>")

    client = Client(site.redis)
    attempt = AttemptRef("render.4k", "aurora", "token-aurora", "gpu-1_0")
    line = Line(31, time.time(), "stderr", "<b>disk full</b>")
    protocol.log(client.connections, attempt, 1, [line])
    protocol.progress(client.connections, attempt, "1000/1440 frames", time.time())

    expect(page.locator("#lines li").last).to_contain_text("<b>disk full</b>")
    expect(page.locator("#count")).to_have_text("31")
    expect(page.locator("#how .big")).to_have_text(re.compile("69"))
    expect(page).to_have_title(re.compile("^69 % "))
    client.close()


def test_a_log_says_which_lines_have_gone_while_the_page_did_not_ask(visit, site):
    page = visit("/tasks/{running}/log")
    expect(page.locator("#live")).to_have_text("live")
    last = int(page.locator("#lines li .ln").last.inner_text().replace(",", ""))

    client = Client(site.redis)
    attempt = AttemptRef("render.4k", "aurora", "token-aurora", "gpu-1_0")
    for number in (last + 1000, last + 1001):
        line = Line(number, time.time(), "stdout", f"frame {number}")
        protocol.log(client.connections, attempt, 1, [line])

    expect(page.locator("#lines li").last).to_contain_text(f"frame {last + 1001}")
    expect(page.locator("#lines li.gap").last).to_have_text(
        f"Lines {last + 1:,} to {last + 999:,} are no longer in Redis."
    )
    expect(page.locator("#lines li:nth-last-child(3)")).to_have_class("gap")
    client.close()


def test_a_page_asks_again_after_a_part_that_it_could_not_show(visit, site):
    page = visit("/tasks/{running}")
    expect(page.locator("#live")).to_have_text("live")
    page.evaluate(
        "console.warn = () => 0; morph = Idiomorph.morph; Idiomorph.morph = () => { failed = true; morph.x.y; }; 0"
    )
    client = Client(site.redis)
    attempt = AttemptRef("render.4k", "aurora", "token-aurora", "gpu-1_0")
    protocol.progress(client.connections, attempt, "1001/1440 frames", time.time())
    until(lambda: page.evaluate("window.failed"))

    page.evaluate("Idiomorph.morph = morph; 0")
    protocol.progress(client.connections, attempt, "1440/1440 frames", time.time())

    expect(page.locator("#how .big")).to_have_text(re.compile("100"))
    client.close()


def test_numbers_checks_and_the_question_of_a_drain_stay_inside_the_page(visit):
    page = visit("/statistics", viewport={"width": 390, "height": 900})
    page.locator(".figures dd small").first.evaluate(
        "it => it.textContent += ' 90 % within 5 m 53 s'"
    )
    narrow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    page = visit("/doctor")
    page.locator("#checks td.wide").first.evaluate("it => it.textContent += ' is gone,'.repeat(99)")
    doctor = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    page = visit("/nodes/gpu-1")
    page.get_by_text("Drain…", exact=True).click()
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")

    page.set_viewport_size({"width": 390, "height": 900})
    box = page.locator(".menu[open] > div").bounding_box()

    assert (narrow, doctor, wide) == (0, 0, 0)
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_without_javascript_a_task_is_found_and_cancelled(visit, site):
    client = Client(site.redis)
    task = str(client.get_queue("preview").enqueue({"scene": 7}, title="cancel me"))
    page = visit("/", java_script_enabled=False, viewport={"width": 390, "height": 844})
    page.get_by_role("searchbox").or_(page.locator("#q")).fill("cancel me")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="cancel me").click()
    page.get_by_role("link", name="Cancel…").click()
    page.get_by_label("Why").fill("wrong input")
    page.get_by_role("button", name="Cancel 1 task").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Cancel: 1 done")
    assert client.get_task(task).cancel_reason == "wrong input"
    client.close()


def test_the_keyboard_alone_leads_to_a_task(visit):
    page = visit("/")
    page.get_by_text("live", exact=True).wait_for()  # the script listens to keys
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("scan")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tasks?**", wait_until="commit")
    link = page.get_by_role("link", name="scan")
    expect(link).to_be_visible()
    while not link.evaluate("it => it === document.activeElement"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("scan")
    page.get_by_text("live", exact=True).wait_for()
    page.keyboard.press("?")
    expect(page.get_by_role("heading", level=1)).to_have_text("Help")


def test_without_redis_the_page_says_so_with_its_age_and_comes_back_by_itself(visit):
    with open_site() as own:
        page = visit("/queues/preview", own, loses=True)
        expect(page.locator("#live")).to_have_text("live")
        own.server.stop()

        trouble = page.get_by_role("alert")
        expect(trouble).to_contain_text("Redis does not answer")
        expect(trouble).to_contain_text(re.compile(r"This page shows what was true \d.* s ago"))

        own.server.start()
        with contextlib.closing(Client(own.redis)) as client:
            client.get_queue("preview").enqueue({"scene": 1})
        expect(page.locator("#live")).to_have_text("live")
        expect(trouble).to_be_hidden()


def test_a_page_of_a_server_that_was_started_anew_leads_to_the_login(visit, site):
    with contextlib.ExitStack() as first:
        url = first.enter_context(serving(site.server))
        page = visit("/queues", Site(site.server, url, site.ids), loses=True)
        expect(page.locator("#live")).to_have_text("live")
        first.close()
        with serving(site.server, "another-token-0123", url.removeprefix("http://")):
            expect(page.locator("#live")).to_have_text("logged out")
            expect(page.get_by_role("alert")).to_contain_text("The server was restarted")
            page.get_by_role("alert").get_by_role("link", name="Log in").click()
            page.get_by_label("Token").fill("another-token-0123")
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
            expect(page.locator("#live")).to_have_text("live")


def test_ages_are_right_though_the_clock_of_the_viewer_is_an_hour_ahead(visit, site):
    page = visit("/settings")
    page.add_init_script(
        "Date = class extends Date {"
        "constructor(...it) { super(...(it.length ? it : [Date.now()])); }"
        "static now() { return super.now() + 3600e3; } };"
    )
    with contextlib.closing(Client(site.redis)) as client:
        queue = client.get_queue("preview")
        queue.schedule({}, time.time() + 300, title="comes later")
        queue.enqueue({}, title="waits now")
    page.goto(site.at("/tasks?state=pending&state=scheduled"), wait_until="commit")

    expect(page.locator("#live")).to_have_text("live")
    age = page.get_by_role("row", name="waits now").locator("time")
    loaded = age.inner_text()
    expect(age).not_to_have_text(loaded)  # the browser counts
    assert re.fullmatch(r"\d[\d.]* s", age.inner_text())
    expect(page.get_by_role("row", name="comes later")).to_contain_text(re.compile("in 4 m"))
    assert page.evaluate("new Date() / 1000") - time.time() > 3000  # the clock is another one
