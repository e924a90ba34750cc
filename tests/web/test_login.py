"""The page that asks who comes in, and what is refused without a login."""

from __future__ import annotations

import pytest
from asking import ask_app

from blueque.web import create_app, passwords
from blueque.web.access import COOKIE, PARTS
from blueque.web.logins import Logins
from blueque.web.proxies import Proxies, networks_of
from blueque.web.site import Site

OWN = {"sec-fetch-site": "same-origin"}


@pytest.fixture
def ask(client):
    site = Site(address="redis://db-7", hosts=frozenset({"localhost"}))
    app = create_app(client, authorize=Logins({"a token": "operator"}), site=site)
    return lambda path, method="GET", **options: ask_app(app, path, method, **options)


def test_without_a_login_a_page_leads_to_the_form(ask):
    answer = ask("/tasks?state=failed")

    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Ftasks%3Fstate%3Dfailed"
    assert ask("/tasks", headers={PARTS: ""}).status_code == 401  # which a page can understand
    assert ask("/tasks", headers={"authorization": "Bearer wrong"}).status_code == 401


def test_the_form_shows_those_outside_neither_the_address_of_redis_nor_pages(ask):
    form, page = ask("/login").text, ask("/help", headers={"authorization": "Bearer a token"}).text

    assert "redis://db-7" in page and "/groups" in page
    assert "redis://db-7" not in form and "/groups" not in form and 'name="token"' in form


def test_the_token_opens_the_page_that_was_asked_for(ask):
    form = {"token": "a token", "next": "/tasks?state=failed"}
    answer = ask("/login", "POST", data=form, headers=OWN)

    assert (answer.status_code, answer.headers["location"]) == (303, "/tasks?state=failed")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie
    value = cookie.partition("=")[2].partition(";")[0]
    assert ask("/", headers={"cookie": f"{COOKIE}={value}"}).status_code == 200


@pytest.mark.parametrize("elsewhere", ["//evil", "https://evil", "/\\evil", "/\nevil"])
def test_a_login_leads_nowhere_else(ask, elsewhere):
    form = {"token": "a token", "next": elsewhere}
    assert ask("/login", "POST", data=form, headers=OWN).headers["location"] == "/"


def test_a_wrong_token_is_told_and_the_right_one_is_let_in_after_many(ask):
    answers = [ask("/login", "POST", data={"token": "no"}, headers=OWN) for _ in range(6)]

    assert [answer.status_code for answer in answers] == [403] * 6
    assert "This token is wrong." in answers[0].text
    assert ask("/login", "POST", data={"token": "a token"}, headers=OWN).status_code == 303


def test_a_token_does_not_wait_for_passwords(ask, monkeypatch):
    monkeypatch.setattr("blueque.web.login.MOST_WAITING", 0)  # as if so many waited

    def status(form):
        return ask("/login", "POST", data=form, headers=OWN).status_code

    assert status({"name": "ada", "password": "any"}) == 503
    assert (status({"token": "a token"}), status({"token": "no"})) == (303, 403)


@pytest.fixture
def by_password(client, monkeypatch, tmp_path):
    """Return a page for these people, all with one password, which costs little."""
    monkeypatch.setattr(passwords, "COST", 2)
    monkeypatch.setattr(passwords, "TIMES", 1)

    def by_password(*names):
        lines = [passwords.line_of(name, "operator", "correct horse") for name in names]
        (tmp_path / "people").write_text("\n".join(lines))
        people = passwords.load(str(tmp_path / "people"))
        return create_app(client, authorize=Logins({}, people))

    return by_password


def test_too_many_wrong_passwords_for_a_name_are_stopped_and_no_other_name(by_password):
    app = by_password("ada", "bob")

    def log_in(name, password):
        form = {"name": name, "password": password}
        return ask_app(app, "/login", "POST", data=form, headers=OWN).status_code

    assert [log_in("ada", "wrong") for _ in range(6)] == [403] * 5 + [429]
    assert (log_in("ada", "correct horse"), log_in("bob", "correct horse")) == (429, 303)


