"""From the declarations of the types of resources to how their texts are made."""

from __future__ import annotations

from collections.abc import Mapping

from services.chassis.kernel.errors import ConfigurationError
from services.chassis.resource_types import Overflow, ResourceType
from services.embeddings.domain.resource_text import TextRecipe
from services.embeddings.domain.text_template import TemplateInvalidError, TextTemplate


def build_recipes(types: Mapping[str, ResourceType]) -> dict[str, TextRecipe]:
    """The recipe of each type. Raises ConfigurationError ``RESOURCE_TYPE_INVALID`` for a wrong template."""
    return {name: _build_recipe(type_) for name, type_ in types.items()}


def _build_recipe(type_: ResourceType) -> TextRecipe:
    try:
        template = TextTemplate.parse(type_.text_template)
    except TemplateInvalidError as error:
        raise ConfigurationError("RESOURCE_TYPE_INVALID", str(error), where=f"{type_.name}/text.md") from error
    return TextRecipe(
        entity_type=type_.name,
        version=type_.recipe,
        template=template,
        max_characters=type_.max_characters,
        splits=type_.overflow is Overflow.SPLIT,
        reads=frozenset(type_.reads),
    )
