"""`python -m aiospin`: the command `aiospin`."""

import sys

from aiospin.cli import main

if __name__ == "__main__":
    sys.exit(main())
