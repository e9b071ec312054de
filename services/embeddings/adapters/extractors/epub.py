"""Books (EPUB): a page for each document of the reading order, which is a chapter as a rule."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import dirname, join, normpath
from urllib.parse import unquote

from services.embeddings.adapters.extractors.archive import Archive, attribute, local, parse_xml
from services.embeddings.adapters.extractors.flow import numbered_pages
from services.embeddings.adapters.extractors.format import Format, Sample, Source, corrupt, encrypted
from services.embeddings.adapters.extractors.hypertext import decode_html, html_flow
from services.embeddings.domain.document import Page, PageImage

_MEDIA_TYPE = "application/epub+zip"


def recognise(sample: Sample) -> str | None:
    """An archive that says so in its first member, or that has the container of a book."""
    is_book = sample.mimetype == _MEDIA_TYPE or "META-INF/container.xml" in sample.members
    return _MEDIA_TYPE if is_book else None


def read(source: Source) -> Iterator[Page]:
    """The documents of the spine."""
    with Archive(source.path, source.limits) as archive:
        container = archive.xml("META-INF/container.xml")
        packages = [attribute(element, "full-path") for element in container.iter() if local(element) == "rootfile"]
        if not packages:
            raise corrupt("the book does not say where its contents are listed")
        package = parse_xml(archive.required(packages[0]))
        items = {attribute(one, "id"): attribute(one, "href") for one in package.iter() if local(one) == "item"}
        spine = [items.get(attribute(one, "idref"), "") for one in package.iter() if local(one) == "itemref"]
        protected = {attribute(one, "URI") for one in archive.xml("META-INF/encryption.xml").iter()}
        if not spine:
            raise corrupt("the book lists no chapters")
        names = [normpath(join(dirname(packages[0]), unquote(address))) for address in spine]
        if not protected.isdisjoint(names):
            raise encrypted("the book is protected against copying")
        yield from numbered_pages(_chapter(archive, name) for name in names)


def _chapter(archive: Archive, name: str) -> Iterator[str | PageImage]:
    def find(address: str) -> bytes:
        return archive.part(normpath(join(dirname(name), unquote(address))))

    yield from html_flow(decode_html(archive.required(name)), archive.limits, find)


FORMAT = Format(name="EPUB", media_types={_MEDIA_TYPE: (".epub",)}, recognise=recognise, read=read)
