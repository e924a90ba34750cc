from __future__ import annotations

from blueque.connection.packing import pack_each, pack_words
from blueque.connection.redis import pack

TEXTS = ["a", "0" * 36, "Ä", "\udcff", "", "1" * 36]


def test_commands_that_differ_in_one_text_are_packed_as_each_alone():
    some = pack_each(("LREM", "list", -1), "", TEXTS)
    others = pack_each(("HMGET",), "blueque_task_", TEXTS, ("status", "queue"))

    assert some == [pack(("LREM", "list", -1, text)) for text in TEXTS]
    assert others == [pack(("HMGET", f"blueque_task_{text}", "status", "queue")) for text in TEXTS]


def test_a_command_of_many_keys_has_all_of_a_kind_together():
    packed = pack_words(("UNLINK",), {"task_": TEXTS, "none_": [], "log_": TEXTS[1:]})

    names = *map("task_{}".format, TEXTS), *map("log_{}".format, TEXTS[1:])
    assert packed == pack(("UNLINK", *names))


def test_each_word_may_have_others_before_it():
    packed = pack_words(("ZADD", "tasks"), {"": TEXTS}, (5.5,))

    assert packed == pack(("ZADD", "tasks", *[word for text in TEXTS for word in (5.5, text)]))
