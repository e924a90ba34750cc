"""Payloads: what is sealed opens as that field of that task, and as nothing else."""

from __future__ import annotations

import base64
import re
import zlib

import pytest
from payload_keys import name_of, octets_of, write_keys

from blueque import InvalidInput, PayloadRefused, Task
from blueque.model import inputs, payload_keys
from blueque.model.new_task import NewTask
from blueque.model.payload_keys import KeyFile, PayloadKey
from blueque.model.payloads import Payloads, Sealer, open_text, open_whole

K1 = PayloadKey.of("k1", octets_of("k1"))
ENCRYPTING = Sealer(None, K1)


@pytest.fixture
def payloads(keys):
    return Payloads(None, str(keys))


@pytest.mark.parametrize("encoding", ["json", None])
@pytest.mark.parametrize("compress_from", [None, 100])
@pytest.mark.parametrize("key", [None, K1])
@pytest.mark.parametrize(
    ("text", "is_packed"),
    [
        ("", False),
        ("a" * 99, False),
        ("a" * 100, True),
        ("ab" * 5000, True),
        ("ä☃\udcff" * 20, True),
        (bytes(range(27, 127)).decode(), False),  # it does not get smaller
    ],
    ids=lambda given: repr(given)[:9],
)
def test_a_text_comes_back_from_what_its_encoding_names(
    payloads, encoding, compress_from, key, text, is_packed
):
    payloads.sealer("q")
    sealed, coding = Sealer(compress_from, key).seal(text, encoding, "t1", "result")
    words = [f"aes:{K1.name}" if key else None, "zlib" if is_packed and compress_from else None]
    assert coding == (":".join(filter(None, [*words, encoding])) or None)
    assert "zlib" not in words or len(sealed) < max(len(text), 200)
    task = Task("t1", {"result": sealed} | ({"result_encoding": coding} if coding else {}))
    assert task.plain("result") == (text, encoding)
    assert sealed.isascii() or coding == encoding


def test_the_ciphertext_is_what_the_document_says():
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    sealed, coding = Sealer(1, K1).seal("é" * 100, "json", "t1", "parameters")
    octets = base64.b64decode(sealed)
    bound = f"blueque\0t1\0parameters\0{coding}".encode()
    plain = AESGCM(octets_of("k1")).decrypt(octets[:12], octets[12:], bound)
    assert zlib.decompress(plain).decode() == "é" * 100
    assert re.fullmatch(r"aes:k1\.[0-9a-f]{8}:zlib:json", coding)


def test_no_two_encryptions_have_the_same_nonce():
    texts = {ENCRYPTING.seal("a", None, "t1", "result")[0] for _ in range(100)}
    assert len({base64.b64decode(text)[:12] for text in texts}) == 100


@pytest.mark.parametrize(
    ("owner", "field", "coding"),
    [
        ("t2", "result", "aes:{}:json"),  # in another task
        ("t1", "parameters", "aes:{}:json"),  # in another field
        ("t1", "result", "aes:{}"),  # said to be a string
        ("t1", "result", "aes:{}:zlib:json"),  # said to be compressed
        ("t1", "result", "zlib:json"),
    ],
)
def test_a_payload_in_another_place_is_damaged(payloads, owner, field, coding):
    payloads.sealer("q")
    sealed, _ = ENCRYPTING.seal('{"a":1}', "json", "t1", "result")
    with pytest.raises(PayloadRefused) as refusal:
        open_text(sealed, coding.format(name_of("k1")), owner, field)
    assert (refusal.value.is_damaged, refusal.value.shown) == (True, "[damaged]")


@pytest.mark.parametrize("text", ["", "%%%", "AAAA", "é", "(1.2 MiB)", "A" * 100])
@pytest.mark.parametrize("coding", ["aes:{}:json", "aes:{}", "zlib", "zlib:json", "zlib:foo"])
def test_garbage_is_damaged_and_no_other_error(payloads, text, coding):
    payloads.sealer("q")
    with pytest.raises(PayloadRefused, match="was changed"):
        open_text(text, coding.format(name_of("k1")), "t1", "result")


def test_what_expands_without_end_is_damaged(monkeypatch):
    monkeypatch.setattr("blueque.model.payloads.MOST", 1000)
    bomb = base64.b64encode(zlib.compress(b"a" * 1001)).decode()
    with pytest.raises(PayloadRefused, match="no compressed text"):
        open_text(bomb, "zlib", "t1", "result")
    assert Sealer(1, None).seal("a" * 1001, None, "t1", "result") == ("a" * 1001, None)
    packed = Sealer(1, None).seal("a" * 1000, None, "t1", "result")
    assert open_text(packed[0], packed[1], "t1", "result")[0] == "a" * 1000


