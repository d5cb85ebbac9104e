"""How much of a pipeline's stages overlaps: stages of known times, decoding beside computing."""
