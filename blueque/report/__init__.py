"""Charts and timelines as SVG, the stylesheet and the templates that all pages share; and a report
about finished tasks as one HTML file, without scripts and other files. Requires jinja2.

May import: node/ and what is below it. Begin with page.py.

`summary` is the content of a report, `page` writes it with the templates; `charts` and `timeline`
draw, with `scales` for axes, `lanes` for runs and `svg` for elements. Nothing here reads Redis.
"""
