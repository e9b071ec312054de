"""PNG, JPEG, WebP, GIF, BMP and TIFF: one page for each frame, whose image is to be described."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from PIL import ExifTags, Image, ImageOps

from services.embeddings.adapters.extractors.format import Format, Sample, Source, corrupt
from services.embeddings.adapters.extractors.limits import ExtractionLimits, whatever_breaks
from services.embeddings.adapters.extractors.pictures import bounded, in_eight_bits, open_image
from services.embeddings.domain.document import TENTHS, Page, PageFault, PageLayout
from services.embeddings.domain.errors import page_not_found

# The orientations of EXIF that exchange width and height.
_TURNED = {5, 6, 7, 8}

_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"II*\0": "image/tiff",
    b"MM\0*": "image/tiff",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def recognise(sample: Sample) -> str | None:
    """The media type by magic number."""
    if sample.head[:4] == b"RIFF" and sample.head[8:12] == b"WEBP":
        return "image/webp"
    if sample.head[:2] == b"BM" and sample.head[15:18] == bytes(3):  # a text may begin with those letters
        return "image/bmp"
    return next((media_type for magic, media_type in _MAGIC.items() if sample.head.startswith(magic)), None)


def read(source: Source) -> Iterator[Page]:
    """The pages of a TIFF, the first frame of anything else; the size of each is checked before it is decoded.

    A frame that cannot be decoded is an unreadable page, unless there is none that can.
    """
    with source.path.open("rb") as file, open_image(file, source.limits) as image:
        is_read = False
        for index in range(source.limits.pages + 1 if image.format == "TIFF" else 1):
            page = Page(index + 1, "", fault=PageFault.UNREADABLE)
            with whatever_breaks():
                try:
                    image.seek(index)
                except EOFError:
                    break
                page = _page(image, index + 1, source.limits)
                is_read = True
            yield page
        if not is_read:
            raise corrupt("the image is damaged: it cannot be decoded")


def _page(frame: Image.Image, number: int, limits: ExtractionLimits) -> Page:
    limits.require("pixels", frame.width * frame.height)
    width, height = _size(frame)
    layout = PageLayout(width * TENTHS, height * TENTHS, "px")
    picture = bounded(frame)
    if picture is None:
        return Page(number, "", layout=layout)
    return Page(number, "", (picture,), layout=replace(layout, images=(layout.whole,)))


def render(source: Source, number: int, size: int) -> Image.Image:
    """The frame of that number, upright, made smaller where its longer side has more pixels than ``size``."""
    with source.path.open("rb") as file, open_image(file, source.limits) as image:
        try:
            if number > 1 and image.format != "TIFF":
                raise page_not_found(number)
            image.seek(number - 1)
        except EOFError:
            raise page_not_found(number) from None
        source.limits.require("pixels", image.width * image.height)
        image.draft("RGB", (size, size))
        shown = in_eight_bits(ImageOps.exif_transpose(image))
        shown.thumbnail((size, size))
        return shown


def _size(frame: Image.Image) -> tuple[int, int]:
    """Width and height of the frame as it is shown, which a TIFF says by itself."""
    is_turned = frame.format != "TIFF" and frame.getexif().get(ExifTags.Base.Orientation, 1) in _TURNED
    return (frame.height, frame.width) if is_turned else (frame.width, frame.height)


FORMAT = Format(
    name="image",
    media_types={
        "image/png": (".png",),
        "image/jpeg": (".jpg", ".jpeg"),
        "image/webp": (".webp",),
        "image/tiff": (".tif", ".tiff"),
        "image/gif": (".gif",),
        "image/bmp": (".bmp",),
    },
    recognise=recognise,
    read=read,
    render=render,
)
