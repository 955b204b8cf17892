"""`python -m lexppl`, the same as `lexppl`."""

import sys

from lexppl.cli import main

if __name__ == "__main__":
    sys.exit(main())
