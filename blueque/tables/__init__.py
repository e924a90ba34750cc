"""Tasks as Arrow tables: reading whole snapshots of a queue. Needs pyarrow.

May import: queries/ and what is below it. Begin with hash_reader.py.
"""
