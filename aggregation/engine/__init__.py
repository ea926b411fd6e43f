"""The numerical engine of the rules: compiled for this CPU, for a GPU, streaming and sharded.

Nothing here knows what a rule is. `order_statistics`, `distances` and `rows` ask
it for means of ranks, inner products and weighted sums, and have a slower way
of their own, in torch alone, for where it cannot help.
"""
