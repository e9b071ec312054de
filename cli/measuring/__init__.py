"""Measuring retrieval through the public interface: question sets, measures, runs, plots.

The commands import it when they run, because it needs the ``measuring`` extra.
"""
