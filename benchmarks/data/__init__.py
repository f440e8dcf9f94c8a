"""Public data read once, packed and loaded: images, tables, texts and streams."""
