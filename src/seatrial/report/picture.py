"""How the report looks as an SVG: colours, and a frame that refers to no font file and no host."""

from __future__ import annotations

# Filled by rich's export; the fonts are whatever monospaced one the viewer has, and every text carries its own length.
SVG_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
        font-variant-east-asian: full-width;
    }}
    .{unique_id}-title {{
        font-size: 16px;
        font-weight: bold;
        font-family: system-ui, sans-serif;
    }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""

# Red, green and blue of a dark theme: ground and text, then the terminal's eight colours in its order.
GROUND, TEXT = (16, 24, 36), (214, 222, 235)
COLOURS = [
    (40, 50, 66),
    (239, 105, 110),
    (98, 201, 137),
    (229, 192, 88),
    (106, 167, 240),
    (198, 146, 233),
    (92, 200, 214),
    (214, 222, 235),
]
