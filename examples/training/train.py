"""A training that continues from its checkpoint, and a handler that keeps the best of many."""

import json
import math
import random
from pathlib import Path
from typing import TypedDict

import blueque

Point = tuple[float, float]


class Trial(TypedDict):
    degree: int
    rate: float
    epochs: int


@blueque.handler("trainings", retry=blueque.Retry(max=2, backoff=10), stall_limit="10m")
def train(task: blueque.RunningTask, trial: Trial) -> dict:
    """Fit a polynomial to a noisy sine."""
    points, unseen = sample(200, seed=1), sample(50, seed=2)
    epoch, weights = task.checkpointed or (0, [0.0] * (trial["degree"] + 1))
    if epoch:
        task.note(f"goes on after epoch {epoch}")
    while epoch < trial["epochs"]:
        if task.should_stop:
            raise blueque.HandBack()  # the next attempt continues from the checkpoint
        weights = run_epoch(weights, points, trial["rate"], seed=epoch)
        epoch += 1
        if not loss(weights, unseen) < 1e6:
            raise blueque.Fail(f"it diverged in epoch {epoch}")  # a retry would diverge, too
        task.checkpoint([epoch, weights])
        task.progress(epoch, trial["epochs"], "epochs", f"loss {loss(weights, unseen):.4f}")
    return {"loss": loss(weights, unseen), "weights": weights}


@blueque.handler("sweeps")
def choose(task: blueque.RunningTask, sweep: str) -> dict:
    """Keep the best model of a sweep, once all of its trainings have ended."""
    results = task.client.group(sweep).results()
    if not results:
        raise blueque.Fail(f"no training of {sweep} is complete")
    best = min(results, key=lambda name: results[name]["loss"])
    Path(f"{sweep}.json").write_text(json.dumps(results[best]["weights"]))
    return {"of": len(results), "best": best, "loss": results[best]["loss"]}


def run_epoch(weights: list[float], points: list[Point], rate: float, seed: int) -> list[float]:
    """Return the weights after a step for each point. The order depends only on the seed."""
    for x, y in random.Random(seed).sample(points, len(points)):
        error = predict(weights, x) - y
        weights = [weight - rate * error * x**power for power, weight in enumerate(weights)]
    return weights


def loss(weights: list[float], points: list[Point]) -> float:
    errors = [predict(weights, x) - y for x, y in points]
    return sum(error * error for error in errors) / len(errors)


def predict(weights: list[float], x: float) -> float:
    return sum(weight * x**power for power, weight in enumerate(weights))


def sample(number: int, seed: int) -> list[Point]:
    random_ = random.Random(seed)
    xs = [random_.uniform(-1, 1) for _ in range(number)]
    return [(x, math.sin(3 * x) + random_.gauss(0, 0.1)) for x in xs]
