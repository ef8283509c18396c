"""``python -m polariscope``."""

from polariscope.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
