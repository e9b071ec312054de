"""Assembles the statements of searches from the fragments in ``sql/templates``, and binds every value.

This is the one place where SQL of searches is put together. No name or value of a caller gets into the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from services.chassis.postgres.templates import fill, load_template
from services.search.domain.criteria import ChunkFilter, ResourceFilter
from services.search.domain.fusion import RARE_CODE_TEXTS, Fusion, FusionMethod

_PACKAGE = "services.search"

_CHUNK_CONDITIONS = {
    "file_ids": "file_id = ANY ({file_ids}::bigint[])",
    "languages": "language = ANY ({languages}::text[])",
    "files": (
        "EXISTS (SELECT FROM module_embeddings_file_read AS file"
        " WHERE file.file_id = chunk.file_id AND file.tenant_id = {tenant}{file_filter})"
    ),
}
_FILE_CONDITIONS = {
    "file_ids": "file.file_id = ANY ({file_ids}::bigint[])",
    "media_types": "file.media_type = ANY ({media_types}::text[])",
    "created_from": "file.created_at >= {created_from}::timestamptz",
    "created_before": "file.created_at < {created_before}::timestamptz",
}


_RESOURCE_CONDITIONS = {
    "entity_ids": "stored.entity_id = ANY ({entity_ids}::bigint[])",
    "updated_from": "stored.updated_at >= {updated_from}::timestamptz",
    "updated_before": "stored.updated_at < {updated_before}::timestamptz",
    "languages": (
        "EXISTS (SELECT FROM module_embeddings_resource_lexemes_read AS words"
        " WHERE words.entity_type = stored.entity_type AND words.entity_id = stored.entity_id"
        " AND words.language = ANY ({languages}::text[]))"
    ),
}
_WORD_CONDITIONS = {
    "entity_ids": _RESOURCE_CONDITIONS["entity_ids"],
    "languages": "stored.language = ANY ({languages}::text[])",
    "updated": (
        "EXISTS (SELECT FROM module_embeddings_unified AS vector"
        " WHERE vector.entity_type = stored.entity_type AND vector.entity_id = stored.entity_id"
        " AND vector.entity_type = ANY ({types}::text[])"
        " AND vector.updated_at >= coalesce({updated_from}::timestamptz, '-infinity')"
        " AND vector.updated_at < coalesce({updated_before}::timestamptz, 'infinity'))"
    ),
}


class _Parts(Mapping[str, str]):
    """Fragments by name; any other name is a value, bound and numbered at its first use."""

    def __init__(self, fragments: Mapping[str, str], values: Mapping[str, object]) -> None:
        self._fragments = fragments
        self._values = values
        self._numbers: dict[str, str] = {}
        self.arguments: list[object] = []

    def __getitem__(self, name: str) -> str:
        if name in self._fragments:
            return fill(self._fragments[name], self).rstrip()
        if name not in self._numbers:
            self.arguments.append(self._values[name])
            self._numbers[name] = f"${len(self.arguments)}"
        return self._numbers[name]

    def __iter__(self) -> Iterator[str]:
        yield from {**self._fragments, **self._values}

    def __len__(self) -> int:
        return len(self._fragments) + len(self._values)


def assemble(name: str, fragments: Mapping[str, str], values: Mapping[str, object]) -> tuple[str, list[object]]:
    """The statement ``sql/templates/<name>.sql`` and its arguments.

    Raises:
        ValueError: the statement does not ask for the caller's tenant.
    """
    parts = _Parts(fragments, values)
    statement = fill(load_template(_PACKAGE, name), parts)
    if not any(argument is values["tenant"] for argument in parts.arguments):
        raise ValueError(f"{name} does not name the tenant")
    return statement, parts.arguments


def fragment(name: str) -> str:
    """The text of a fragment."""
    return load_template(_PACKAGE, name)


def file_filter(wanted: ChunkFilter) -> tuple[str, dict[str, object]]:
    """The conditions on files, each after an AND, and their values."""
    return _conditions(_FILE_CONDITIONS, _set(wanted, _FILE_CONDITIONS))


def chunk_filter(wanted: ChunkFilter, file_ids: list[int] | None) -> tuple[dict[str, str], dict[str, object]]:
    """The conditions on chunks as fragments, and their values.

    Args:
        wanted: the filter.
        file_ids: the files that pass it, None where there is no condition on files or too many pass it to be listed.
    """
    values = {name: value for name, value in _set(wanted, _CHUNK_CONDITIONS).items() if name != "file_ids"}
    if file_ids is not None:
        conditions, values = _conditions(_CHUNK_CONDITIONS, {**values, "file_ids": file_ids})
        return {"filter": conditions}, values
    if not wanted.of_files:
        conditions, values = _conditions(_CHUNK_CONDITIONS, values)
        return {"filter": conditions}, values
    of_files, file_values = file_filter(wanted)
    conditions, values = _conditions(_CHUNK_CONDITIONS, {**values, "files": None})
    return {"filter": conditions, "file_filter": of_files}, {**values, **file_values}


def resource_filter(wanted: ResourceFilter) -> tuple[dict[str, str], dict[str, object]]:
    """The conditions on resources, and those on their words, as fragments, and their values."""
    conditions, values = _conditions(_RESOURCE_CONDITIONS, _set(wanted, _RESOURCE_CONDITIONS))
    on_words = _set(wanted, _WORD_CONDITIONS)
    if wanted.updated_from or wanted.updated_before:
        on_words["updated"] = None
        values = {"updated_from": None, "updated_before": None, **values}
    return {"filter": conditions, "word_filter": _conditions(_WORD_CONDITIONS, on_words)[0]}, values


def fusion_fragments(fusion: Fusion, kind: str, *, dense: bool) -> dict[str, str]:
    """How candidates are scored and ordered when the lexical leg runs, alone or with the semantic one."""
    if not dense:
        return {
            "score": "NULL::float8",
            "fused": "NULL::float8",
            "fused_with_neighbours": "NULL::float8",
            "codes_held": "NULL::text[]",
            "rare_codes": "",
            "ideal": fragment("no_ideal"),
            "order": "bm25_score DESC",
        }
    return {
        "score": "1 - coalesce(distance, embedding <=> {vector})",
        "fused": fragment("fused_convex" if fusion.method is FusionMethod.CONVEX else "fused_ranks"),
        "fused_with_neighbours": fragment("neighbours") if fusion.neighbour_weight > 0 else "own_score",
        "ideal": fragment("ideal") if fusion.method is FusionMethod.CONVEX else fragment("no_ideal"),
        "codes_held": fragment(f"codes_held_{kind}"),
        "rare_codes": fragment("rare_codes"),
        "order": "fused_score DESC, place",
    }


def fusion_values(fusion: Fusion) -> dict[str, object]:
    """The values that the fragments of a fusion bind."""
    return {
        "dense_weight": fusion.dense_weight,
        "neighbour_weight": fusion.neighbour_weight,
        "neighbour_characters": fusion.neighbour_characters,
        "rank_constant": fusion.rank_constant,
        "rare_code_texts": RARE_CODE_TEXTS,
    }


def _set(wanted: ChunkFilter | ResourceFilter, names: Mapping[str, str]) -> dict[str, object]:
    values = {name: getattr(wanted, name) for name in names if hasattr(wanted, name)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value}


def _conditions(table: Mapping[str, str], values: dict[str, object]) -> tuple[str, dict[str, object]]:
    return "".join(f" AND {table[name]}" for name in values), values
