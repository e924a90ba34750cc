"""The worker of the night: renders scenes."""

from typing import TypedDict

import blueque


class Scene(TypedDict):
    scene: str
    frames: int


@blueque.handler("render")
def render(task: blueque.RunningTask, scene: Scene) -> dict:
    if scene["frames"] < 1:
        raise blueque.Fail("a scene without frames")
    for frame in task.track(range(scene["frames"]), unit="frames"):
        print("frame", frame)  # a renderer of your own comes here
    return {"path": f"frames/{scene['scene']}", "frames": scene["frames"]}
