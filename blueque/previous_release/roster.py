"""`python -m blueque.roster`: the health check of listeners under its name of the previous release."""

import sys

from blueque.node.registry import main

if __name__ == "__main__":
    sys.exit(main())
