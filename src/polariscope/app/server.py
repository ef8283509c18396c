"""The routes of the explorer: each calls one function of another room, and returns its result as JSON or PNG."""

from __future__ import annotations

import asyncio
import base64
import math
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from PIL import Image
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from polariscope.app.forms import config_from, forms
from polariscope.app.guard import DOCUMENT_POLICY, Application, Guard
from polariscope.app.jobs import Jobs
from polariscope.app.opened_runs import (
    MOST_IMAGES,
    NotHere,
    OpenedRuns,
    as_png,
    checked_codes,
    document,
    own_threads,
    page_with_pictures,
    told_maps,
    told_space,
)
from polariscope.examination.next_steps import offers
from polariscope.examination.played_attack import play_attack
from polariscope.lab.labels import check_name, label
from polariscope.lab.store import Store
from polariscope.printable import one_line
from polariscope.registry import required
from polariscope.robustness.attacks import NORMS, Norm, attacks
from polariscope.strict_json import json_text
from polariscope.studies.board import board
from polariscope.training.sweep import prepare
from polariscope.worlds.world import to_tensor

FILES = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    **dict.fromkeys(
        (
            *("app.js", "dom.js", "runs.js", "run.js", "explore.js", "map.js", "charts.js", "attack.js", "more.js"),
            *("generate.js", "maps.js"),
        ),
        "text/javascript; charset=utf-8",
    ),
}
"""Everything that is served as it is: a name that is not here is not looked for anywhere."""
QUICK = {"robustness": ["--budget", "quick", "--count", "50", "--corrupted", "200"]}
MOST_POINTS = 600
"""Points of a learning curve that are sent: a screen has no more."""
Layer = Literal["image", "class", "probability"]
router = APIRouter()


class Codes(BaseModel):
    codes: list[list[float]] = Field(max_length=MOST_IMAGES)


class Walk(BaseModel):
    start: list[float] = Field(max_length=10_000)
    latents: list[int] = Field(max_length=64)
    steps: int = 9
    reach: float = 2.5


class AttackWish(BaseModel):
    number: int
    attack: str = Field(max_length=100)
    norm: Norm
    steps: int = Field(default=30, ge=2, le=60)


class PropertyWish(BaseModel):
    values: list[float] = Field(min_length=1, max_length=100)
    rows: list[int] = Field(min_length=1, max_length=MOST_IMAGES)


class Training(BaseModel):
    world: str = Field(max_length=200)
    objective: str = Field(max_length=200)
    settings: dict[str, float] = Field(default_factory=dict, max_length=40)
    steps: int = Field(default=2000, ge=1, le=10_000_000)
    latents: int | None = Field(default=None, ge=1, le=1024)
    seed: int = Field(default=0, ge=0, le=2**31)
    name: str = Field(default="", max_length=100)


class Start(BaseModel):
    command: str = Field(max_length=40)


@cache
def page_file(name: str) -> bytes:
    return files("polariscope.app").joinpath("page", name).read_bytes()


def answer(content: Any, status: int = 200) -> Response:
    """JSON without NaN and infinity, which are none."""
    return Response(json_text(content), status, media_type="application/json")


def png(content: bytes) -> Response:
    return Response(content, media_type="image/png")


def _runs(request: Request) -> OpenedRuns:
    runs: OpenedRuns = request.app.state.runs
    return runs


def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


@router.get("/")
def index() -> Response:
    return Response(page_file("index.html"), media_type=FILES["index.html"])


@router.get("/page/{name}")
def static(name: str) -> Response:
    if name not in FILES:
        raise NotHere("there is no such file")
    return Response(page_file(name), media_type=FILES[name])


@router.get("/api/runs")
def rows(request: Request) -> Response:
    listed, problems = _runs(request).rows()
    return answer({"runs": listed, "problems": problems, "folder": str(_runs(request).store.root)})


@router.get("/api/runs/{run_id}")
def about(request: Request, run_id: str) -> Response:
    facts = _runs(request).about(run_id)
    return answer({**facts, "jobs": [job.about() for job in _jobs(request).of(run_id)]})


