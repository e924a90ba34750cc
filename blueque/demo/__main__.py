"""`python -m blueque.demo`: the demo, see main.py."""

import signal
import sys

if __name__ == "__main__":
    # leave without a traceback while there is nothing to clean up
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from blueque.demo.main import main  # here: after Ctrl-C is safe

    sys.exit(main())
