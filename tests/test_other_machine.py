"""The settings of ``make test-other-machine`` do what they are for: this machine then rounds as another one would.

A setting that a library no longer knows is ignored without a word, and the second run of the numerical rooms would be a
copy of the first.
"""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"
PROBE = """
import sys
import numpy as np
import torch

torch.set_num_threads(1)
rng = np.random.default_rng(0)
a, b = rng.standard_normal((61, 127)), rng.standard_normal((127, 53))
image, filters = (torch.from_numpy(rng.standard_normal(s).astype("f")) for s in ((4, 3, 16, 16), (8, 3, 4, 4)))
np.savez(
    sys.argv[1],
    torch_product=torch.from_numpy(a) @ torch.from_numpy(b),
    torch_singular_values=torch.linalg.svdvals(torch.from_numpy(a)),
    torch_convolution=torch.nn.functional.conv2d(image, filters, stride=2, padding=1),
    numpy_product=a @ b,
)
"""


def settings() -> dict[str, str]:
    line = re.search(r"^OTHER_MACHINE := (.+)$", MAKEFILE.read_text(), re.MULTILINE)
    assert line, "the Makefile has no line of settings for another machine"
    return dict(pair.split("=", 1) for pair in line[1].split())


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """What the probe computes on this machine and on the other."""
    other = settings()
    plain = {name: value for name, value in os.environ.items() if name not in other}
    result = []
    for number, environment in enumerate((plain, plain | other)):
        file = tmp_path_factory.mktemp("machine") / f"{number}.npz"
        subprocess.run([sys.executable, "-c", PROBE, str(file)], env=environment, check=True)
        result.append(np.load(file))
    return result


@pytest.mark.parametrize("operation", ["torch_product", "torch_singular_values", "torch_convolution", "numpy_product"])
def test_the_other_machine_differs_in_the_last_bits_and_in_no_others(computed, operation):
    here, there = (results[operation] for results in computed)
    digits = 1e-4 if here.dtype == np.float32 else 1e-11
    np.testing.assert_allclose(there, here, rtol=digits, atol=digits)
    if np.array_equal(here, there):
        if platform.machine() not in ("x86_64", "AMD64") or torch.backends.cpu.get_cpu_capability() == "DEFAULT":
            pytest.skip("this processor has no vector instructions of x86 that the settings could take away")
        pytest.fail(f"{settings()} changed nothing in {operation}, so that it is tested as on one machine only")
