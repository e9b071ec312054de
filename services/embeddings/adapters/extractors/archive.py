"""Documents that are ZIP archives of XML: read within limits, with no entity resolved and nothing written anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from posixpath import join, normpath
from xml.etree.ElementTree import Element
from zipfile import ZipFile

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring, iterparse

from services.embeddings.adapters.extractors.format import encrypted
from services.embeddings.adapters.extractors.limits import ExtractionLimits, entities_defined
from services.embeddings.adapters.extractors.pictures import page_image
from services.embeddings.domain.document import PageImage

_ENCRYPTED_FLAG = 1
_MAX_DIGITS = 9


class Archive(ZipFile):
    """An open archive whose members together unpack to no more than the limit. Names are found in any case."""

    def __init__(self, file: Path | BytesIO, limits: ExtractionLimits) -> None:
        super().__init__(file)
        self.limits = limits
        self.unread: list[str] = []
        """The names of members that belong to the text and could not be read, as readers find them."""
        members = self.infolist()
        # What a member unpacks to beyond the size that it declares is not read.
        self._size = sum(member.file_size for member in members)
        self.limits.require("unpacked_bytes", self._size)
        if any(member.flag_bits & _ENCRYPTED_FLAG for member in members):
            raise encrypted("the archive cannot be read without a password")
        self._names = {member.filename.lower(): member.filename for member in members}

    def part(self, name: str) -> bytes:
        """The content of a member, empty when there is none of that name."""
        found = self._names.get(name.lower().lstrip("/"))
        return b"" if found is None else self.read(found)

    def required(self, name: str) -> bytes:
        """The content of a member. Raises KeyError when there is none of that name, or nothing in it."""
        content = self.part(name)
        if not content:
            raise KeyError(f"the part {name!r} is missing"[:200])
        return content

    def within(self, content: bytes) -> Archive:
        """A member that is an archive; all that are within one another unpack to no more than the limit together."""
        left = self.limits.unpacked_bytes - self._size
        return Archive(BytesIO(content), replace(self.limits, unpacked_bytes=left))

    def xml(self, name: str) -> Element:
        """The root of an XML member, an empty element when there is none of that name."""
        content = self.part(name)
        return parse_xml(content) if content else Element("")

    def relationships(self, part: str) -> dict[str, tuple[str, str]]:
        """What an Office part refers to inside the archive: by id, the last word of the type and the member's name."""
        folder, _, file = part.rpartition("/")
        related = {}
        for element in self.xml(f"{folder}/_rels/{file}.rels"):
            target, kind = attribute(element, "Target"), attribute(element, "Type")
            if attribute(element, "TargetMode") != "External":
                path = target.lstrip("/") if target.startswith("/") else normpath(join(folder, target))
                related[attribute(element, "Id")] = kind.rpartition("/")[2], path
        return related

    def main_part(self) -> str:
        """The name of an Office document's main part. Raises KeyError when none is said to be that."""
        for kind, target in self.relationships("").values():
            if kind == "officeDocument":
                return target
        raise KeyError("no part is said to be the document")

    def image(self, name: str) -> PageImage | None:
        """A bounded image by its name as written in a member; None for decoration, and for what is no image here."""
        return page_image(self.part(normpath(name)), self.limits)

    def images_of(self, part: str) -> Callable[[str], PageImage | None]:
        """Finds the images of an Office part by the ids that it calls them by."""
        names = {key: target for key, (kind, target) in self.relationships(part).items() if kind == "image"}
        return lambda key: self.image(names[key]) if key in names else None


def parse_xml(content: bytes) -> Element:
    """The root of an XML document. Raises ResourceLimitError for one that defines entities: bombs are made of them."""
    try:
        root: Element = fromstring(content)
    except DefusedXmlException:
        raise entities_defined() from None
    return root


def parse_elements(content: bytes) -> Iterator[Element]:
    """Each element of an XML document as it ends, to be cleared when done with. Raises like ``parse_xml``."""
    try:
        for _, element in iterparse(BytesIO(content)):
            yield element
    except DefusedXmlException:
        raise entities_defined() from None


def local(element: Element) -> str:
    """An element's name without its namespace: the strict and the usual kind of Office files differ only there."""
    return element.tag.rpartition("}")[2]


def shown(parent: Iterable[Element]) -> Iterator[Element]:
    """The children, and of alternatives the first that has anything: what newer programs show."""
    for child in parent:
        if local(child) == "AlternateContent":
            yield from next((one for one in child if len(one)), ())
        else:
            yield child


def attribute(element: Element, name: str) -> str:
    """An attribute's value by its name without a namespace, empty when there is none."""
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


def whole(element: Element, name: str) -> int | None:
    """An attribute's value as a number from 0 on, None when it is none."""
    value = attribute(element, name)
    return int(value) if value.isdecimal() and len(value) <= _MAX_DIGITS else None
