"""`python -m blueque.listener_main`: what `blueque-listener` of the previous release becomes."""

import sys

from blueque.node.main import main

if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
