"""Visitors of the explorer who all move sliders at once: how long an image takes, errors, and the server's memory.

The server is ``polariscope serve`` in a process of its own, with one run: the 64x64 convolutional VAE. A visitor asks
for the image of a new code as soon as the last one has come, as the page does while a slider moves. Where Chromium is
installed, one visitor is a real browser, and the time is from the input event to the painted image.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from polariscope.objectives.vae import VAE
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import train
from polariscope.worlds.renderers.sprites import Sprites

LATENTS = 10


async def visitor(port: int, run: str, until: float, seed: int) -> tuple[list[float], int]:
    """Seconds of each answer, and how many were no image."""
    rng, times, errors = random.Random(seed), [], 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        body = json.dumps({"codes": [[rng.gauss(0, 1) for _ in range(LATENTS)]]}).encode()
        head = f"POST /api/runs/{run}/decode HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        begun = time.perf_counter()
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
        image = await reader.readexactly(int(length[1]) if length else 0)
        times.append(time.perf_counter() - begun)
        errors += not (answer.startswith(b"HTTP/1.1 200") and image.startswith(b"\x89PNG"))
    writer.close()
    return times, errors


async def crowd(port: int, run: str, count: int, seconds: float) -> tuple[list[float], int]:
    until = time.perf_counter() + seconds
    results = await asyncio.gather(*(visitor(port, run, until, seed) for seed in range(count)))
    return [t for times, _ in results for t in times], sum(errors for _, errors in results)


def resident(process: int) -> float:
    """Megabytes of a process."""
    text = Path(f"/proc/{process}/status").read_text() if Path("/proc").is_dir() else ""
    found = re.search(r"VmRSS:\s+(\d+)", text)
    return int(found[1]) / 1024 if found else float("nan")


def in_browser(address: str, run: str, moves: int) -> list[float] | None:
    """Seconds from a slider's event to the painted image, in Chromium; None where there is none."""
    program = shutil.which("chromium")
    if program is None or importlib.util.find_spec("websockets") is None:
        return None
    file = Path(__file__).resolve().parents[1] / "tests" / "app" / "conftest.py"
    spec = importlib.util.spec_from_file_location("explorer_browser", file)
    assert spec is not None
    assert spec.loader is not None
    driver: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(driver)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *driver.FLAGS.split(), f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "DevTools listening" in line)
            threading.Thread(target=process.stderr.read, daemon=True).start()
            port = int(line.split("ws://127.0.0.1:")[1].split("/")[0])
            page = driver.Page(port, 1280, 900, False)
            page.open(f"{address}/#/run/{run}/explore")
            page.wait("document.querySelectorAll('#walks canvas').length > 0")
            times = page.ask(
                """(async () => { const slider = document.querySelector("input[data-latent]"), shown = [];
                const image = document.getElementById("decoded");
                for (let i = 0; i < MOVES; i++) {
                  const wanted = (-2 + 4 * i / MOVES).toFixed(2), begun = performance.now();
                  slider.value = wanted; slider.dispatchEvent(new Event("input"));
                  const number = () => image.dataset.code.split(" ")[slider.dataset.latent];
                  const right = () => number() === Number(wanted).toFixed(3);
                  while (!right()) await new Promise(requestAnimationFrame);
                  shown.push(performance.now() - begun);
                } return shown })()""".replace("MOVES", str(moves))
            )
            page.stack.close()
            return [time / 1000 for time in times]
        finally:
            process.terminate()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()


def main(visitors: int = 50, seconds: float = 10.0, rounds: int = 3) -> None:
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        run = train(RunConfig(Sprites(), VAE(), training=TrainingConfig(steps=2, evaluate_every=0)), folder, quiet=True)
        words = [sys.executable, "-m", "polariscope", "serve", "--runs", folder, "--port", "0"]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().split("http://127.0.0.1:")[1].split("/")[0])
            asyncio.run(crowd(port, run.id, 1, 1.0))  # opens the run
            table = Table("visitors", "images/s", "median", "95 %", "slowest", "errors", "server's memory", box=None)
            for count in (1, *[visitors] * rounds):
                times, errors = asyncio.run(crowd(port, run.id, count, seconds))
                low, high, most = np.quantile(times, [0.5, 0.95, 1.0])
                told = [f"{1000 * t:.0f} ms" for t in (low, high, most)]
                rate = f"{len(times) / seconds:.0f}"
                table.add_row(str(count), rate, *told, str(errors), f"{resident(server.pid):.0f} MB")
            console.print(table)
            shown = in_browser(f"http://127.0.0.1:{port}", run.id, 60)
            if shown is None:
                console.print("Chromium is not installed: nothing was measured at the browser")
            else:
                low, high, most = (1000 * np.quantile(shown, q) for q in (0.5, 0.95, 1.0))
                console.print(
                    f"slider to image in Chromium: median {low:.0f} ms, 95 % {high:.0f} ms, slowest {most:.0f} ms"
                )
        finally:
            server.terminate()
            server.wait()
            assert server.stdout is not None
            server.stdout.close()


if __name__ == "__main__":
    main()
