"""Settings from blueque.toml: found, read, checked.

May import: connection/ and what is below it. Begin with toml_file.py.
"""

from blueque.config.contents import Config, QueueConfig
from blueque.config.toml_file import load

__all__ = ["Config", "QueueConfig", "load"]
