"""Reads each document in a process of its own, with limits and without network, so that none can harm the worker."""

from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.sandbox.extractor import SandboxedExtractor

__all__ = ["ExtractionLimits", "SandboxedExtractor"]
