"""HTML and XHTML as tags and text, in time that grows with its length whatever is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

from services.embeddings.adapters.extractors.limits import entities_defined

# A tag ends at the first ">" that is in no quoted value; a quote that nothing closes is none.
_TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/>]*+)((?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')|=)*+)>""")
_UNQUOTED_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/<>]*+)([^<>]*+)>")
_ATTRIBUTE = re.compile(r"""([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s>]*+))?+""")
# What is no tag, by its beginning, with its end: comments, text as it is, definitions, instructions.
_CDATA = "<![CDATA["
_DEFINITIONS = re.compile(r"<!DOCTYPE[^\[>]*+\[", re.IGNORECASE)
_ENDS = {
    "<!--": re.compile(r"--!?>"),
    _CDATA: re.compile(r"\]\]>"),
    "[": re.compile(r"\]\s*+>"),
    "<!": re.compile(r">"),
    "<?": re.compile(r">"),
    "</": re.compile(r">"),
}
_ENTITY = re.compile(r"<!ENTITY", re.IGNORECASE)
# The content of these is neither markup nor text of the document.
_RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "iframe", "noembed")}
_PREFIXES = ("html:", "xhtml:", "svg:", "m:", "mml:", "math:")


class Tag(NamedTuple):
    """A tag that opens an element, closes one, or does both."""

    name: str
    source: str
    opens: bool
    closes: bool

    @property
    def attributes(self) -> dict[str, str]:
        """The values of the attributes by their names in lower case."""
        values = ((name, value if value[:1] not in ("'", '"') else value[1:-1]) for name, value in self._pairs())
        return {name.lower(): unescape(value) for name, value in values}

    def _pairs(self) -> list[tuple[str, str]]:
        return _ATTRIBUTE.findall(self.source)


def tokens(html: str) -> Iterator[str | Tag]:
    """Tags and the text between them in order. What is broken loses no text.

    Raises:
        ResourceLimitError: it defines XML entities.
    """
    position, tag_at, endless = 0, _TAG, set[str]()
    while True:
        start = html.find("<", position)
        if start < 0:
            break
        if start > position:
            yield unescape(html[position:start])
        match = tag_at.match(html, start)
        if match is None and tag_at is _TAG and html[start + 1 : start + 3].lstrip("/")[:1].isalpha():
            # From here on the quotes do not come in pairs; to look for an end after each tag would take for ever.
            tag_at = _UNQUOTED_TAG
            match = tag_at.match(html, start)
        if match is not None:
            position = match.end()
            tag = _tag(match)
            yield tag
            if tag.name in _RAW and tag.opens and not tag.closes:
                end = _RAW[tag.name].search(html, position)
                position = end.start() if end else len(html)
            continue
        kind = next((one for one in _ENDS if html.startswith(one, start)), "")
        begun = _DEFINITIONS.match(html, start) if kind == "<!" else None
        kind = "[" if begun else kind
        end = _ENDS[kind].search(html, begun.end() if begun else start + 2) if kind and kind not in endless else None
        if end is None:
            endless.add(kind)
            position = start + (len(kind) or 1)
            yield "" if kind else "<"
            continue
        position = end.end()
        if kind == _CDATA:
            yield html[start + len(_CDATA) : end.start()]
        elif begun and _ENTITY.search(html, start, end.start()):
            raise entities_defined()
    yield unescape(html[position:])


def _tag(match: re.Match[str]) -> Tag:
    closing, name, source = match.groups()
    name = name.lower()
    prefix, colon, plain = name.partition(":")
    return Tag(
        plain if prefix + colon in _PREFIXES else name, source, not closing, bool(closing) or source.endswith("/")
    )
