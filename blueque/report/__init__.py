"""A report about finished tasks as one HTML file with pictures in SVG: no scripts, no files beside
it, no library.

May import: node/ and what is below it. Begin with page.py.

`summary` is what it tells, `page` writes it; `charts` and `timeline` draw, with `scales` for axes
and `svg` for elements. Nothing here knows where the numbers come from.
"""
