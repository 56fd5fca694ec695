"""Texts as a person sees them on a terminal and on the page: one table for both."""

from __future__ import annotations

from typing import Final

SHOWN: Final = {
    # as it is
    "": "",
    "plain text": "plain text",
    "a\nb\tc": "a\nb\tc",
    "Grüße, 日本語, мир": "Grüße, 日本語, мир",
    "12 kΩ, 3 µs": "12 kΩ, 3 µs",
    "מוצר 7": "מוצר 7",
    # line ends, and spaces of texts
    "a\r\nb": "a\nb",
    "12\xa0€\u202f!": "12 € !",
    # what steers a terminal
    "a\rb": r"a\rb",
    "\x1b[2J": r"\x1b[2J",
    "\x9b2J": r"\x9b2J",
    "\x00\x07\x08\x7f": r"\x00\x07\x08\x7f",
    "\x85": r"\x85",
    "a\x0bb\x0cc": r"a\x0bb\x0cc",
    # what turns a line around
    "\u202eevil\u202c": r"\u202eevil\u202c",
    "\u2066a\u2069": r"\u2066a\u2069",
    "\u200ea\u200f": r"\u200ea\u200f",
    "5\u061c-3": r"5\u061c-3",
    # what cannot be seen
    "a\u200bb\ufeff": r"a\u200bb\ufeff",
    "pass\xadword": r"pass\xadword",
    "a\u2060b\u2064": r"a\u2060b\u2064",
    "\u2028\u2029": r"\u2028\u2029",
    "a\u034fb": r"a\u034fb",
    "\u115f\u1160\u3164\uffa0": r"\u115f\u1160\u3164\uffa0",
    "a\u2800b": r"a\u2800b",
    "a\u2003b\u200ac": r"a\u2003b\u200ac",
    "\u180e\u17b4": r"\u180e\u17b4",
    "\ue000\U000f0000": r"\ue000\U000f0000",
    "a\ud800b": r"a\ud800b",
    # tags, and variation selectors
    "yes\U000e0041\U000e007f": r"yes\U000e0041\U000e007f",
    "x\ufe00y\ufe0f": r"x\ufe00y\ufe0f",
    "☺\U000e0100\U000e01ef": r"☺\U000e0100\U000e01ef",
    # marks that would be drawn over other lines
    "x" + "\u0301" * 6: "x" + "\u0301" * 4 + r"\u0301\u0301",
    "\u0301\u0e49\u20dd\u0336\u0301": "\u0301\u0e49\u20dd\u0336" + r"\u0301",
    # signs that are a part of how others look
    "❤\ufe0f ☎\ufe0e": "❤\ufe0f ☎\ufe0e",
    "❤\ufe0f\ufe0f": "❤\ufe0f\\ufe0f",
    "👨\u200d👩\u200d👧": "👨\u200d👩\u200d👧",
    "👩🏽\u200d🚀": "👩🏽\u200d🚀",
    "می\u200cخواهم": "می\u200cخواهم",
    "क्\u200dष": "क्\u200dष",
    "a\u200db\u200cc": r"a\u200db\u200cc",
    "👨\u200d\u200d👩": r"👨\u200d\u200d👩",
    # names that pass for others
    "eve@раypal.com": "eve@xn--ypal-43d9g.com",
    "see раypal.com, or www.раypal.de": "see xn--ypal-43d9g.com, or www.xn--ypal-43d9g.de",
    "https://раypal.com/login": "https://xn--ypal-43d9g.com/login",
    "https://a:b@раypal.com": "https://a:b@xn--ypal-43d9g.com",
    "аррӏе.com": "xn--80ak6aa92e.com",
    "domain:еxample.com": "domain:xn--xample-2of.com",
    "paypaⅼ.com": "xn--paypa-ym5b.com",
    "ɡoogle.com": "xn--oogle-qmc.com",
    "gооgle。com": "xn--ggle-55da.com",
    "*@раypal": "*@xn--ypal-43d9g",
    "Ada <аda@example.com>": r"Ada <\u0430da@example.com>",
    "aمثال.com": "xn--a-zmcl5hc.com",
    "pay\u200bpal.com": r"pay\u200bpal.com",
    "gооgle.co.uk, аpple.dev": "xn--ggle-55da.co.uk, xn--pple-43d.dev",
    "ⓖoogle.de": "xn--oogle-wt9b.de",
    # names that do not
    "ada@example.com": "ada@example.com",
    "info@münchen.de": "info@münchen.de",
    "яндекс.рф": "яндекс.рф",
    "ада@почта.рф": "ада@почта.рф",
    "日本語ドメイン.com": "日本語ドメイン.com",
    "مثال.com": "مثال.com",
    "отчёт.pdf": "отчёт.pdf",
    "Отчёт_v2.docx": "Отчёт_v2.docx",
    "отчёт-Q3.xlsx, Ω.x": "отчёт-Q3.xlsx, Ω.x",
    "данные.append(x)": "данные.append(x)",
}