@router.get("/api/runs/{run_id}/curves")
def curves(request: Request, run_id: str) -> Response:
    curves_of: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for step, split, term, value in _runs(request).run(run_id).metrics():
        if math.isfinite(value):
            curves_of.setdefault((term, split), []).append((step, value))
    rows = [
        {"term": term, "split": split, "points": points[:: max(1, -(-len(points) // MOST_POINTS))]}
        for (term, split), points in curves_of.items()
    ]
    return answer({"curves": rows})


@router.get("/api/runs/{run_id}/space")
def space(request: Request, run_id: str) -> Response:
    opened = _runs(request).space(run_id)
    assert opened.space is not None
    return answer(told_space(opened.space))


@router.post("/api/runs/{run_id}/decode")
async def decode(request: Request, run_id: str, wish: Codes) -> Response:
    opened = await asyncio.to_thread(_runs(request).space, run_id)
    assert opened.space is not None
    assert opened.decode is not None
    images = await opened.decode(checked_codes(wish.codes, opened.space.representation.latents))
    if images.ndim != 4:
        return answer({"values": np.round(images.astype(float), 5).tolist()})
    return png(as_png(images, opened.limits))


@router.post("/api/runs/{run_id}/walks")
async def walks(request: Request, run_id: str, wish: Walk) -> Response:
    """The codes of walks along variables; the page has them decoded as it has any code decoded."""
    opened = await asyncio.to_thread(_runs(request).space, run_id)
    assert opened.space is not None
    codes = opened.space.walks(wish.start, wish.latents, wish.steps, wish.reach)
    return answer({"codes": np.round(codes.astype(float), 5).tolist()})


@router.get("/api/runs/{run_id}/examples")
def examples(request: Request, run_id: str, numbers: str, of: str = "space") -> Response:
    """Original images by number, side by side."""
    words = numbers.split(",")
    if not 1 <= len(words) <= MOST_IMAGES or not all(word.isdecimal() and len(word) < 16 for word in words):
        raise ValueError(f"expected 1 to {MOST_IMAGES} numbers of examples")
    if of == "classifier":
        opened = _runs(request).classifier(run_id)
        assert opened.classifier is not None
        world = opened.classifier.world
    else:
        opened = _runs(request).space(run_id)
        assert opened.space is not None
        world = opened.space.world
    images = world.observe(np.asarray([int(word) for word in words]))
    if images.ndim != 4:
        return answer({"values": np.round(images.astype(float), 5).tolist()})
    return png(as_png(images, opened.limits))


@router.get("/api/runs/{run_id}/classifier")
def classifier(request: Request, run_id: str) -> Response:
    opened = _runs(request).classifier(run_id)
    opened_classifier = opened.classifier
    assert opened_classifier is not None
    names = {name: list(attacks.get(name)().norms) for name in attacks.names() if not _hard_to_make(name)}
    return answer(
        {
            "numbers": opened_classifier.numbers.tolist(),
            "labels": opened_classifier.labels.tolist(),
            "classes": opened_classifier.target.size,
            "target": opened_classifier.target.name,
            "shape": list(opened_classifier.world.shape),
            "attacks": names,
            "norms": list(NORMS),
        }
    )


@router.post("/api/runs/{run_id}/attack")
def attack(request: Request, run_id: str, wish: AttackWish) -> Response:
    """An attack on one image: its steps as one picture, with the classifier's probabilities for each."""
    opened = _runs(request).classifier(run_id)
    opened_classifier = opened.classifier
    assert opened_classifier is not None
    if wish.number not in opened_classifier.numbers or wish.attack not in attacks.names():
        raise ValueError("expected an image and an attack that the page lists")
    chosen = attacks.get(wish.attack)()
    at = int(np.flatnonzero(opened_classifier.numbers == wish.number)[0])
    image = to_tensor(opened_classifier.world.observe([wish.number]))[0].numpy()
    played = _runs(request).computed(
        lambda: play_attack(
            opened_classifier.subject,
            image,
            int(opened_classifier.labels[at]),
            chosen,
            norm=wish.norm,
            steps=wish.steps,
        )
    )
    change = played.images - played.images[:1]
    largest = float(np.abs(change).max()) or 1.0
    images = (played.images * 255).round().astype(np.uint8)
    changes = ((change / (2 * largest) + 0.5) * 255).round().astype(np.uint8)
    strip = base64.b64encode(as_png(np.concatenate([images, changes]))).decode()
    return answer(
        {
            "headline": played.headline,
            "succeeded": played.succeeded,
            "label": played.label,
            "distances": np.round(played.distances, 5).tolist(),
            "probabilities": np.round(played.probabilities.astype(float), 5).tolist(),
            "queries": played.queries.tolist(),
            "largest": largest,
            "png": strip,
        }
    )


@router.get("/api/runs/{run_id}/property")
def property_about(request: Request, run_id: str) -> Response:
    """The properties that a run can generate, their range, and examples whose other content can be kept."""
    sliders = _runs(request).sliders(run_id).sliders
    assert sliders is not None
    low, high = sliders.limits
    return answer(
        {
            "names": list(sliders.scale.names),
            "units": list(sliders.scale.units),
            "low": low.tolist(),
            "high": high.tolist(),
            "shape": list(sliders.world.shape),
            "numbers": sliders.numbers.tolist(),
            "readings": np.round(sliders.readings, 5).tolist(),
        }
    )


@router.post("/api/runs/{run_id}/property")
def property_moved(request: Request, run_id: str, wish: PropertyWish) -> Response:
    """Observations with a wanted property and the other content of examples."""
    opened = _runs(request).sliders(run_id)
    sliders = opened.sliders
    assert sliders is not None
    with opened.lock:
        moved = sliders.moved(wish.values, wish.rows)
    content: dict[str, Any] = {
        "read": np.round(moved.read, 5).tolist(),
        "true": None if moved.true is None else np.round(moved.true, 5).tolist(),
    }
    if moved.observations.ndim == 4:
        content["png"] = base64.b64encode(as_png(moved.observations, opened.limits)).decode()
    else:
        content["values"] = np.round(moved.observations.astype(float), 5).tolist()
    return answer(content)


@router.get("/api/runs/{run_id}/maps")
def maps(request: Request, run_id: str) -> Response:
    return answer({"maps": told_maps(_runs(request).maps(run_id))})


@router.get("/api/runs/{run_id}/maps/{number}/{layer}")
def layer(
    request: Request, run_id: str, number: int, layer: Literal["image", "class", "probability"], of: int = 0
) -> Response:
    """One layer of a map, by the place of the map in the list and, for classes, by the number of the class."""
    several = _runs(request).maps(run_id)
    if not 0 <= number < len(several):
        raise NotHere("the run has no such map")
    one = several[number]
    pictures = {
        "image": one.image_picture,
        "class": lambda: one.class_picture(of),
        "probability": lambda: one.probability_picture(of),
    }
    draft = BytesIO()
    Image.fromarray(_runs(request).computed(pictures[layer])).save(draft, "PNG", compress_level=1)
    return png(draft.getvalue())


@router.get("/api/compare")
def compared(request: Request, first: str, second: str) -> Response:
    return answer(_runs(request).compared(first, second))


@router.get("/documents/{run_id}/{kind}")
def report(request: Request, run_id: str, kind: str) -> Response:
    """A report out of a run folder: shown without scripts, and apart from the page around it."""
    file = document(_runs(request).run(run_id), kind)
    if file is None:
        raise NotHere("the run has no such report")
    headers = {"content-security-policy": DOCUMENT_POLICY, "x-frame-options": "SAMEORIGIN"}
    return Response(page_with_pictures(file), media_type="text/html; charset=utf-8", headers=headers)


@router.get("/api/board")
def claims(request: Request) -> Response:
    """Every claim of every table, judged by the present code: once, as that takes a while."""
    runs, state = _runs(request), request.app.state
    if state.board is None:
        folders = [folder for folder in state.results if folder.is_dir()]
        if not folders:
            raise NotHere("no results here: 'polariscope reproduce NAME' writes a table to results")
        result = runs.computed(lambda: board(folders))
        state.board = {"headline": result.headline, "rows": result.records(), "problems": list(result.problems)}
    return answer(state.board)


@router.get("/api/forms")
def training_forms() -> Response:
    return answer(forms())


@router.post("/api/trainings")
def train(request: Request, wish: Training) -> Response:
    """A new run, and the command that trains it."""
    store = _runs(request).store
    config = config_from(wish.world, wish.objective, wish.settings, wish.steps, wish.latents, wish.seed)
    if wish.name:
        check_name(store, wish.name)  # first, so that nothing is left behind
    (run,) = prepare([config], store)
    if wish.name:
        label(store, run, name=wish.name)
    job = _jobs(request).start(["train", "--resume", run.id], run.id)
    return answer({"run": run.id, "job": job.about()})


@router.post("/api/runs/{run_id}/resume")
def resume(request: Request, run_id: str) -> Response:
    run = _runs(request).run(run_id)
    if run.state == "running":
        raise ValueError("this run is being trained already")
    if run.state == "done":
        raise ValueError("this run has finished: 'polariscope train --resume' with more --training.steps extends it")
    return answer(_jobs(request).start(["train", "--resume", run.id], run.id).about())


@router.post("/api/runs/{run_id}/stop")
def stop(request: Request, run_id: str) -> Response:
    run = _runs(request).run(run_id)
    going = [job for job in _jobs(request).of(run_id) if job.state == "running" and job.words[0] == "train"]
    if not going:
        where = "started elsewhere: stop it there with Ctrl-C" if run.state == "running" else "not being trained"
        raise ValueError(f"this run is {where}")
    return answer(_jobs(request).stop(going[0].number).about())


@router.post("/api/runs/{run_id}/start")
def start(request: Request, run_id: str, wish: Start) -> Response:
    """An examination of a run, as the command line does it with its usual options (quick ones where it is long)."""
    run = _runs(request).run(run_id)
    known = [place.name for place in offers()]
    if wish.command not in known:
        raise ValueError(f"expected one of {', '.join(known)}; got {one_line(wish.command)!r}")
    job = _jobs(request).start([wish.command, run.id, *QUICK.get(wish.command, [])], run.id)
    return answer(job.about())


@router.get("/api/jobs")
def jobs(request: Request) -> Response:
    return answer({"jobs": [job.about() for job in _jobs(request).all()][::-1]})


@router.post("/api/jobs/{number}/stop")
def stop_job(request: Request, number: int) -> Response:
    return answer(_jobs(request).stop(number).about())


@cache
def _hard_to_make(name: str) -> bool:
    """Whether an attack needs something of its own, such as another classifier, to be made."""
    return bool(required(attacks.get(name)))


def _sentence(error: Exception) -> Response:
    """What is wrong with a request, in one sentence."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return answer({"error": one_line(f"{where or 'the request'}: {first['msg']}")}, 422)
    if isinstance(error, HTTPException):
        return answer({"error": "this page does not exist"}, error.status_code)
    return answer({"error": one_line(str(error))}, 404 if isinstance(error, NotHere) else 400)


def explorer(
    runs: Path | str | Store,
    host: str = "127.0.0.1",
    port: int = 8265,
    token: str = "",
    results: Sequence[Path] = (Path("docs/results"), Path("results")),
) -> Application:
    """The explorer of a folder of runs as an ASGI application, guarded for the address it will be served at. Tables of
    studies are looked for in the folders of ``results``."""
    store = runs if isinstance(runs, Store) else Store(Path(runs))
    started = Jobs(store.root)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        own_threads()
        yield
        await asyncio.to_thread(started.close)

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.runs, app.state.jobs = OpenedRuns(store), started
    app.state.board, app.state.results = None, tuple(results)
    app.include_router(router)
    for kind in (ValueError, TypeError, OSError, ImportError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, lambda request, error: _sentence(error))
    return Guard(app, host, port, token)


def listening(host: str, port: int) -> socket.socket:
    """A socket at an address, or a sentence about why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    place = socket.socket(family, socket.SOCK_STREAM)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((host.strip("[]"), port))
    except (OSError, OverflowError) as error:
        place.close()
        reason = getattr(error, "strerror", None) or error
        raise OSError(f"cannot serve at {host}, port {port}: {reason}; --port 0 takes a free one") from error
    return place


def serve(application: Application, place: socket.socket, tell: Callable[[], None]) -> None:
    """Serve an explorer until it is interrupted; ``tell`` is called once it answers."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                tell()

    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        limit_concurrency=400,
        timeout_keep_alive=30,
        proxy_headers=False,
        ws="none",
    )
    Server(config).run(sockets=[place])
