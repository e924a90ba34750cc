"""Write the scenes of a day, for night.py to find: `python make_scenes.py 2026-11-21 500`."""

import sys

from night import DATA
from pyspark.sql import functions as F

import blueque.spark as bs


def main(day: str, number: int) -> None:
    numbers = bs.session(app="scenes").range(number)
    name = F.format_string("scene-%05d", "id").alias("scene")
    scenes = numbers.select(name, (F.col("id") % 20 + 1).alias("frames"))
    scenes.write.mode("overwrite").parquet(f"{DATA}/scenes/day={day}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
