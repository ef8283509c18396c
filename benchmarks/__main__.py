"""Run the benchmarks, all or those named."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks
from polariscope.registry import nearest

NAMES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")]


def main() -> int:
    for name in sys.argv[1:] or NAMES:
        if name not in NAMES:
            print(f"error: there is no benchmark {name!r}: {nearest(name, NAMES)}", file=sys.stderr)
            return 2
        print(f"\n== {name} ==", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
