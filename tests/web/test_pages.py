"""Every page: its HTML, its headers, what it hides, and that it changes nothing."""

from __future__ import annotations

import csv
import gzip
import html
import re
import time
import uuid
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest
from asking import NODE, ask_app
from transactions import protocol

from blueque import Client, Retry
from blueque.cli.main import VERBS
from blueque.connection.plain import SocketConnection
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.protocol.feeding import FeedRef
from blueque.protocol.membership import Heartbeat
from blueque.queries.failures import UNKNOWN
from blueque.recovery.group_settling import settle_groups_step
from blueque.testing import drain
from blueque.version import __version__
from blueque.web import create_app, visit
from blueque.web.access import PARTS, Viewer
from blueque.web.reader import Reader
from blueque.web.shared import THREADS
from blueque.web.site import Site
from blueque.web.views import groups
from blueque.web.visit import ID

PAGES = [
    *("/", "/queues", "/queues/video", "/tasks", "/nodes", "/nodes?by=queue&span=1h"),
    *("/nodes/host_1", "/failures", "/schedule", "/schedule/nightly", "/groups", "/groups/w"),
    *(
        "/statistics",
        "/statistics.html",
        "/doctor",
        "/activity",
        "/activity?by=people",
        "/settings",
        "/help",
    ),
    "/new",
]
VOID = {"meta", "link", "input", "br", "option", "path", "rect", "circle", "line", "text"}
OPERATOR = Viewer("ada", "operator")
EVIL = '"><script>alert(1)</script>\x1b[2J\u202e'


