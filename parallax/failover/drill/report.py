"""Drills as Markdown and as one HTML page with a timeline; no script, nothing loaded from elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from parallax.failover.drill.figures import Leg, LegFigures, Timeline
from parallax.failover.drill.history import DrillEnding, DrillRecord

_HEADINGS = (
    "began (UTC)",
    "way",
    "verdict",
    "RTO",
    "RPO",
    "lost",
    "delivered again",
    "records",
    "proof",
    "why",
)
_LEG_HEADINGS = ("move", "RTO", "silence", "RPO", "age of the oldest")
_WIDTH, _LANE, _LEFT, _TOP = 1_000, 70, 110, 42
_VERDICTS = frozenset(item.value for item in DrillEnding)
_COLOURS = ("#0b6e99", "#b35900", "#4d7c0f", "#7c3aed")


def markdown(records: Sequence[DrillRecord]) -> str:
    """The report, the newest drill first."""
    lines = ["# Failover drills", ""]
    if not records:
        return "\n".join([*lines, "No drill has been run yet.", ""])
    lines += [f"| {' | '.join(_HEADINGS)} |", f"|{'---|' * len(_HEADINGS)}"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in _row(record))} |" for record in records]
    newest = records[0]
    lines += ["", f"## The newest: {newest.ending.value}", ""]
    lines += [f"{text}\n" for text in _sentences(newest)]
    if newest.figures is not None and newest.figures.legs:
        lines += [f"| {' | '.join(_LEG_HEADINGS)} |", f"|{'---|' * len(_LEG_HEADINGS)}"]
        lines += [f"| {' | '.join(_leg_row(leg))} |" for leg in newest.figures.legs]
        lines.append("")
    return "\n".join([*lines, _EXPLAINED, ""])


_EXPLAINED = """\
RTO: from the command to the first record delivered in the new region; silence: to it from the last record delivered
before. RPO: records that a regional cluster had acknowledged when the move was asked for, and that had not been seen
in the aggregate cluster that it led to: what a disaster at that moment would have held back."""


def html(records: Sequence[DrillRecord]) -> str:
    """The same as a page, with the newest drill's timeline."""
    body = ["<h1>Failover drills</h1>"]
    if records:
        newest = records[0]
        body.append(f'<h2>The newest: <span class="{newest.ending.value}">{newest.ending.value}</span></h2>')
        body += [f"<p>{escape(text)}</p>" for text in _sentences(newest)]
        if newest.timeline is not None:
            legs = () if newest.figures is None else newest.figures.legs
            body.append(picture([(item.leg, item.rto_ms) for item in legs], newest.timeline))
            body.append(f"<p>{escape(told(newest.timeline))}</p>")
        if newest.figures is not None and newest.figures.legs:
            body.append(_table(_LEG_HEADINGS, map(_leg_row, newest.figures.legs)))
        body.append("<h2>All</h2>")
        body.append(_table(_HEADINGS, map(_row, records)))
        body.append(f"<p>{escape(_EXPLAINED)}</p>")
    else:
        body.append("<p>No drill has been run yet.</p>")
    return _PAGE.format(body="\n".join(body))


