"""Books (EPUB): a page for each document of the reading order, which is a chapter as a rule."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import dirname, join, normpath
from urllib.parse import unquote

from services.embeddings.adapters.extractors.archive import Archive, attribute, local
from services.embeddings.adapters.extractors.flow import flow_page
from services.embeddings.adapters.extractors.format import Format, Sample, Source, encrypted
from services.embeddings.adapters.extractors.hypertext import decode_html, html_flow
from services.embeddings.domain.document import Page, PageImage
from services.embeddings.domain.errors import ExtractionError

_MEDIA_TYPE = "application/epub+zip"


def recognise(sample: Sample) -> str | None:
    """An archive that says so in its first member, or that has the container of a book."""
    is_book = sample.mimetype == _MEDIA_TYPE or "META-INF/container.xml" in sample.members
    return _MEDIA_TYPE if is_book else None


def read(source: Source) -> Iterator[Page]:
    """The documents of the spine."""
    with Archive(source) as archive:
        container = archive.xml("META-INF/container.xml")
        packages = [attribute(element, "full-path") for element in container.iter() if local(element) == "rootfile"]
        if not packages:
            raise ExtractionError("CORRUPT", "the book does not say where its contents are listed")
        package = archive.xml(packages[0])
        items = {attribute(one, "id"): attribute(one, "href") for one in package.iter() if local(one) == "item"}
        spine = [items.get(attribute(one, "idref"), "") for one in package.iter() if local(one) == "itemref"]
        protected = {attribute(one, "URI") for one in archive.xml("META-INF/encryption.xml").iter()}
        for number, address in enumerate(spine, start=1):
            name = normpath(join(dirname(packages[0]), unquote(address)))
            if name in protected:
                raise encrypted("the book is protected against copying")
            yield flow_page(number, _chapter(archive, name))


def _chapter(archive: Archive, name: str) -> Iterator[str | PageImage]:
    def find(address: str) -> bytes:
        return archive.part(normpath(join(dirname(name), unquote(address))))

    return html_flow(decode_html(archive.part(name)), archive.limits, find)


FORMAT = Format(name="EPUB", media_types={_MEDIA_TYPE: (".epub",)}, recognise=recognise, read=read)
