"""Objects of other tools in, such as a loss written in JAX; tables of records out."""
