"""PowerPoint presentations (PPTX): a page for each slide, with its notes and comments."""

from __future__ import annotations

from collections.abc import Iterator

from services.embeddings.adapters.extractors.archive import Archive, local
from services.embeddings.adapters.extractors.drawing import drawing_flow
from services.embeddings.adapters.extractors.flow import flow_page
from services.embeddings.adapters.extractors.format import Format, Sample, Source
from services.embeddings.domain.document import Page, PageImage

_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.presentationml.presentation"


def recognise(sample: Sample) -> str | None:
    """An Office archive with a ``ppt`` folder."""
    return _MEDIA_TYPE if any(name.lower().startswith("ppt/") for name in sample.members) else None


def read(source: Source) -> Iterator[Page]:
    """The slides in the order of the presentation, hidden ones too."""
    with Archive(source) as archive:
        main = archive.main_part()
        targets = archive.relationships(main)
        slides = [element for element in archive.xml(main).iter() if local(element) == "sldId"]
        for number, slide in enumerate(slides, start=1):
            # A slide has an id without a namespace too, which is not the reference.
            key = next((value for name, value in slide.attrib.items() if name.endswith("}id")), "")
            _, part = targets.get(key, ("", ""))
            yield flow_page(number, _slide(archive, part))


def _slide(archive: Archive, part: str) -> Iterator[str | PageImage]:
    yield from drawing_flow(archive, part)
    for kind, target in archive.relationships(part).values():
        if kind == "notesSlide":
            yield from drawing_flow(archive, target)
        elif kind == "comments":
            yield from (element.text or "" for element in archive.xml(target).iter() if local(element) in ("text", "t"))


FORMAT = Format(name="PowerPoint", media_types={_MEDIA_TYPE: (".pptx", ".pptm")}, recognise=recognise, read=read)
