"""How nodes become launches that are CUDA's own, one family of operators a file."""
