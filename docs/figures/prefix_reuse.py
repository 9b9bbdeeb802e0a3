"""Draws ``prefix_reuse.svg``: ``python docs/figures/prefix_reuse.py``."""

from __future__ import annotations

from pathlib import Path

CHUNK = 64
PROMPTS = {"a prompt of 200 tokens": (200, 0), "the same again": (200, 192), "a longer one": (330, 192)}
LEFT, TOP, SCALE, BAR, STEP = 190, 40, 1.4, 26, 62
COLOURS = {"copied": "#9ecae1", "computed": "#fdae6b", "slot": "#08519c"}


def kept_depth(tokens: int, start: int) -> int:
    """Where ``extra_buffer`` keeps a state: the last whole chunk, counted from where the prefill starts."""
    return start + (tokens - start) // CHUNK * CHUNK


def draw() -> str:
    shapes = []
    for row, (name, (tokens, hit)) in enumerate(PROMPTS.items()):
        y = TOP + row * STEP
        shapes.append(f'<text x="8" y="{y + 17}">{name}</text>')
        for kind, begin, end in (("copied", 0, hit), ("computed", hit, tokens)):
            x, width = LEFT + begin * SCALE, (end - begin) * SCALE
            shapes.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLOURS[kind]}"/>')
        for boundary in range(hit + CHUNK, tokens + 1, CHUNK):
            x = LEFT + boundary * SCALE
            shapes.append(f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + BAR}" stroke="#fff"/>')
        if (depth := kept_depth(tokens, hit)) > hit:
            x = LEFT + depth * SCALE
            shapes.append(f'<circle cx="{x:.1f}" cy="{y + BAR}" r="5" fill="{COLOURS["slot"]}"/>')
            shapes.append(f'<text x="{x - 12:.1f}" y="{y + BAR + 20}">{depth}</text>')
    legend = (
        ("copied", "from a slot of the radix tree"),
        ("computed", "computed, chunks of 64"),
        ("slot", "state kept"),
    )
    for i, (kind, text) in enumerate(legend):
        x = LEFT + i * 190
        shapes.append(f'<rect x="{x}" y="8" width="12" height="12" fill="{COLOURS[kind]}"/>')
        shapes.append(f'<text x="{x + 17}" y="19">{text}</text>')
    body = "\n".join(shapes)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 235" font-family="sans-serif" font-size="13">\n'
        f"{body}\n</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw())
