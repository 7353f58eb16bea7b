"""Texts that try to control a terminal, and what of them reached it."""

import unicodedata

ESC, CSI, BEL, ST = "\x1b", "\x1b[", "\x07", "\x1b\\"
INJECTIONS = {
    "clear": f"{CSI}2J",
    "home": f"{CSI}H",
    "up and overwrite": f"{CSI}1A{CSI}2Kapproved",
    "colour": f"{CSI}31m",
    "hidden text": f"{CSI}8msecret{CSI}28m",
    "own reset": f"{CSI}0m",
    "alternate screen": f"{CSI}?1049h",
    "mouse": f"{CSI}?1000h",
    "bracketed paste": f"{CSI}?2004h",
    "report": f"{CSI}6n",
    "device attributes": f"{CSI}c",
    "scroll region": f"{CSI}1;2r",
    "title": f"{ESC}]0;owned{BEL}",
    "title by st": f"{ESC}]2;owned{ST}",
    "clipboard": f"{ESC}]52;c;cm0gLXJm{BEL}",
    "hyperlink": f"{ESC}]8;;http://evil.example{ST}here{ESC}]8;;{ST}",
    "palette": f"{ESC}]4;1;#000000{BEL}",
    "dcs": f"{ESC}P1$r0m{ST}",
    "apc": f"{ESC}_Gf=100;AAAA{ST}",
    "pm": f"{ESC}^x{ST}",
    "reset": f"{ESC}c",
    "charset": f"{ESC}(0",
    "c1 csi": "\x9b2J",
    "c1 osc": "\x9d0;owned\x9c",
    "c1 dcs": "\x90x\x9c",
    "c1 nel": "a\x85b",
    "backspace": "rm\b\bls",
    "delete": "a\x7fb",
    "carriage return": "denied\rallowed",
    "vertical tab": "a\x0bb",
    "form feed": "a\x0cb",
    "nul": "a\x01b",
    "shift out": "a\x0eb",
    "bell": BEL,
    "separator": "a\x1cb\x1fc",
    "right to left": "\u202egnp.exe",
    "isolate": "\u2066a\u2069\u2067b",
    "marks": "a\u200eb\u200fc\u061cd",
    "zero width": "ca\u200bsi\u2060no\ufeff",
    "soft hyphen": "ca\u00adsino",
    "tags": "a\U000e0072\U000e006d",
    "line separator": "a\u2028b\u2029c",
    "filler": "a\u3164b\u115fc",
    "annotation": "a\ufff9b\ufffb",
    "private": "a\ue0b0b",
    "invisible operator": "a\u2063b",
}
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
INVISIBLE = "\u3164\u115f\u1160\uffa0\u034f"


def got_through(text, prose="\n"):
    return [c for c in text if (unicodedata.category(c) in UNSEEN or c in INVISIBLE) and c not in prose]
