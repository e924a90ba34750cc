"""`blueque web` as a program: its address, its token, and its end."""

from __future__ import annotations

import contextlib
import http.client
import signal
from urllib.parse import urlsplit

import pytest

OWN = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}


def address_of(program):
    """Return the address that the program prints, and its token."""
    line = next(line for line in program.stderr if "/login#" in line)
    url, _, token = line.strip().partition("#")
    return urlsplit(url), token


def test_the_printed_token_opens_the_page_and_sigterm_ends_the_program(begin):
    program = begin("web", "--listen", "127.0.0.1:0")
    url, token = address_of(program)
    asking = http.client.HTTPConnection(url.hostname, url.port, timeout=15)
    asking.request("POST", "/login", f"token={token}", OWN)
    answer = asking.getresponse()
    answer.read()
    cookie = answer.getheader("set-cookie").partition(";")[0]
    asking.request("GET", "/", headers={"Cookie": cookie})
    answer = asking.getresponse()
    assert (answer.status, b"Nothing has been enqueued" in answer.read()) == (200, True)

    program.send_signal(signal.SIGTERM)  # the connection is kept

    assert program.wait(15) == 0
    asking.close()


def test_two_servers_with_one_token_file_share_logins_and_show_each_others_changes(
    begin, queue, environ, tmp_path
):
    queue.enqueue({})
    (tmp_path / "token").write_text("0123456789abcdef\n")
    environ["BLUEQUE_WEB_TOKEN_FILE"] = str(tmp_path / "token")
    with contextlib.ExitStack() as stack:
        asking = []
        for _ in range(2):
            program = begin("web", "--listen", "127.0.0.1:0")
            url = urlsplit(next(line for line in program.stderr if "http://" in line).strip())
            asking.append(http.client.HTTPConnection(url.hostname, url.port, timeout=15))
            stack.callback(asking[-1].close)
        first, second = asking
        first.request("POST", "/login", "token=0123456789abcdef", OWN)
        answer = first.getresponse()
        answer.read()
        own = OWN | {"Cookie": answer.getheader("set-cookie").partition(";")[0]}
        first.request("POST", "/controls/queue/pause", f"name={queue.name}&reason=both", own)

        assert first.getresponse().status == 303
        second.request("GET", f"/queues/{queue.name}", headers=own)
        assert b"paused" in second.getresponse().read()


def test_an_address_for_everybody_needs_a_login_of_its_own(run):
    answer = run("web", "--listen", "0.0.0.0:0")

    assert answer.returncode == 5
    assert "--public" in answer.stderr


def test_a_host_that_nobody_knows_is_no_address_to_listen_on(run):
    answer = run("web", "--listen", "no.such.host.invalid:1")

    assert answer.returncode == 78
    assert "cannot listen on no.such.host.invalid:1: " in answer.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--user-header", "X-User"], 78, "--user-header needs --trust-proxy"),
        (["--trust-proxy", "0.0.0.0/0"], 2, "--trust-proxy: 0.0.0.0/0 is every address"),
        (["--prefix", "ops"], 2, "--prefix: 'ops' is not a path"),
        (["--role-header", "X-Role"], 78, "--role-header needs --user-header"),
        (["--password-file", "/none"], 78, "/none: cannot be read"),
    ],
)
def test_a_login_that_cannot_work_ends_the_program(run, words, code, says):
    answer = run("web", *words)

    assert answer.returncode == code
    assert says in answer.stderr


def test_the_options_of_the_file_hold_and_those_of_the_command_line_go_first(begin, tmp_path):
    file = tmp_path / "blueque.toml"
    file.write_text(
        '[web]\nlisten = "127.0.0.1:1"\nenv = "prod"\nprefix = "/ops"\nread_only = true\n'
    )
    program = begin("web", "--config", str(file), "--listen", "127.0.0.1:0")
    url, token = address_of(program)
    asking = http.client.HTTPConnection(url.hostname, url.port, timeout=15)
    asking.request("GET", "/ops/tasks", headers={"Authorization": f"Bearer {token}"})
    page = asking.getresponse().read().decode()
    asking.close()

    assert url.path == "/ops/login"
    assert '<span class="env">prod</span>' in page and 'href="/ops/queues"' in page


def test_hash_prints_a_line_of_a_password_file(run):
    answer = run("web", "--hash", "ada:viewer", stdin="correct horse\n")

    assert answer.stdout.startswith("ada:viewer:scrypt$")
    assert run("web", "--hash", "ada:root", stdin="x\n").returncode == 2
