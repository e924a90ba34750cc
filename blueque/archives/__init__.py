"""Archives: finished tasks as Parquet files by queue and day, removed from Redis.

May import: report/ and what is below it. Begin with layout.py (where files are, and which count),
then archiver.py (`archive`: batch by batch), claims.py (who does it), batch_steps.py (written,
published, deleted), protocol/archiving.py (the part in Redis); picking.py and window.py (which
tasks), parquet_files.py (the files), stores.py (pyarrow.fs) and reading.py (every row once).
"""

from blueque.archives.archiver import Archived, ArchiveProgress, Engine, Work, archive
from blueque.archives.reading import files, read

__all__ = ["ArchiveProgress", "Archived", "Engine", "Work", "archive", "files", "read"]
