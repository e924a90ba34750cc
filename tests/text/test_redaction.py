"""Secrets in parameters: which are hidden, where, and that nothing else changes."""

from __future__ import annotations

import json

import pytest

from blueque.text.redaction import HIDDEN, hider, reveal

SECRET = (
    "password",
    "PASSWORD",
    "passwd",
    "secret",
    "token",
    "apikey",
    "api_key",
    "API-KEY",
    "apiKey",
    "x-api-key",
    "access_key",
    "aws_secret_access_key",
    "AWSAccessKey",
    "privateKey",
    "private_key",
    "credential",
    "credentials",
    "Authorization",
    "passphrase",
    "db_password",
    "DB_PASSWORD",
    "password2",
    "client.secret",
    "session_token",
    "accessToken",
    "password_hash",
    "cookie",
    "cookies",
    "api_keys",
    "apikeys",
    "PGPASSWORD",
    "dbpassword",
    "clientsecret",
    "authtoken",
)
PLAIN = (
    "tokens",
    "max_tokens",
    "tokenizer",
    "monkey",
    "key",
    "keys",
    "public_key",
    "primary_key",
    "author",
    "passenger",
    "pass",
    "compass",
    "secretary",
    "input",
    "",
    "access",
    "api",
    "key_api",
)


@pytest.mark.parametrize("name", SECRET)
def test_the_value_of_such_a_name_is_hidden(name):
    assert hider()({name: "x"}) == {name: HIDDEN}


@pytest.mark.parametrize("name", PLAIN)
def test_the_value_of_another_name_is_not(name):
    assert hider()({name: "x"}) == {name: "x"}


def test_a_secret_is_hidden_at_any_depth_whatever_it_is():
    value = {
        "jobs": [{"login": {"password": 1234, "user": "ada"}}],
        "credentials": {"user": "ada", "pin": [1]},
    }

    assert hider()(value) == {
        "jobs": [{"login": {"password": HIDDEN, "user": "ada"}}],
        "credentials": HIDDEN,
    }


def test_nothing_is_made_of_what_is_no_secret():
    plain = {
        "token": None,
        "has_password": False,
        "token_count": 5,
        "n": 1.5,
        "text": "a: b@c",
        "url": "http://h:80/a@b",
    }

    assert hider()(plain) == plain
    assert hider()({"token": 5}) == {"token": HIDDEN}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://ada:geheim@db/tasks", "postgres://ada:[hidden]@db/tasks"),
        ("redis://:a@b@db:6379/0", "redis://:[hidden]@db:6379/0"),
        ("see http://a:b@c, http://d:e@f", "see http://a:[hidden]@c, http://d:[hidden]@f"),
        ('{"token": "x", "n": 1}', '{"token": "[hidden]", "n": 1}'),
        ('{"n":1,  "token":null}', '{"n":1,  "token":null}'),
        ('"{\\"token\\": \\"x\\"}"', '"{\\"token\\": \\"[hidden]\\"}"'),
        ('{"url": "http://a:b@c', '{"url": "http://a:[hidden]@c'),
    ],
)
def test_text_that_is_json_and_urls_are_searched_and_other_text_stays_as_it_is(text, shown):
    assert hider()(text) == shown


def test_text_with_a_number_that_python_does_not_read_is_hidden_as_a_whole():
    assert hider()(f'{{"n": {"1" * 5000}, "token": "x"}}') == HIDDEN


def test_patterns_add_names():
    hide = hider(["*_URL", "iban"])

    assert hide({"base_url": "x", "IBAN": "y", "url": "z", "token": "t"}) == {
        "base_url": HIDDEN,
        "IBAN": HIDDEN,
        "url": "z",
        "token": HIDDEN,
    }


def test_what_is_nested_too_deeply_is_hidden_as_a_whole():
    deep = {"token": "x"}
    for _ in range(5000):
        deep = {"a": deep}

    assert hider()(deep) == HIDDEN
    assert reveal(deep) is deep


def test_a_long_text_is_searched_in_one_go():
    text = "a" * 2**20 + "://" * 1000

    assert hider()(text) == text


@pytest.fixture
def task(client, redis):
    return client.get_queue("video").enqueue(
        {"login": {"user": "ada", "token": "geheim"}, "iban": "DE1", "n": 1}
    )


def test_show_run_and_export_hide_secrets_unless_they_are_to_be_revealed(
    run, client, task, tmp_path
):
    client.get_queue("video").cancel(task)
    export = ("export", "--state", "all")
    csv = (*export, "--format", "csv")
    same = json.dumps({"login": {"user": "ada", "token": "geheim"}, "iban": "DE1", "n": 1})
    again = client.get_queue("video").enqueue(same, key="k")
    client.get_queue("video").cancel(again)

    for line in (
        ("show", task),
        ("show", task, "--json"),
        export,
        csv,
        ("run", "video", same, "--key", "k", "--json"),
    ):
        result = run(*line)
        assert (
            "geheim" not in result.stdout and "[hidden]" in result.stdout and "ada" in result.stdout
        ), line
    for line in (("show", task), ("show", task, "--json"), export, csv):
        result = run(*line, "--reveal")
        assert "geheim" in result.stdout and "[hidden]" not in result.stdout, line
    assert client.get_task(task).parameters["login"]["token"] == "geheim"


def test_a_file_names_more(run, task, tmp_path):
    file = tmp_path / "blueque.toml"
    file.write_text('[show]\nredact = ["iban"]\n')

    shown = json.loads(run("show", task, "--json", "--config", str(file)).stdout)["item"][
        "parameters"
    ]

    assert shown == {"login": {"user": "ada", "token": HIDDEN}, "iban": HIDDEN, "n": 1}
    file.write_text('[show]\nredact = "iban"\n')
    refused = run("show", task, "--config", str(file))
    assert (refused.returncode, "show.redact: must be an array" in refused.stderr) == (78, True)
