"""A sweep over degrees and learning rates: `python sweep.py NAME`. Run it again at any time."""

import itertools
import sys

from train import Trial, choose, train

import blueque

GRID = itertools.product((1, 3, 5), (0.01, 0.1, 1.0))
TRIALS = [Trial(degree=degree, rate=rate, epochs=300) for degree, rate in GRID]


def main(name: str) -> None:
    with blueque.Client() as client:
        made = train.enqueue_many(TRIALS, keys=name_of, group=name, client=client)
        print(f"{made.new} new trainings of {made}")
        task = choose.enqueue(name, after=blueque.after(any=made), key=name, client=client)
        print(client.wait(task).result)


def name_of(trial: Trial) -> str:
    return f"degree {trial['degree']}, rate {trial['rate']}"


if __name__ == "__main__":
    main(sys.argv[1])
