"""The version, alone in a module so that every layer may read it."""

__version__ = "2.0.0.dev0"
