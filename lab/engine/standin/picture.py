"""What colour is the picture? Decodes a PNG with zlib alone, to show that the image arrived."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections import Counter

NAMED = {
    "red": (255, 0, 0), "green": (0, 160, 0), "blue": (0, 0, 255), "yellow": (255, 230, 0),
    "white": (255, 255, 255), "black": (0, 0, 0), "grey": (128, 128, 128),
    "orange": (255, 140, 0), "purple": (140, 0, 160),
}  # fmt: skip
_CHANNELS = {0: 1, 2: 3, 6: 4}


def colour(url: str) -> str:
    """The name of the commonest colour of a `data:` URL's PNG. Raises ValueError if it is none."""
    head, _, body = url.partition(",")
    if not head.startswith("data:image/") or not head.endswith(";base64"):
        raise ValueError("the picture is no data URL in base64")
    try:
        pixels = _pixels(base64.b64decode(body, validate=True))
    except (binascii.Error, struct.error, zlib.error, IndexError) as error:
        raise ValueError(f"the picture is no PNG: {error}") from error
    red, green, blue = Counter(pixels).most_common(1)[0][0]

    def distance(name: str) -> int:
        r, g, b = NAMED[name]
        return (r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2

    return min(NAMED, key=distance)


def _pixels(png: bytes) -> list[tuple[int, int, int]]:
    if png[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("the picture is no PNG")
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    if depth != 8 or kind not in _CHANNELS:
        raise ValueError("only 8-bit grey, RGB and RGBA pictures are read")
    at, packed = 8, b""
    while at < len(png):
        size, name = struct.unpack(">I4s", png[at : at + 8])
        packed += png[at + 8 : at + 8 + size] if name == b"IDAT" else b""
        at += size + 12
    raw, step = zlib.decompress(packed), _CHANNELS[kind]
    rows, previous = [], bytes(width * step)
    for row in range(height):
        start = row * (width * step + 1)
        previous = _unfilter(raw[start], raw[start + 1 : start + 1 + width * step], previous, step)
        rows.append(previous)
    pixels = [row[i : i + step] for row in rows for i in range(0, width * step, step)]
    return [(p[0], p[0], p[0]) if step == 1 else (p[0], p[1], p[2]) for p in pixels]


def _unfilter(kind: int, line: bytes, above: bytes, step: int) -> bytes:
    out = bytearray(line)
    for i in range(len(out)):
        left = out[i - step] if i >= step else 0
        up, corner = above[i], above[i - step] if i >= step else 0
        if kind == 4:
            guess = left + up - corner
            add = min((left, up, corner), key=lambda value: abs(guess - value))
        else:
            add = (0, left, up, (left + up) // 2)[kind]
        out[i] = (out[i] + add) & 0xFF
    return bytes(out)
