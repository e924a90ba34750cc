"""Merge the small Parquet files of each day of an archive into one: `python merge_archive.py DIRECTORY`."""

import os
import sys
import uuid
from itertools import groupby

import pyarrow
import pyarrow.dataset
import pyarrow.parquet

from blueque import Client, archives


def main(directory):
    inspector = Client().get_inspector()
    opened = [batch["queue"] for batch in inspector.archiving(inspector.queues()) if batch]
    assert not opened, f"finish these first, with blueque archive: {opened}"
    for folder, files in groupby(archives.files(directory), os.path.dirname):
        files = list(files)
        if len(files) > 8:
            schemas = [pyarrow.parquet.read_schema(file) for file in files]
            schema = pyarrow.unify_schemas(schemas, promote_options="permissive")
            rows = pyarrow.dataset.dataset(files, schema=schema).to_table()
            assert rows.num_rows == sum(
                pyarrow.parquet.read_metadata(file).num_rows for file in files
            )
            pyarrow.parquet.write_table(rows, f"{folder}/_merged", compression="zstd")
            sync(f"{folder}/_merged")
            os.rename(f"{folder}/_merged", f"{folder}/merged-{uuid.uuid4().hex}.parquet")
            sync(folder)
            for file in files:
                os.remove(file)


def sync(path):
    place = os.open(path, os.O_RDONLY)
    os.fsync(place)
    os.close(place)


if __name__ == "__main__":
    main(sys.argv[1])
