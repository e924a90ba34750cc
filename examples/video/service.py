"""A video service: upload a video, watch its progress, download the result."""

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse
from video import encode

import blueque

FILES = Path(os.environ.get("VIDEO_FILES", "files")).absolute()  # shared with the workers
client = blueque.AsyncClient()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    FILES.mkdir(parents=True, exist_ok=True)
    async with client:
        yield


app = FastAPI(lifespan=lifespan)


@app.put("/videos/{name}", status_code=202)
async def upload(
    name: str, request: Request, height: int = 360, urgent: bool = False
) -> dict[str, Any]:
    """Store a video and enqueue its task. The same video has the same task."""
    digest = hashlib.sha256()
    with TemporaryDirectory(dir=FILES) as directory:
        async with await anyio.open_file(f"{directory}/upload", "wb") as file:
            async for chunk in request.stream():
                digest.update(chunk)
                await file.write(chunk)
        source = Path(directory, "upload").rename(FILES / digest.hexdigest())
    key = f"{source.name}-{height}"
    video = {"source": str(source), "target": str(FILES / f"{key}.mp4"), "height": height}
    queue = "video.urgent" if urgent else "video"
    task = await encode.enqueue_async(video, client=client, queue=queue, key=key, title=name)
    return {"task": task, "is_new": task.is_new}


@app.get("/tasks/{task_id}")
async def show(task_id: str) -> dict[str, Any]:
    task = await find(task_id)
    return {name: getattr(task, name) for name in ("title", "status", "progress", "error")}


@app.get("/tasks/{task_id}/video")
async def download(task_id: str) -> FileResponse:
    task = await find(task_id)
    if task.status != "complete":
        raise HTTPException(409, f"the video is {task.status}")
    return FileResponse(task.result["file"], filename=f"{Path(task.title or task.id).stem}.mp4")


@app.delete("/tasks/{task_id}")
async def cancel(task_id: str) -> dict[str, str]:
    queue = client.get_queue(await queue_of(task_id))
    return {"status": await queue.cancel(task_id, by="web")}


@app.post("/tasks/{task_id}/retry")
async def retry(task_id: str) -> dict[str, str]:
    queue = client.get_queue(await queue_of(task_id))
    return {"status": await queue.requeue(task_id, by="web")}


@app.get("/")
async def page() -> FileResponse:
    return FileResponse(Path(__file__).with_name("page.html"))


@app.exception_handler(blueque.BluequeError)
async def refuse(request: Request, error: blueque.BluequeError) -> JSONResponse:
    is_away = isinstance(error, blueque.RedisAway)
    return JSONResponse({"detail": str(error)}, 503 if is_away else 409)


async def find(task_id: str) -> blueque.Task:
    task = await client.get_task(task_id)
    if task.queue not in encode.queues:
        raise HTTPException(404, "there is no such video")
    return task


async def queue_of(task_id: str) -> str:
    queue = (await find(task_id)).queue
    assert queue is not None  # it is one of the encoder's
    return queue
