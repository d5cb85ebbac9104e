"""Networks that programs measure: their graphs, with weights drawn by chance, and exported ones."""
