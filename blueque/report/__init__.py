"""A report about finished tasks: one HTML file with SVG charts, without scripts, other files or
libraries.

May import: node/ and what is below it. Begin with page.py.

`summary` is the content, `page` writes it; `charts` and `timeline` draw, with `scales` for axes and
`svg` for elements. Nothing here reads Redis or files.
"""