def test_who_has_logged_in_can_log_out_on_each_page(ask):
    cookie = ask("/login", "POST", data={"token": "a token"}, headers=OWN).headers["set-cookie"]
    headers = OWN | {"cookie": cookie.partition(";")[0]}
    for path in ("/", "/settings", "/tasks?state=none", "/nothing-here"):
        page = ask(path, headers=headers).text
        assert 'action="/logout"' in page and "Log out</button>" in page, path
    left = ask("/logout", "POST", headers=headers)

    assert left.headers["location"] == "/login" and 'blueque=""' in left.headers["set-cookie"]
    assert 'action="/logout"' not in ask("/login").text


def test_a_person_logs_in_with_a_password_and_orders_bear_the_name(client, queue, by_password):
    app = by_password("ada")
    form = {"name": "ada", "password": "wrong"}

    page = ask_app(app, "/login").text
    assert 'name="password"' in page and 'name="token"' not in page
    wrong = ask_app(app, "/login", "POST", data=form, headers=OWN)
    assert (wrong.status_code, "Name or password is wrong." in wrong.text) == (403, True)
    right = ask_app(app, "/login", "POST", data=form | {"password": "correct horse"}, headers=OWN)
    cookie = right.headers["set-cookie"].partition(";")[0]
    queue.enqueue({"scene": 1})
    order = {"name": "video", "reason": "new disks"}
    ask_app(app, "/controls/queue/pause", "POST", data=order, headers=OWN | {"cookie": cookie})
    assert client.get_inspector().queue_seen("video").settings.pause.by == "ada@web"


def test_what_is_typed_at_a_wrong_login_is_not_in_the_log(ask, caplog):
    caplog.set_level("DEBUG")
    ask("/login", "POST", data={"name": "my-password", "password": "other"}, headers=OWN)
    ask("/login", "POST", data={"token": "a tokem"}, headers=OWN)

    assert caplog.text.count("web login") == 2
    assert "my-password" not in caplog.text and "a tokem" not in caplog.text


def test_only_a_trusted_proxy_names_the_viewer(client, queue, everything):
    queue.enqueue({"scene": 1})
    before = everything()
    order = {"data": {"name": "video"}, "headers": OWN | {"x-forwarded-user": "ada"}}
    for networks, status in (["10.0.0.0/8"], 401), (["127.0.0.1"], 303):
        proxies = Proxies(
            networks_of(networks), False, "X-Forwarded-User", "", lambda name: "operator"
        )
        app = create_app(client, authorize=Logins({}), site=Site(address="", proxies=proxies))
        assert ask_app(app, "/controls/queue/pause", "POST", **order).status_code == status
        assert (everything() == before) is (status == 401)
    assert client.get_inspector().queue_seen("video").settings.pause.by == "ada@web"


def test_a_form_of_another_site_and_another_name_of_the_host_are_refused(ask):
    form = {"token": "a token"}
    assert ask("/login", "POST", data=form, headers={"origin": "http://evil"}).status_code == 403
    assert ask("/login", "POST", data=form).status_code == 403
    assert ask("/", headers={"host": "evil.example"}).status_code == 421


def test_a_viewer_chooses_a_zone_and_colours(ask):
    form = {"zone": "Europe/Berlin", "theme": "dark", "next": "/tasks"}
    answer = ask("/settings", "POST", data=form, headers=OWN | {"authorization": "Bearer a token"})
    cookies = [value.partition(";")[0] for value in answer.headers.get_list("set-cookie")]

    assert sorted(cookies) == ["blueque-theme=dark", 'blueque-zone="Europe/Berlin"']
    headers = {"authorization": "Bearer a token", "cookie": "; ".join(cookies)}
    assert 'data-theme="dark"' in ask("/", headers=headers).text
    assert "Europe/Berlin" in ask("/", headers=headers).text
