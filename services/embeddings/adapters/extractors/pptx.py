"""PowerPoint presentations (PPTX): a page for each slide, with its notes and comments."""

from __future__ import annotations

from collections.abc import Iterator

from services.embeddings.adapters.extractors.archive import Archive, local
from services.embeddings.adapters.extractors.drawing import drawing_flow
from services.embeddings.adapters.extractors.flow import numbered_pages
from services.embeddings.adapters.extractors.format import Format, Sample, Source
from services.embeddings.domain.document import Page, PageImage

_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.presentationml.presentation"


def recognise(sample: Sample) -> str | None:
    """An Office archive with a ``ppt`` folder."""
    return _MEDIA_TYPE if any(name.lower().startswith("ppt/") for name in sample.members) else None


def read(source: Source) -> Iterator[Page]:
    """The slides in the order of the presentation, hidden ones too."""
    with Archive(source.path, source.limits) as archive:
        main = archive.main_part()
        targets = archive.relationships(main)
        slides = [element for element in archive.xml(main).iter() if local(element) == "sldId"]
        # A slide has an id without a namespace too, which is not the reference.
        keys = (next((value for name, value in one.attrib.items() if name.endswith("}id")), "") for one in slides)
        yield from numbered_pages(_slide(archive, targets.get(key, ("", ""))[1]) for key in keys)


def _slide(archive: Archive, part: str) -> Iterator[str | PageImage]:
    archive.required(part)
    yield from drawing_flow(archive, part)
    for kind, target in archive.relationships(part).values():
        if kind == "notesSlide":
            yield from drawing_flow(archive, target)
        elif kind == "comments":
            yield from (element.text or "" for element in archive.xml(target).iter() if local(element) in ("text", "t"))


FORMAT = Format(name="PowerPoint", media_types={_MEDIA_TYPE: (".pptx", ".pptm")}, recognise=recognise, read=read)
