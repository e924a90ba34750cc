"""Archives: finished tasks as Parquet files by queue and day, out of Redis for good.

May import: report/ and what is below it. Begin with layout.py (what lies where), then run.py
(`archive`: batch by batch), claims.py (who does it), steps.py (written, published, deleted),
protocol/archiving.py (what of this is in Redis); picking.py and window.py (which tasks), parquet.py
(the files), durable.py (what is on the disk), compaction.py (fewer files) and reading.py (all rows,
each once).
"""

from blueque.archives.compaction import Compacted, compact
from blueque.archives.reading import read
from blueque.archives.run import Archived, Engine, Progress, Work, archive

__all__ = ["Archived", "Compacted", "Engine", "Progress", "Work", "archive", "compact", "read"]
