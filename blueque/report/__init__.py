"""Charts and timelines as SVG, and the stylesheet and templates that all pages share. Also a report
about finished tasks: one HTML file without scripts or other files. Requires jinja2.

May import: node/ and what is below it. Begin with page.py.

`summary` makes the content of a report, and `page` writes it with the templates. `charts` and
`timeline` draw; `scales` is for axes, `lanes` for runs, `svg` for elements. Nothing here reads Redis.
"""
