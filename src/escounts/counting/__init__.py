"""From tokens to an answer: windows, views, scenes, spans, evidence and what is decided from it."""
