"""A partition as pictures: SVG, Graphviz's language, and files of them in a folder."""
