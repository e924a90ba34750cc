"""The password file: its lines, and what is refused."""

from __future__ import annotations

import pytest

from blueque.errors import InvalidInput
from blueque.web import passwords
from blueque.web.access import Viewer

CHEAP = "scrypt$2$1$1"  # of a hash that takes no time


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    monkeypatch.setattr(passwords, "COST", 2)


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "passwords"
        path.write_text(text)
        return str(path)

    return write


def test_a_line_of_ours_lets_its_person_in_with_the_password_alone(write):
    line = passwords.line_of("ada", "operator", "Çorrect horse")
    people = passwords.load(write(f"# people\n\n{line}\n"))

    assert "horse" not in line
    # The same letters, as another keyboard composes them.
    assert people.viewer_of("ada", "C\u0327orrect horse") == Viewer("ada", "operator")
    assert people.viewer_of("ada", "wrong") is None
    assert people.viewer_of("eve", "Çorrect horse") is None


def test_a_name_that_is_not_there_costs_a_hash_like_a_wrong_password(write, monkeypatch):
    people = passwords.load(write(f"ada:viewer:{CHEAP}$c2FsdA==${'A' * 43}=\nbob:operator:\n"))
    made = []
    monkeypatch.setattr(passwords, "_scrypt", lambda *words: made.append(words) or b"")

    assert [people.viewer_of(name, "x") for name in ("ada", "eve", "bob")] == [None] * 3
    assert len(made) == 3
    assert people.role_of("bob") == "operator"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ada", "line 1: it is not name:role:hash"),
        ("ada:root:", "the role is viewer or operator, not 'root'"),
        ("ada:viewer:plain", "line 1: the hash was not made by blueque web --hash"),
        (f"ada:viewer:{CHEAP}$$", "the hash was not made by"),
        (f"ada:viewer:scrypt$1073741824$8$1$c2FsdA==${'A' * 43}=", "the hash was not made by"),
        ("ada:viewer:\n\nada:operator:", "line 3: 'ada' is there twice"),
        ("\u202eada:viewer:", "line 1: it is not"),
        ("# none\n", "it has no line"),
    ],
)
def test_a_mistake_names_the_file_and_the_line(write, text, says):
    path = write(text)
    with pytest.raises(InvalidInput) as refused:
        passwords.load(path)
    assert str(refused.value).startswith(path)
    assert says in str(refused.value)
