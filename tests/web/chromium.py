"""Where a Chromium is, for pictures and tests of the page."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Return the path of $BLUEQUE_CHROMIUM, or of a Chromium that is installed; None: there is none."""
    chosen = os.environ.get("BLUEQUE_CHROMIUM")
    return chosen or next((path for name in NAMES if (path := shutil.which(name))), None)
