"""Stage 2: the one language. Nodes, rules that rewrite them, index arithmetic, and what they mean.

In:  nodes.
Out: nodes.
"""

from kernelet.graph import shapes as shapes  # what tells nodes their shapes