def picture(legs: Sequence[tuple[Leg, float | None]], line: Timeline) -> str:
    """The timeline as SVG: records acknowledged, and delivered in each region, with the moves in the background.

    Args:
        legs: the moves, and after how many milliseconds the first new record came; None: none did.
        line: the records.
    """
    lanes = [("acknowledged", line.acknowledged, "#6b7280")]
    for place, (region, counts) in enumerate(line.delivered.items()):
        lanes.append((f"delivered in {region}", counts, _COLOURS[place % len(_COLOURS)]))
    total_ms = line.slot_ms * max(1, len(line.acknowledged))
    height = _TOP + _LANE * len(lanes) + 40
    bottom = _TOP + _LANE * len(lanes)

    def x(at_ms: float) -> float:
        return _LEFT + at_ms / total_ms * (_WIDTH - _LEFT - 10)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="timeline of the drill">']
    for place, (leg, rto_ms) in enumerate(legs):
        start, end = x(leg.asked_ms), x(leg.ended_ms)
        parts.append(
            f'<rect x="{start:.1f}" y="{_TOP}" width="{max(1.0, end - start):.1f}" height="{bottom - _TOP}" '
            f'fill="#fde68a"/><text x="{start:.1f}" y="{_TOP - 24 + 16 * place}">{escape(leg.origin)} to '
            f"{escape(leg.to)}, RTO {_ms(rto_ms)}</text>"
        )
    width = max(0.5, x(line.slot_ms) - x(0) - 0.6)
    for place, (name, counts, colour) in enumerate(lanes):
        base = _TOP + _LANE * (place + 1)
        highest = max([*counts, 1])
        parts.append(f'<text x="4" y="{base - 22}">{escape(name)}</text>')
        parts.append(f'<text class="note" x="4" y="{base - 6}">at most {max(counts, default=0)}</text>')
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{base}" y2="{base}" stroke="#9ca3af"/>')
        parts += [
            f'<rect x="{x(slot * line.slot_ms):.1f}" y="{base - tall:.1f}" width="{width:.1f}" '
            f'height="{tall:.1f}" fill="{colour}"/>'
            for slot, count in enumerate(counts)
            if (tall := count / highest * (_LANE - 14))
        ]
    for at_ms, text in line.events:
        place_x = f"{x(at_ms):.1f}"
        parts.append(
            f'<line x1="{place_x}" x2="{place_x}" y1="{_TOP}" y2="{bottom}" stroke="#111827" '
            f'stroke-dasharray="2 3"><title>{at_ms / 1_000:.2f} s: {escape(text)}</title></line>'
        )
    for tenth in range(0, 11, 2):
        at_ms = total_ms * tenth / 10
        anchor = "middle" if at_ms < total_ms else "end"
        parts.append(
            f'<text x="{x(at_ms):.1f}" y="{bottom + 18}" text-anchor="{anchor}">{at_ms / 1_000:.1f} s</text>'
        )
    return "".join([*parts, "</svg>"])


def _row(record: DrillRecord) -> list[str]:
    found = record.figures
    legs = () if found is None else found.legs
    return [
        datetime.fromtimestamp(record.started_at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        f"{record.origin} to {record.to} and back",
        record.ending.value,
        " / ".join(_ms(item.rto_ms) for item in legs) or "-",
        " / ".join(str(item.rpo_records) for item in legs) or "-",
        "-" if found is None or found.lost is None else str(found.lost),
        "-" if found is None else str(found.redelivered),
        "-" if found is None else str(found.acknowledged),
        record.proof or "-",
        record.problem or "-",
    ]


def _leg_row(item: LegFigures) -> list[str]:
    return [
        f"{item.leg.origin} to {item.leg.to}",
        _ms(item.rto_ms),
        _ms(item.silence_ms),
        f"{item.rpo_records} record(s)",
        _ms(item.rpo_ms),
    ]


def _sentences(record: DrillRecord) -> list[str]:
    took = f"It took {_ms(record.took_ms)}. " if record.took_ms else ""
    found = [f"{took}Group {record.group}, topic {record.topic}."]
    if record.ending is DrillEnding.RUNNING:
        found.append("It has not ended.")
    if record.problem:
        found.append(f"Why: {record.problem}.")
    if record.left:
        found.append(f"Left: {record.left}.")
    return found


def told(line: Timeline) -> str:
    """How to read the picture, and what the consumer told."""
    events = dict.fromkeys(f"{at_ms / 1_000:.2f} s {text}" for at_ms, text in line.events)
    return (
        f"Bars: records in {_ms(line.slot_ms)}. Yellow: a move is under way. Dashed: the consumer told: "
        f"{', '.join(events) or 'nothing'}."
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"


def _table(headings: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    verdict = f' class="{text}"' if text in _VERDICTS else ""
    return f"<td{verdict}>{escape(text)}</td>"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Failover drills</title>
<link rel="icon" href="data:,">
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 66rem; padding: 0 1rem; color: #111827; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ text-align: left; padding: .3rem .7rem; border-bottom: 1px solid #d1d5db; }}
svg {{ width: 100%; height: auto; }}
svg text {{ font: 12px system-ui, sans-serif; fill: #111827; }}
svg .note {{ fill: #6b7280; }}
.passed {{ color: #166534; }}
.failed, .interrupted {{ color: #b91c1c; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
