"""Images small enough to be described: decoded, bounded, encoded again. Decoration is left out.

An image is decoration when a side is under 32 pixels, when one side is 20 times the other, or when it has one colour.
"""

from __future__ import annotations

from hashlib import sha256
from io import BytesIO
from typing import IO

from PIL import Image, ImageOps, TiffImagePlugin, UnidentifiedImageError, WebPImagePlugin, WmfImagePlugin

from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.domain.document import PageImage

MAX_SIDE = 2000
# Imported with this module, not at the first image: processes are forked from one that has imported it.
Image.preinit()
_PLUGINS = (TiffImagePlugin, WebPImagePlugin, WmfImagePlugin)

MEDIA_TYPES = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "WEBP": "image/webp",
    "TIFF": "image/tiff",
    "GIF": "image/gif",
    "BMP": "image/bmp",
}
# EMF and WMF tell their size, by which an icon is decoration, and no more.
_KNOWN = (*MEDIA_TYPES, "WMF")

_MIN_SIDE = 32
_MAX_RATIO = 20
_JPEG_QUALITY = 85
_LOSSLESS_COLOURS = 256
_WHITE = (255, 255, 255)

# Image size is checked before any pixel is decoded, by ``open_image``.
Image.MAX_IMAGE_PIXELS = None


def open_image(file: IO[bytes], limits: ExtractionLimits) -> Image.Image:
    """Open an image without decoding it. Raises ResourceLimitError for too many pixels, OSError for no image."""
    image = Image.open(file, formats=_KNOWN)
    limits.require("pixels", image.width * image.height)
    return image


def page_image(data: bytes, limits: ExtractionLimits) -> PageImage | None:
    """The bounded image of an encoded one, an undecodable one for what is none, None for decoration and for nothing."""
    if not data:
        return None
    try:
        with open_image(BytesIO(data), limits) as image:
            return bounded(image)
    except UnidentifiedImageError:
        return PageImage.undecodable(data, "it is of no format that can be read")
    except (OSError, SyntaxError, ValueError) as error:
        return PageImage.undecodable(data, f"it cannot be decoded ({error})"[:200])


def is_small(width: float, height: float) -> bool:
    """Whether something of that size is decoration, whatever it shows."""
    return min(width, height) < _MIN_SIDE or max(width, height) > _MAX_RATIO * min(width, height)


def bounded(image: Image.Image) -> PageImage | None:
    """The image at most 2000 pixels a side, upright, on white: PNG where it has few colours, else JPEG."""
    if is_small(image.width, image.height):
        return None
    image.draft("RGB", (MAX_SIDE, MAX_SIDE))  # a JPEG is decoded at a fraction of its size
    image = in_eight_bits(ImageOps.exif_transpose(image))
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    colours = image.getcolors(_LOSSLESS_COLOURS)
    if colours is not None and len(colours) == 1:
        return None
    file = BytesIO()
    if colours is not None:
        image.save(file, "PNG")
    else:
        image.save(file, "JPEG", quality=_JPEG_QUALITY)
    data = file.getvalue()
    media_type = MEDIA_TYPES["PNG" if colours is not None else "JPEG"]
    return PageImage(sha256(data).hexdigest(), media_type, data, image.width, image.height)


def in_eight_bits(image: Image.Image) -> Image.Image:
    """The image as grey or RGB: other depths are scaled, transparency shows white."""
    if image.mode.startswith(("I", "F")):
        low, high = image.getextrema()
        if not (isinstance(low, int | float) and isinstance(high, int | float)):
            return image.convert("L")
        scale = 255 / ((high - low) or 1)
        return image.convert("F").point(lambda value: (value - low) * scale).convert("L")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        canvas = Image.new("RGBA", image.size, (*_WHITE, 255))
        return Image.alpha_composite(canvas, image).convert("RGB")
    return image if image.mode in ("L", "RGB") else image.convert("L" if image.mode == "1" else "RGB")
