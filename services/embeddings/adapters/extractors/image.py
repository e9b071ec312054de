"""PNG, JPEG, WebP and TIFF: one page for each frame, whose image is to be described."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from PIL import Image, ImageSequence

from services.embeddings.adapters.extractors.format import Format, Sample, Source
from services.embeddings.adapters.extractors.pictures import bounded, open_image
from services.embeddings.domain.document import Page

_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"II*\0": "image/tiff",
    b"MM\0*": "image/tiff",
}


def recognise(sample: Sample) -> str | None:
    """The media type by magic number."""
    if sample.head[:4] == b"RIFF" and sample.head[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _MAGIC.items() if sample.head.startswith(magic)), None)


def read(source: Source) -> Iterator[Page]:
    """The pages of a TIFF, the first frame of anything else; the size of each is checked before it is decoded."""
    with source.path.open("rb") as file, open_image(file, source.limits) as image:
        frames: Iterable[Image.Image] = ImageSequence.Iterator(image) if image.format == "TIFF" else [image]
        for number, frame in enumerate(frames, start=1):
            source.limits.require("pixels", frame.width * frame.height)
            picture = bounded(frame)
            yield Page(number, "", (picture,) if picture else ())


FORMAT = Format(
    name="image",
    media_types={
        "image/png": (".png",),
        "image/jpeg": (".jpg", ".jpeg"),
        "image/webp": (".webp",),
        "image/tiff": (".tif", ".tiff"),
    },
    recognise=recognise,
    read=read,
)
