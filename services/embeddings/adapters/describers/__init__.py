"""Describers of images: what is written in them (local), or what they show (Gemini)."""