def test_the_same_id_with_other_octets_is_another_key_which_the_error_and_people_see(payloads):
    payloads.sealer("q")
    wrong = PayloadKey.of("k1", octets_of("other"))
    sealed, coding = Sealer(None, wrong).seal("secret", None, "t1", "result")
    task = Task("t1", {"result": sealed, "result_encoding": coding})
    with pytest.raises(PayloadRefused) as refusal:
        _ = task.result
    assert refusal.value.key == wrong.name != K1.name and not refusal.value.is_damaged
    assert task.for_people().result == f"[encrypted: {wrong.name}]"
    assert "secret" not in str(refusal.value) and sealed not in str(refusal.value)


def test_a_new_task_needs_the_key_besides_what_it_needs(payloads):
    sealer = payloads.sealer("q")
    new = NewTask("t1", "q", "a", {"needs": "gpu=1,lock:disk=2", "context": '{"a":1}'}, {})
    sealed = sealer.new_task(new)
    assert sealed.options["needs"] == f"gpu=1,key.{name_of('k1')}=1,lock:disk=2"
    assert open_whole(sealed.options["context"], "t1", "context") == '{"a":1}'
    task = Task("t1", {"parameters": sealed.parameters, **sealed.options})
    assert (task.parameters, task.context) == ("a", {"a": 1})


def test_a_result_that_is_passed_on_opens_as_that_of_its_task(payloads):
    sealer = payloads.sealer("q")
    packed = {
        "t1": inputs.pack(*sealer.seal('{"n": 1}', "json", "t1", "result")),
        "t2": inputs.pack(*sealer.seal("text", None, "t2", "result")),
        "t3": inputs.pack("plain", None),
    }
    assert inputs.to_json(packed, ["t3"]) == '{"t3": "plain", "t1": {"n": 1}, "t2": "text"}'
    with pytest.raises(PayloadRefused):
        inputs.to_json({"t2": packed["t1"]}, [])


def test_a_changed_file_is_read_anew_and_a_broken_one_leaves_the_keys_of_before(keys, caplog):
    payloads = Payloads(None, str(keys))
    assert payloads.offered() == {name_of("k1")}
    write_keys(keys, "k2", "k1")
    assert payloads.sealer("q").key.name == name_of("k2")
    assert payloads.offered() == {name_of("k1"), name_of("k2")}

    keys.write_text("nonsense")
    assert payloads.offered() == frozenset()
    assert payloads.sealer("q").key.name == name_of("k2")
    assert payload_keys.find(name_of("k1")) == K1
    (warning,) = {record.message for record in caplog.records}
    assert "it is not ID BASE64" in warning and "nonsense" not in warning
    caplog.clear()
    keys.unlink()
    assert payloads.offered() == frozenset()
    write_keys(keys, "k1")
    assert payloads.offered() == {name_of("k1")}
    caplog.clear()


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("k1 AAAA", 0o600, "key 'k1' is not the base64 of 32 bytes"),
        ("k1 !", 0o600, "key 'k1' is not the base64 of 32 bytes"),
        ("K1 AAAA", 0o600, "line 1: it is not ID BASE64"),
        ("k1", 0o600, "line 1: it is not ID BASE64"),
        ("# none\n", 0o600, "has no key"),
        ("k1 ä", 0o600, "key 'k1' is not the base64 of 32 bytes"),
        (f"k1 {'A' * 43}=\nk1 {'B' * 43}=", 0o600, "line 2: a second key has the id 'k1'"),
        (f"k1 {'A' * 43}=", 0o640, "others can read it (mode 0640): chmod 600"),
    ],
)
def test_a_wrong_file_is_a_sentence_without_the_key(tmp_path, text, mode, sentence):
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(InvalidInput) as refusal:
        KeyFile(str(path)).first()
    assert sentence in str(refusal.value)
    assert "AAAA" not in str(refusal.value)


@pytest.mark.parametrize("path", ["/nowhere/keys", "/tmp", "a\0b"])
def test_a_file_that_is_not_there_is_a_sentence(path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        KeyFile(path).first()


def test_a_key_is_not_shown():
    assert repr(K1) == f"<PayloadKey {K1.name}>"
