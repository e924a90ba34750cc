"""The worker of the video service: encodes videos with ffmpeg."""

import asyncio
import subprocess
from pathlib import Path
from typing import TypedDict

import blueque


class Video(TypedDict):
    source: str
    target: str
    height: int


@blueque.handler("video.urgent", "video", retry=blueque.Retry(max=2, backoff=10), stall_limit="5m")
async def encode(task: blueque.RunningTask, video: Video) -> dict:
    seconds = duration(video["source"])
    target = Path(video["target"])
    part = target.with_name(f"{task.id}-{task.attempt}.mp4")
    options = ["-vf", f"scale=-2:{video['height']}", "-movflags", "+faststart"]
    try:
        await run_ffmpeg(["-i", video["source"], *options, str(part)], task, seconds)
        part.rename(target)  # a file with this name is always a whole one
    finally:
        part.unlink(missing_ok=True)  # also when the task is cancelled
    return {"file": str(target), "seconds": seconds, "bytes": target.stat().st_size}


async def run_ffmpeg(arguments: list[str], task: blueque.RunningTask, seconds: float) -> None:
    """Run ffmpeg and report its progress. `blueque logs` shows what it prints."""
    options = ["-nostdin", "-y", "-v", "warning", "-progress", "pipe:1"]
    ffmpeg = await asyncio.create_subprocess_exec(
        "ffmpeg", *options, *arguments, stdout=subprocess.PIPE
    )
    async for line in ffmpeg.stdout:
        name, _, value = line.decode().strip().partition("=")
        if name == "out_time_us" and value.isdigit():
            task.progress(round(int(value) / 1e6), round(seconds), "seconds")
    if code := await ffmpeg.wait():
        raise subprocess.CalledProcessError(code, "ffmpeg")


def duration(file: str) -> float:
    """Return the seconds of a video. If the file is not a video, the task fails for good."""
    command = ["ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0"]
    found = subprocess.run([*command, file], capture_output=True, text=True)
    if found.returncode:
        raise blueque.Fail(f"not a video: {found.stderr.strip()}")
    return float(found.stdout)
