"""The plot: CPU time per request as bars, one panel a scenario. Plain SVG, readable on light and dark pages."""
from html import escape

BAR, GAP, LABEL, WIDTH, HEAD, NUMBER = 16, 5, 170, 420, 44, 120
COLOURS = {"ours": "#d9480f", "floor": "#868e96", "raw": "#74a9cf", "peer": "#2b6cb0"}
MEANINGS = {"ours": "shardlet", "floor": "floor: no HTTP work", "raw": "runtime with a bare loop", "peer": "server or framework"}
STYLE = ("text{font:12px system-ui,sans-serif;fill:#212529}.t{font-weight:600}.n{fill:#495057}"
         "@media(prefers-color-scheme:dark){text{fill:#e9ecef}.n{fill:#adb5bd}}")


def bar(y, name, group, fold, scale, base):
    length = fold["cpu_us"] * scale
    low, high = LABEL + fold["cpu_us_min"] * scale, LABEL + fold["cpu_us_max"] * scale
    middle = y + BAR / 2
    return (f'<text x="{LABEL - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{COLOURS.get(group, COLOURS["peer"])}"/>'
            f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="#212529" stroke-width="2" opacity=".6"/>'
            f'<text class="n" x="{max(LABEL + length, high) + 6:.1f}" y="{y + 12}">{fold["cpu_us"]:.2f} µs · '
            f'{fold["cpu_us"] / base:.2f} ×</text>')


def panel(y, title, rows, base):
    """Its parts, and the y below it."""
    rows = sorted(rows, key=lambda r: r[2]["cpu_us"])
    scale = WIDTH / max(f["cpu_us_max"] for _, _, f in rows)
    out = [f'<text class="t" x="8" y="{y + 14}">{escape(title)}: CPU time per request</text>']
    y += 24
    for name, group, fold in rows:
        out.append(bar(y, name, group, fold, scale, base))
        y += BAR + GAP
    return out, y + 16


def legend(y):
    out, x = [], LABEL
    for group, meaning in MEANINGS.items():
        out.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{COLOURS[group]}"/>'
                   f'<text x="{x + 17}" y="{y + 11}">{meaning}</text>')
        x += 30 + 7 * len(meaning)
    return out


def base_of(rows, wanted):
    """The CPU time that ratios are taken to: the wanted server's, else the cheapest row's."""
    named = [f["cpu_us"] for name, _, f in rows if name == wanted]
    return named[0] if named else min(f["cpu_us"] for _, _, f in rows)


def grid(columns, wanted, note):
    """The whole picture: columns of panels (title, rows); ratios are to the server named `wanted`."""
    out, bottom = legend(10), HEAD
    across = LABEL + WIDTH + NUMBER + 20
    for i, panels in enumerate(columns):
        y = HEAD
        out.append(f'<g transform="translate({i * across},0)">')
        for title, rows in panels:
            parts, y = panel(y, title, rows, base_of(rows, wanted))
            out += parts
        out.append("</g>")
        bottom = max(bottom, y)
    out.append(f'<text class="n" x="8" y="{bottom + 6}">{escape(note)}</text>')
    width, height = across * len(columns), bottom + 20
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
            f'<title>CPU time per request of HTTP servers</title><style>{STYLE}</style>' + "\n".join(out) + "</svg>\n")


def rows_of(res, sc):
    """(server, group, medians) of one scenario."""
    return [(name, res["servers"][name]["group"], fold) for name, fold in sc.get("folded", {}).items()]


def svg(res, wanted):
    """The scenarios of one run, one below the other."""
    panels = [(sc["title"], rows_of(res, sc)) for sc in res["scenarios"].values() if sc.get("folded")]
    note = f'{res["date"]}, commit {res["commit"]}, kernel {res["kernel"]}, {res["cpus"]} CPUs ({res["cpu"]}), generator {res["gen"]}'
    return grid([panels], wanted, note)
