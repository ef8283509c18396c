"""An explorer that is served to a real browser, and the browser: Chromium, driven over its own protocol."""

import base64
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from polariscope.app.server import explorer, listening
from polariscope.lab.labels import label
from polariscope.lab.store import Store
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.predictors import LeNet
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.predict import Classify
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import train
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.targets import Task

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run --hide-scrollbars --disable-dev-shm-usage --remote-debugging-port=0"
)


def train_runs(folder: Path) -> dict:
    """Two small autoencoders and a classifier, a few steps each."""
    store = Store(folder)
    training = TrainingConfig(steps=60, batch_size=32, evaluate_every=20, log_every=10)
    model = AutoencoderConfig(latents=5)
    runs = {
        "first": train(RunConfig(MiniSprites(), BetaVAE(beta=1.0), model, training), store, quiet=True),
        "second": train(RunConfig(MiniSprites(), BetaVAE(beta=2.0), model, training), store, quiet=True),
        "classifier": train(RunConfig(Task(MiniSprites()), Classify(), LeNet(), training), store, quiet=True),
    }
    for name, run in runs.items():
        label(store, run, name=name, tags=["tested"])
    return runs


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A store with three runs, by name."""
    folder = tmp_path_factory.mktemp("explored") / "runs"
    return folder, train_runs(folder)


@pytest.fixture(scope="session")
def generating(tmp_path_factory):
    """A run that was trained with two properties, in a store of its own."""
    from polariscope.nets.property_autoencoder import PropertyAutoencoderConfig
    from polariscope.objectives.conditional_invariance import ConditionalInvariance
    from polariscope.worlds.views.properties import Properties

    folder = tmp_path_factory.mktemp("generating") / "runs"
    world = Properties(MiniSprites(), "x,scale")
    training = TrainingConfig(steps=30, batch_size=32, evaluate_every=0)
    model = PropertyAutoencoderConfig(latents=6, property_latents=2)
    return folder, train(RunConfig(world, ConditionalInvariance(copies=1), model, training), folder, quiet=True)


@pytest.fixture(scope="session")
def mapping_run(tmp_path_factory):
    """A run with maps of two years of one place, in a store of its own."""
    pytest.importorskip("rasterio")
    from polariscope.cli import main
    from polariscope.mapping.example import write_example
    from polariscope.worlds.renderers.aerial import Aerial

    place = tmp_path_factory.mktemp("mapping")
    write_example(place / "valley", Aerial(valleys=1, tiles=4, years=(2000, 2016), size=48, labels="analysed"))
    words = ["map", "all", str(place / "valley"), "--steps", "6", "--size", "32", "--root", "2", "--batch-size", "2"]
    assert main([*words, "--threshold", "0.2", "--json", "--runs", str(place / "runs")]) == 0
    (run,) = Store(place / "runs").runs()
    return place / "runs", run


class Served:
    """An explorer in a thread of this process."""

    def __init__(self, runs: Path, **options) -> None:
        import uvicorn

        self.place = listening("127.0.0.1", 0)
        self.port = self.place.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        application = explorer(runs, "127.0.0.1", self.port, **options)
        self.server = uvicorn.Server(uvicorn.Config(application, log_level="error", access_log=False, ws="none"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.place]}, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.02)
            assert self.thread.is_alive(), "the server did not start"

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(30)
        self.place.close()


@pytest.fixture(scope="session")
def serving():
    """``serving(runs, token="")``: an explorer of another folder, or with a token."""
    return Served


@pytest.fixture(scope="session")
def served(trained):
    """The explorer of the three runs."""
    server = Served(trained[0])
    yield server
    server.close()


class Page:
    """One tab of Chromium."""

    def __init__(self, port: int, width: int, height: int, dark: bool) -> None:
        from websockets.sync.client import connect

        asked = Request(f"http://127.0.0.1:{port}/json/new?about:blank", method="PUT")
        with urlopen(asked, timeout=60) as answer:
            target = json.load(answer)
        self.stack = ExitStack()
        address = target["webSocketDebuggerUrl"]
        self.socket = self.stack.enter_context(connect(address, max_size=2**26, compression=None))
        self.numbers, self.events = itertools.count(1), []
        for method in ("Page.enable", "Runtime.enable", "Log.enable", "Network.enable"):
            self.send(method)
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)

    def send(self, method: str, **parameters):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=120))
            if message.get("id") == number:
                assert "error" not in message, message["error"]
                return message["result"]
            self.events.append(message)

    def open(self, address: str) -> None:
        self.send("Page.navigate", url=address)

    def ask(self, script: str):
        """The value of an expression in the page, awaited if it is a promise."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 120):
        """Until an expression is true; its value."""
        until = time.monotonic() + seconds
        while True:
            careful = f"try {{ const v = {script}; return v instanceof Node || v }} catch {{ return null }}"
            value = self.ask(f"(() => {{ {careful} }})()")
            if value:
                return value
            assert time.monotonic() < until, f"never true: {script}; the page: {self.ask('document.body.innerText')}"
            time.sleep(0.05)

    def move(self, selector: str, value, event: str = "input") -> None:
        """Give a slider, a field or a choice another value, as a hand would."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"(() => {{ {place}.value = {json.dumps(value)}; {place}.dispatchEvent(new Event('{event}')) }})()")

    def key(self, key: str) -> None:
        code = {"Enter": 13, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, " ": 32}.get(key, ord(key[0].upper()))
        text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 else "")
        more = {"key": key, "windowsVirtualKeyCode": code, "code": key if len(key) > 1 else ""}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", **more)

    def complaints(self) -> list[str]:
        """What the browser's console holds against the page."""
        self.ask("1")
        logged = [e["params"]["entry"] for e in self.events if e["method"] == "Log.entryAdded"]
        thrown = [e["params"]["exceptionDetails"] for e in self.events if e["method"] == "Runtime.exceptionThrown"]
        return [entry["text"] for entry in logged if entry["level"] in ("error", "warning")] + [str(t) for t in thrown]

    def fetched(self) -> list[str]:
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def shot(self, file: Path | str, whole: bool = False) -> None:
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        Path(file).write_bytes(base64.b64decode(data))


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """``chromium(width, height, dark)``: a new tab."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("Chromium is not installed: the explorer cannot be looked at in a browser")
    profile = tmp_path_factory.mktemp("profile")
    command = [program, *FLAGS.split(), f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    port = 0
    for line in process.stderr:
        if match := re.search(r"DevTools listening on ws://127\.0\.0\.1:(\d+)/", line):
            port = int(match[1])
            break
    assert port, "Chromium did not start"
    threading.Thread(target=lambda: [None for _ in process.stderr], daemon=True).start()
    pages = []

    def tab(width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        pages.append(Page(port, width, height, dark))
        return pages[-1]

    yield tab
    for page in pages:
        page.stack.close()
    process.terminate()
    process.wait(20)
    process.stderr.close()


@pytest.fixture
def command(monkeypatch):
    """Commands that the explorer starts see this package."""
    paths = [path for path in sys.path if path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