class Checker(HTMLParser):
    """Collects ids and links, and what a strict policy forbids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: set[str] = set()
        self.forbidden: list[str] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        names = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        self.forbidden += [name for name in names if name == "style" or name.startswith("on")]
        if tag == "script" and "src" not in names:
            self.forbidden.append("inline script")
        if "id" in names:
            self.ids.append(names["id"])
        if names.get("href", "").startswith("/"):
            self.links.add(names["href"])

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture
def tasks(client, queue, start, end):
    """A task in each state, with hostile texts."""
    failed, complete, running = (start({"token": "hunter2", "name": EVIL}) for _ in range(3))
    end(failed, f"ValueError: {EVIL}")
    end(complete)
    redis, attempt = client.connections, AttemptRef("video", running, "token", NODE)
    protocol.progress(redis, attempt, f"30 % {EVIL}", time.time())
    pending = str(queue.enqueue({"password": "hunter2"}, title='"><script>alert(1)</script>'))
    scheduled = str(queue.schedule({"scene": 1}, time.time() + 3600))
    client.set_schedule("nightly", queue="video", parameters={"token": "hunter2"}, cron="0 3 * * *")
    with client.workflow("w") as workflow:
        first = workflow.add("video", {"scene": 2})
        workflow.add("video", {"scene": 3}, after=first)
    queue.enqueue_many([{"scene": 4}], keys=["k"], group="2026-11-22")
    return {
        "failed": failed,
        "complete": complete,
        "started": running,
        "pending": pending,
        "scheduled": scheduled,
    }


def paths_of(tasks):
    of_tasks = [f"/tasks/{task}{more}" for task in tasks.values() for more in ("", "/log")]
    states = ["failed", "started,pending", "complete"]
    return PAGES + of_tasks + [f"/tasks?state={state}" for state in states] + ["/tasks?text=scene"]


def test_every_page_is_strict_html_and_all_its_links_answer(ask, tasks):
    links: set[str] = set()
    for path in paths_of(tasks):
        answer = ask(path)
        assert answer.status_code == 200, (path, answer.text)
        page = Checker(answer.text)
        assert (page.forbidden, page.open) == ([], []), path
        assert sorted(page.ids) == sorted(set(page.ids)), path
        links |= page.links
    wrong = [link for link in links if ask(link).status_code not in (200, 303)]
    assert wrong == []


def test_what_tasks_say_is_only_text_and_secrets_are_hidden(ask, tasks):
    for path in paths_of(tasks):
        text = ask(path).text
        assert "<script>alert" not in text, path
        assert "hunter2" not in text, path
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text), path
    assert "[hidden]" in ask(f"/tasks/{tasks['failed']}").text


def test_no_page_changes_anything(ask, tasks, everything):
    before = everything()
    for path in [
        *paths_of(tasks),
        "/tasks.csv",
        "/find?q=video",
        f"/tasks/{tasks['failed']}/log.txt",
    ]:
        ask(path)
    assert everything() == before


def test_pages_of_an_empty_redis_say_what_to_do(ask):
    assert "Nothing has been enqueued yet" in ask("/").text
    assert "There is no queue yet. The first task creates one" in ask("/queues").text
    assert [ask(path).status_code for path in ("/queues", "/tasks", "/nodes")] == [200] * 3
    assert ask("/queues/none").status_code == 404
    assert "There is no task nothing" in ask("/tasks/nothing").text


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def test_every_answer_has_the_headers_of_a_strict_policy(ask, tasks):
    for path in ("/", "/tasks/none", "/static/x", "/healthz"):
        headers = ask(path).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
    assert ask("/").headers["cache-control"] == "no-store"
    # While servers are upgraded, one may not have the file that a page of another one names.
    assert ask("/static/0.0/blueque.css").headers["cache-control"] == "no-store"
    file = ask(f"/static/{__version__}/blueque.js").headers["cache-control"]
    assert file.endswith("immutable")


def test_only_named_origins_may_frame_the_page(client):
    site = Site(address="", frame_ancestors=("https://portal.example.com",))
    headers = ask_app(create_app(client, site=site), "/healthz").headers

    policy = headers["content-security-policy"]
    assert policy == POLICY.replace(
        "ancestors 'none'", "ancestors 'self' https://portal.example.com"
    )
    assert "x-frame-options" not in headers


def test_the_page_of_the_doctor_says_each_sentence_once(ask):
    page = ask("/doctor").text

    assert page.count("nothing is written to disk") == 1
    assert page.count("maxmemory-policy is") == 1


def test_the_same_concerns_as_those_of_the_command(ask, tasks, client):
    from blueque.sentences import attention

    text = ask("/").text
    for concern in attention.concerns(client.get_inspector().overview()):
        assert concern.sentence.partition(",")[0] in text


def test_a_look_at_one_queue_finds_what_the_look_at_all_does(tasks, client):
    from blueque.sentences import attention

    def found(seen, queue):
        about = {
            (each.code, each.about) for each in attention.concerns(seen) if each.about == queue
        }
        lines = [
            line._replace(waiting=line.waiting._replace(oldest_for=None))
            for line in seen.lines
            if line.queue == queue
        ]
        return about, lines, [task.id for task in seen.running if task.queue == queue]

    inspector = client.get_inspector()
    whole = inspector.overview()
    for line in whole.lines:
        alone = inspector.overview([line.queue])
        assert [each.queue for each in alone.lines] == [line.queue]
        assert found(alone, line.queue) == found(whole, line.queue)


def test_the_numbers_can_be_saved_as_one_file_that_needs_no_other(ask, tasks):
    saved = ask("/statistics.html?span=7d")

    assert "attachment" in saved.headers["content-disposition"]
    assert not re.search("<(script|link|img|a) ", saved.text)
    for text in (saved.text, ask("/statistics?span=7d").text):
        assert '<span class="v">2</span> <small>in 1 queue</small>' in text
        assert "Retried" in text and "Restarted" not in text
        assert re.search(r"<b[^>]*><bdi>video</bdi></b>|<b><bdi>video</bdi></b>", text)


def test_errors_that_differ_in_numbers_are_one_and_their_host_is_named(ask, client, start, end):
    for text in (
        *("OSError: file 0x1f of 7", "OSError: file 0x2a of 30", "OSError: can't: '/a/b.mov'"),
        *("OSError: can't: '/c d/e.mov'", "OSError: file /x/1.mov of /y/", "OSError: no space"),
    ):
        attempt = AttemptRef("video", start(), "token", NODE)
        fields = {"error_type": "OSError"}
        protocol.end(client.connections, attempt, End.fail(text, fields), time.time())
    end(start(), "of 1.0.0")

    page = ask("/failures/OSError?queue=video").text

    assert re.findall(r'class="says full">([^<]*)</th><td class="n left">(\d)', page) == [
        ("OSError: file # of #", "3"),
        ("OSError: can&#39;t: #", "2"),
        ("OSError: no space", "1"),
    ]
    assert "6 of 6 on host." in page and "/failures/OSError?queue=video" in ask("/failures").text
    assert "OSError: no space" in ask("/tasks?state=failed").text
    unknown = ask(f"/failures/{UNKNOWN}").text
    assert ">of #.#.#<" in unknown and "/acts/requeue" in page and "/acts/requeue" not in unknown
    assert "No failed task has this error" in ask("/failures/KeyError").text


def test_the_first_page_says_what_failed_today_also_when_nothing_needs_attention(
    ask, start, end, run, cli
):
    cli.config_set("appendonly", "yes")
    end(start(title="bad"), "ValueError: x")

    page = ask("/").text
    link = html.unescape(re.search('href="([^"]*)">What failed today', page)[1])

    assert re.search("<h1[^>]*>Nothing needs attention\\. Today \\(UTC\\) 1 task failed", page)
    assert "bad" in ask(link).text
    assert (
        "Nothing needs attention. Today (UTC) 1 task failed. (blueque failures)"
        in run("status").stdout
    )
    cli.config_set("appendonly", "no")


def test_a_fact_of_several_lines_has_them_below_each_other(ask, start):
    page = ask(f"/tasks/{start(retry=Retry(max=3))}").text

    assert re.search(r"interruptions so far<br>waits 10 s", page) and r"\n" not in page


def test_a_group_whose_task_was_cancelled_has_ended_with_a_bad_task(ask, client, queue):
    queue.enqueue_many([{"scene": 4}], keys=["k"], group="night")
    (task,) = [task.id for task in client.get_inspector().listing(["video"], ["pending"], 5).tasks]
    queue.cancel(task)

    settle_groups_step(client.connections, time.time())

    row = re.search(r"<bdi>night</bdi>.*?</tr>", ask("/groups").text, re.DOTALL)[0]

    assert "ended with bad tasks" in row and ">group<" in row
    client.group("later").open()
    for waiting in ("1 task waits for it", "2 tasks wait for it"):
        queue.enqueue({"scene": 5}, after=client.group("later"))
        assert waiting in ask("/groups/later").text


def test_the_page_of_a_recurring_task_has_parameters_options_and_run_times(ask, client):
    given = {"scene": 17, "token": "hunter2"}
    client.set_schedule("hourly", queue="video", parameters=given, every="1h", priority=7)
    task = client.get_schedule("hourly").trigger(by="ada")
    now = time.time()
    client.connections.read(
        ("HSET", f"blueque_task_{task}", "status", "complete", "started", now - 90, "finished", now)
    )

    page = ask("/schedule/hourly").text

    assert "&#34;scene&#34;: 17" in page and "hunter2" not in page
    assert "<dt>priority</dt><dd>7</dd>" in page and "<dt>keep</dt><dd>1 d</dd>" in page
    assert "ran 1 m 30 s" in page


def test_the_page_of_a_recurring_task_shows_malformed_options_as_they_stand(ask, client, run):
    client.set_schedule("hourly", queue="video", every="1h")
    client.connections.read(
        ("HSET", "blueque_schedule_hourly", "options", '{"time_limit": "soon"}')
    )

    assert "<dt>time limit</dt><dd>soon</dd>" in ask("/schedule/hourly").text
    assert "time limit  soon\n" in run("schedule", "show", "hourly").stdout


def test_a_large_value_is_cut_and_the_whole_is_one_link_away(ask, start, run):
    task = start({"text": "x" * 200_000})

    page = ask(f"/tasks/{task}").text
    told = run("show", task).stdout

    (link,) = re.findall('href="([^"]*)">Show all as JSON', page)
    assert len(page) < 90_000 and len(told) < 70_000
    assert "more characters: --json shows all" in told
    assert "x" * 200_000 in ask(html.unescape(link)).text
    assert "Show all as JSON" not in ask(f"/tasks/{start()}").text


def test_a_list_says_what_its_errors_say_and_saves_its_results(ask, client, queue, start, end):
    def cells(state):
        header, row = csv.reader(ask(f"/tasks.csv?state={state}").text.splitlines())
        return dict(zip(header, row, strict=True))

    failed, complete = start(), start()
    end(failed, "OSError: the disk of cam 3 is full")
    attempt = AttemptRef("video", complete, "token", NODE)
    result = '{"frames": 1440, "password": "hunter2"}'
    protocol.end(client.connections, attempt, End.complete(result), time.time())

    assert "the disk of cam 3 is full" in ask("/tasks?state=failed").text
    assert cells("failed")["error"] == "OSError: the disk of cam 3 is full"
    assert cells("complete")["result"] == '{"frames": 1440, "password": "[hidden]"}'


def test_times_of_a_filter_are_ages_or_times_of_the_viewers_clock(ask, start, end):
    end(start())
    tokyo = {"cookie": "blueque-zone=Asia/Tokyo"}  # 9 h ahead of UTC
    before = time.strftime("%Y-%m-%d %H:%M", time.gmtime(time.time() + 9 * 3600 - 60))
    rows = {}
    for since in ("1h", before, "yesterday", "tomorrow", "soon"):
        page = ask(f"/tasks?state=complete&since={since}", headers=tokyo).text
        rows[since] = page.count("<tr id=")

    assert rows == {"1h": 1, before: 1, "yesterday": 1, "tomorrow": 0, "soon": 1}
    assert "since: &#39;soon&#39; is not a time" in page


def test_tasks_of_a_workflow_are_listed_and_saved(ask, tasks):
    page = ask("/groups/w").text
    assert '<a class="btn" href="/tasks?group=w">Tasks</a>' in page
    assert "scene=2</text>" in page  # the graph says what its tasks are
    assert ask("/tasks?group=w").text.count("<tr id=") == 2
    assert len(ask("/tasks.csv?group=w").text.splitlines()) == 3
    assert "blueque ls --group w" in ask("/tasks?group=w").text


def test_the_page_of_a_group_shows_the_results_of_its_first_tasks(client, queue, monkeypatch):
    app = create_app(client, authorize=lambda scope: OPERATOR)
    with client.group("sweep") as group:
        queue.enqueue_many([{"lr": 1}, {"lr": 2}, {"lr": 3}], group=group)
    assert "<h2>Results" not in ask_app(app, "/groups/sweep").text

    results = iter([{"loss": 0.5, "password": "x7"}, "<b>", "third"])
    drain(client, {queue.name: lambda task: next(results)})
    shown = ask_app(app, "/groups/sweep").text
    assert re.findall(r"<bdi>(lr=\d)</bdi>.*?full wide\">(.*?)</td>", shown) == [
        ("lr=1", "{&#34;loss&#34;: 0.5, &#34;password&#34;: &#34;[hidden]&#34;}"),
        ("lr=2", "&lt;b&gt;"),
        ("lr=3", "third"),
    ]
    monkeypatch.setattr(groups, "MOST_RESULTS", 2)
    shown = ask_app(app, "/groups/sweep").text
    assert "third" not in shown and "Of the first 2 tasks." in shown


def test_the_numbers_of_states_are_those_of_the_list_or_there_are_none(ask, client, start, end):
    end(start(tags=["night"]), "OSError: disk full")
    for _ in range(2):
        end(start(), "OSError: disk full")

    def numbers(query):
        tabs = ask(f"/tasks?{query}").text.partition('id="tabs">')[2].partition("</nav>")[0]
        return dict(re.findall(r'(\w+) <span class="muted">([0-9,]+)</span>', tabs))

    assert numbers("queue=video")["failed"] == "3"
    assert (numbers("tag=night")["failed"], numbers("tag=night")["complete"]) == ("1", "0")
    assert numbers("tag=night&state=failed") == numbers("text=disk&limit=2") == {}


def test_a_file_that_has_not_all_tasks_says_so_in_its_name(ask, client, queue, monkeypatch):
    monkeypatch.setattr("blueque.web.views.tasks.MOST_CSV", 3)
    queue.enqueue_many([{"scene": number} for number in range(3)])
    assert "Save as CSV" in ask("/tasks").text.replace("</svg>", "")
    assert 'filename="tasks.csv"' in ask("/tasks.csv").headers["content-disposition"]

    queue.enqueue_many([{"scene": number} for number in range(90)])

    assert "Save the first 3 as CSV" in ask("/tasks?limit=50").text
    assert 'filename="tasks-first-3.csv"' in ask("/tasks.csv").headers["content-disposition"]


def test_what_has_run_the_longest_can_come_first(ask, client, start):
    for seconds in (15, 50, 20):
        attempt = AttemptRef("video", start(title=f"ran {seconds}"), "token", NODE)
        protocol.end(client.connections, attempt, End.complete("out"), time.time() + seconds)

    page = ask("/tasks?state=complete&sort=-ran").text

    assert re.findall(r"<bdi>ran (\d+)</bdi>", page) == ["50", "20", "15"]
    assert re.findall(r'<td class="n nw hide">(\d+) s</td>', page) == ["50", "20", "15"]
    assert "blueque ls --state complete --sort -ran" in page
    assert 'href="/tasks?state=complete">Ran' in page


def test_what_needs_attention_of_a_running_task_has_its_name(ask, client, queue, start):
    task = start({"scene": 3}, title="Trailer, reel 7")
    attempt = AttemptRef(queue.name, task, "token", NODE)
    protocol.progress(client.connections, attempt, "3/90 epochs", time.time() - 7200)

    told = html.unescape(ask("/").text).partition('class="concerns"')[2].partition("</ul>")[0]

    words = " ".join(re.sub("<[^>]*>", "", told).split())
    assert f"Trailer, reel 7 ({task[:8]}) has reported no progress for 2 h" in words
    assert f'href="/tasks/{task}"' in told


def test_what_needs_attention_links_to_its_tasks(ask, client, start, end):
    for _ in range(10):
        end(start(), "ValueError: x")

    links = re.findall(r'class="btn mini" href="([^"]*)">Tasks</a>', ask("/").text)

    assert [html.unescape(link) for link in links] == ["/tasks?queue=video&state=failed&since=1h"]


def test_a_host_that_died_idle_is_named_though_it_is_on_no_list(ask, client, queue):
    redis, now = client.connections, time.time()
    queue.enqueue({})
    for node in ("gone.example.com_1", "gone.example.com_2"):
        protocol.register(redis, queue.name, node, "i1", {"beat_every": 10}, now)
        protocol.beat(redis, [Heartbeat(queue.name, node, "i1", 1)], now)
        assert protocol.fence(redis, queue.name, node, "i1", "1", now)
        assert protocol.deregister(redis, queue.name, node, "i1", is_dead=True)

    html = ask("/nodes").text
    assert "0 listeners" in html
    assert "Listeners that died in this time" in html
    assert "gone.example.com</bdi></b> (2 listeners" in html
    assert "gone.example.com_2" in ask("/activity?on=died").text


def test_what_ran_is_told_by_name_and_hosts_without_their_domain(ask, client, start):
    task = start(title="intro")
    node = client.get_task(task).node

    for path in ("/nodes?span=1h", "/activity?by=all", f"/nodes/{node}"):
        assert re.search(rf'href="/tasks/{task}"><bdi>intro</bdi>', ask(path).text), path
    assert f'title="{node}">host<' in ask("/tasks").text


def test_the_help_names_each_page_and_commands_that_there_are(ask):
    told = ask("/help").text

    verbs = {words.split()[1] for words in re.findall(r'data-copy="(blueque [a-z]+[^"]*)"', told)}
    assert verbs <= {*VERBS} and {"status", "interrupt"} <= verbs
    assert {path for path, _ in visit.PAGES} <= Checker(told).links


def test_feeds_are_told_with_their_age_also_when_their_feeder_is_gone(ask, client, queue):
    queue.enqueue({"scene": 1})
    redis, now = client.connections, time.time()
    facts = {"node": "host_7"}
    going, gone = (FeedRef("video", name, "token") for name in ("going", "gone"))
    for feed in (going, gone):
        protocol.begin_feed(redis, feed, "i", "rows.jsonl", facts, None, now - 90)
    protocol.end_feed(redis, gone, None, now)

    rows = ask("/groups").text.partition("<h2>Feeds")[2].partition("</tbody>")
    told = [" ".join(re.sub("<[^>]*>", " ", row).split()) for row in rows[0].split("<tr>")[2:]]

    assert told == [
        "going video feeding for 1 m 30 s 0 0 host",
        "gone video stopped for 1 m 30 s 0 0 –",
    ]
    assert "A stopped feed continues" in rows[2]


def test_the_activity_is_narrowed_by_who_what_where_and_when(ask, client, queue, start, end):
    end(start(title="bad"), "ValueError: x")
    end(start(title="good"))
    other = client.get_queue("audio")
    other.pause("ada", "new codec")
    other.resume("bob")

    def told(query):
        rows = ask(f"/activity?{query}").text.partition("<tbody>")[2].partition("</tbody>")[0]
        return re.findall(r'<td class="nw">(\w+)</td>', rows)

    assert told("queue=video&on=failed") == ["failed"]
    assert told("who=ADA") == ["paused"]
    assert told("queue=audio&since=1h") == ["resumed", "paused"]
    assert told("by=people") == ["resumed", "paused"]
    assert told("") == ["resumed", "paused", "failed"]
    assert "complete" in told("by=all") and "complete" not in told("")
    other.set_settings({"max_running": 24}, "ada")
    assert "max_running 24" in ask("/activity?on=set").text
    assert told("until=1h") == told("on=nothing") == []
    assert "blueque history -q video --on failed" in ask("/activity?queue=video&on=failed").text
    same = "--until 1h --by ada --on people"
    assert same in ask("/activity?until=1h&who=ada&by=people").text
    assert "since: " in ask("/activity?since=soon").text
    assert 'aria-current="true">all</a>' in ask("/activity?who=ada").text


def test_a_list_without_open_tasks_says_how_many_have_ended(ask, client, queue):
    queue.cancel(queue.enqueue(1))

    assert "No task waits or runs; 1 has ended." in ask("/tasks").text
    assert "No task matches." in ask("/tasks?state=failed").text
    assert "No task matches." in ask("/tasks?text=x").text
    assert "No task matches." not in ask("/tasks?queue=video").text


def test_a_queue_outside_of_the_page_does_not_exist(client, tasks):
    site = Site(address="", queues=("other.*",))
    app = create_app(client, site=site)

    assert "video" not in ask_app(app, "/").text
    assert ask_app(app, "/queues/video").status_code == 404
    assert ask_app(app, f"/tasks/{tasks['failed']}").status_code == 404
    assert tasks["failed"] not in ask_app(app, "/tasks?state=failed").text
    assert tasks["failed"] not in ask_app(app, "/tasks.csv?state=failed").text


def test_without_redis_a_page_says_so_and_comes_back(own_server):
    client = Client(own_server.url, patience=0.0)
    app = create_app(client, authorize=lambda scope: OPERATOR)
    own_server.stop()
    answer = ask_app(app, "/")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    ready = ask_app(create_app(client, authorize=lambda scope: None), "/readyz")
    assert (ready.status_code, ready.text) == (503, "Redis does not answer")
    assert "Redis does not answer" in answer.text
    assert '<meta http-equiv="refresh" content="5">' in answer.text
    order = ask_app(app, "/acts/cancel?id=x", "POST", headers={"Sec-Fetch-Site": "same-origin"})
    assert (order.status_code, "refresh" in order.text) == (503, False)  # it is not given again
    own_server.start()
    assert ask_app(app, "/").status_code == 200
    assert ask_app(app, "/readyz").text == "ok"
    client.close()


@pytest.mark.parametrize("headers", [{}, {PARTS: ""}])
def test_without_a_thread_to_spare_a_page_does_not_wait_for_redis(
    client, tasks, monkeypatch, headers
):
    """Redis hangs, and others wait for it already."""
    monkeypatch.setattr("blueque.web.shared.SLOW", 0.0)
    app = create_app(client)
    app.state.shared._busy |= dict.fromkeys(range(THREADS), 0.0)

    answer = ask_app(app, "/", headers=headers)

    assert answer.status_code == 503
    assert "Redis has not answered for" in answer.text


def test_a_task_that_is_deleted_while_its_page_is_made_is_no_mistake(client, tasks, monkeypatch):
    app = create_app(client, authorize=lambda scope: OPERATOR)
    load = Reader.task

    def load_and_delete(reader, task_id):
        found = load(reader, task_id)
        client.get_queue("video").delete_task(found)
        return found

    monkeypatch.setattr(Reader, "task", load_and_delete)
    for state, page in (("failed", ""), ("complete", "/log")):
        path = f"/tasks/{tasks[state]}{page}"
        assert [ask_app(app, path).status_code for _ in range(2)] == [200, 404]


def test_below_a_prefix_links_and_redirects_stay_below_it(client, tasks):
    site = Site(address="", prefix="/ops/blueque")
    app = create_app(client, authorize=lambda scope: Viewer("ada"), site=site)

    for path in ("/ops/blueque/", "/"):  # a proxy that keeps the prefix, and one that removes it
        page = Checker(ask_app(app, path).text)
        assert page.links and all(link.startswith("/ops/blueque/") for link in page.links)
    moved = ask_app(app, "/ops/blueque/find?q=video")
    assert moved.headers["location"] == "/ops/blueque/queues/video"


# Round trips to Redis of a page that nobody has looked at, whatever there is in Redis.
TRIPS = {
    "/": 17,
    "/queues": 11,
    "/queues/video": 20,
    "/tasks": 8,
    "/tasks?state=failed": 7,
    "/tasks/{started}": 6,
    "/tasks/{pending}": 9,
    "/tasks/{started}/log": 2,
    "/nodes": 13,
    "/failures": 8,
    "/statistics": 4,
    "/schedule": 15,
    "/nodes/host_1": 16,
    "/groups": 8,
    "/activity": 6,
}


def test_a_page_needs_as_many_round_trips_with_many_queues_as_with_one(client, tasks, monkeypatch):
    sent = []
    send = SocketConnection.send
    monkeypatch.setattr(
        SocketConnection, "send", lambda own, commands: sent.append(1) or send(own, commands)
    )

    def trips() -> dict[str, int]:
        found = {}
        for path in TRIPS:
            app = create_app(client, authorize=lambda scope: OPERATOR)
            before = len(sent)
            answer = ask_app(app, path.format(**tasks))
            assert answer.status_code == 200
            assert len(gzip.compress(answer.content)) < 100_000
            found[path] = len(sent) - before
        return found

    few = trips()
    for number in range(60):
        queue = client.get_queue(f"queue.{number}")
        queue.enqueue_many([{"scene": scene} for scene in range(5)])
    many = trips()

    assert {path: count for path, count in few.items() if count > TRIPS[path]} == {}
    assert {path: count for path, count in many.items() if count > TRIPS[path]} == {}


def test_an_id_is_a_link_and_in_a_path_stays_as_it_is():
    task = str(uuid.uuid4())

    assert ID.search(f"waits for {task}") and not ID.search(f"host:/spool/{task}@1")


@pytest.mark.parametrize("path", ["/tasks", "/activity"])
def test_a_look_with_times_of_one_zone_is_not_shown_to_a_viewer_in_another(ask, queue, path):
    task = queue.enqueue({"scene": 1})
    queue.cancel(task)
    by_the_clock = f"{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%d %H:%M}"

    def rows(zone):
        query = {"until": by_the_clock, "by": "all", "state": "cancelled"}
        page = ask(path, params=query, headers={"cookie": f"blueque-zone={zone}"})
        return page.text.count(f"/tasks/{task}")

    assert rows("UTC") == 0  # an hour ago
    assert rows("America/New_York") > 0  # in some hours
