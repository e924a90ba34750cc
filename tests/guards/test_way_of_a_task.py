"""A task crosses few modules of the listener between reserve and complete."""

from __future__ import annotations

from way_of_a_task import ROOT, Figures, measure

# What a task took when it was counted last. Whoever raises a figure says here what for.
# The fork server took one module and two hops in the listener, two and 12 in all; ten more if a process was
# not ready in time. The messages between processes have a module of their own, with ten hops less.
# Listener in three modules, with a registration for each queue and a reserver, took one module and six hops.
# Four transactions in place of two took three modules and ten hops in all; the listener saved two and twelve.
# How an attempt has ended is found out in a module of its own, with six hops less.
# A keeper that forks a process for each task, not eight at once, took twelve hops in the listener; four more if a
# process was not ready in time, as on a busy machine.
IN_ALL, IN_LISTENER = Figures(modules=53, hops=534), Figures(modules=17, hops=90)


def test_the_way_of_a_task_from_reserve_to_complete_is_no_longer_than_when_it_was_counted(
    url, tmp_path
):
    way = measure(url, tmp_path)

    for name, counted, most in (
        ("in all", way.in_all, IN_ALL),
        ("in the listener", way.in_listener, IN_LISTENER),
    ):
        assert (counted.modules <= most.modules, counted.hops <= most.hops) == (True, True), (
            f"{name} {counted}, which should be {most} at most; to see the way: "
            f"python {ROOT}/tests/guards/way_of_a_task.py"
        )
