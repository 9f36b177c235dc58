"""How a picture looks: light, and dark where the reader's screen is. Colours that the colour-blind can tell apart."""

from __future__ import annotations

_LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b2430",
    "dim": "#5a6675",
    "bed": "#e6eaf0",
    "lane": "#f6f8fa",
    "edge": "#c4ccd6",
    "good": "#0a6b3d",
    "warn": "#8a5300",
    "bad": "#a32a00",
    "resume": "#b3005e",
}
_DARK = {
    "paper": "#11161d",
    "ink": "#e6ebf2",
    "dim": "#a3b0c0",
    "bed": "#2a323d",
    "lane": "#181f28",
    "edge": "#4a5666",
    "good": "#54d08f",
    "warn": "#f2b75c",
    "bad": "#ff9a70",
    "resume": "#ff7ab8",
}
_SOURCES_LIGHT = (
    "#0072b2",
    "#e08a00",
    "#009e73",
    "#c0569b",
    "#3f9bd1",
    "#c44a00",
    "#8a7d00",
    "#6b7280",
)
_SOURCES_DARK = (
    "#4ba9e3",
    "#f2ac3c",
    "#35c79c",
    "#e38fc3",
    "#86c9f2",
    "#f2855a",
    "#d6c93f",
    "#a5adba",
)


def _colours(names: dict[str, str], sources: tuple[str, ...]) -> str:
    rules = [
        f".picture .paper{{fill:{names['paper']}}}",
        f".picture text{{fill:{names['ink']}}}",
        f".picture .note,.picture .tick,.picture .sub,.picture .minor{{fill:{names['dim']}}}",
        f".picture .bed{{fill:{names['bed']}}}.picture .lane{{fill:{names['lane']}}}",
        f".picture .axis,.picture .known,.picture .other{{stroke:{names['dim']}}}",
        f".picture .end,.picture .loss{{stroke:{names['ink']}}}",
        f".picture .ink{{stroke:{names['ink']}}}.picture .dot{{fill:{names['ink']}}}",
        f".picture .good{{fill:{names['good']}}}.picture .bad{{fill:{names['bad']}}}",
        f".picture .mark,.picture .minor{{stroke:{names['paper']};stroke-width:4px;paint-order:stroke}}",
        f".picture .resume{{stroke:{names['resume']}}}.picture .mark{{fill:{names['resume']}}}",
        f".picture .legend{{fill:{names['dim']};stroke:{names['edge']}}}",
        f".picture .legend.coming{{stroke:{names['dim']}}}",
        *(f".picture .s{number}{{fill:{colour};stroke:{colour}}}" for number, colour in enumerate(sources)),
    ]
    return "".join(rules)


STYLE = (
    ".picture text{font:12px system-ui,'DejaVu Sans',sans-serif;stroke:none;font-variant-numeric:tabular-nums}"
    ".picture .head{font-size:19px;font-weight:600}.picture .sub{font-size:13px}.picture .say{font-size:13px}"
    ".picture .outcome{font-size:15px;font-weight:700}.picture .name{font-size:13px;font-weight:600}"
    ".picture .note,.picture .tick,.picture .minor{font-size:11.5px}.picture .mark{font-size:13px;font-weight:700}"
    ".picture .was{fill-opacity:.3;stroke-opacity:.3}.picture .unknown{fill-opacity:.12;stroke-opacity:.12}"
    ".picture .pending{fill-opacity:.2;stroke-opacity:.2}.picture path.strip{fill:none}.picture path.band{stroke:none}"
    ".picture .band.was{fill-opacity:.2}.picture .band.new{fill-opacity:.45}"
    ".picture .band.unknown{fill-opacity:.12}.picture .band.pending{fill-opacity:.14}"
    ".picture .coming{fill-opacity:.08;stroke-width:1.4;stroke-dasharray:4 3}"
    ".picture .ink{stroke-width:1.1;stroke-opacity:.55;fill:none}.picture .dot{fill-opacity:.55}"
    ".picture .axis{fill:none;stroke-width:1}.picture .end{stroke-width:2.4;fill:none}"
    ".picture .loss{stroke-width:2;fill:none}.picture .point{stroke:none}"
    ".picture .resume{stroke-width:2;fill:none}.picture .known{stroke-width:1.4;stroke-dasharray:6 4;fill:none}"
    ".picture .other{stroke-width:1.4;stroke-dasharray:2 3;fill:none}.picture .legend{stroke-width:1}"
    ".picture g:hover>.band{fill-opacity:.7}"
    + _colours(_LIGHT, _SOURCES_LIGHT)
    + f"@media(prefers-color-scheme:dark){{{_colours(_DARK, _SOURCES_DARK)}}}"
)
"""The style sheet of a picture that is a file; all of it below the class ``picture``."""


def _tones(names: dict[str, str], line: str) -> str:
    tones = {"runs": names["good"], "slow": names["warn"], "stands": names["bad"], "dark": names["dim"]}
    rules = [
        f".picture .cluster{{fill:{names['lane']};stroke:{names['edge']}}}",
        f".picture .went{{stroke:{line}}}.picture .went-area{{fill:{line}}}",
        *(
            f".picture .way.{tone}{{stroke:{colour}}}.picture .tip.{tone},.picture .word.{tone}{{fill:{colour}}}"
            for tone, colour in tones.items()
        ),
    ]
    return "".join(rules)


PAGE_STYLE = (
    STYLE + ".picture .way{fill:none}.picture .way.slow{stroke-dasharray:9 5}"
    ".picture .way.stands{stroke-dasharray:2 6}.picture .way.dark{stroke-dasharray:1 7}"
    ".picture .tip{stroke:none}.picture .word{font-size:12.5px;font-weight:700}"
    ".picture .went{fill:none;stroke-width:1.6;stroke-linejoin:round}.picture .went-area{fill-opacity:.15}"
    + _tones(_LIGHT, _SOURCES_LIGHT[0])
    + f"@media(prefers-color-scheme:dark){{{_tones(_DARK, _SOURCES_DARK[0])}}}"
)
"""That of a page, which also shows pictures that are no files."""
