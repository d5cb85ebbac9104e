"""Small graphs led by a batch ``N``, and whether their rows keep apart; in ONNX's text format."""

from __future__ import annotations

__all__ = ["APART", "JOINED"]

APART = {
    "elementwise, with one row that serves all": """
        g (float[N,4] x) => (y) <float[1,4] w = {1,2,3,4}, float[4] b = {4,3,2,1}>
        { p = Mul (x, w)  q = Add (p, b)  y = Relu (q) }""",
    "rows that meet rows": """
        g (float[N,4] x, float[N,1] z) => (y) { y = Sub (x, z) }""",
    "a table that ids pick from": """
        g (int64[N,S] ids) => (y) <float[3,2] w = {1,2,3,4,5,6}>
        { y = Gather <axis = 0> (w, ids) }""",
    "a column of each row": """
        g (float[N,4] x) => (y) <int64 i = {2}> { y = Gather <axis = 1> (x, i) }""",
    "a shape that the batch leads": """
        g (float[N,6] x) => (y) <int64 zero = {0}, int64[1] z = {0}, int64[2] rest = {2,3}>
        { s = Shape (x)  n = Gather (s, zero)  m = Unsqueeze (n, z)  t = Concat <axis = 0> (m, rest)
          y = Reshape (x, t) }""",
    "heads of attention, by lengths of the input": """
        g (float[N,S,4] x) => (y)
        <int64 zero = {0}, int64 one = {1}, int64[1] z = {0}, int64[2] rest = {2,2},
         int64[1] width = {4}>
        { s = Shape (x)  n = Gather (s, zero)  l = Gather (s, one)  n1 = Unsqueeze (n, z)
          l1 = Unsqueeze (l, z)  t = Concat <axis = 0> (n1, l1, rest)  r = Reshape (x, t)
          h = Transpose <perm = [0,2,1,3]> (r)  k = Transpose <perm = [0,2,3,1]> (r)
          p = MatMul (h, k)  a = Softmax <axis = -1> (p)  c = MatMul (a, h)
          b = Transpose <perm = [0,2,1,3]> (c)  u = Concat <axis = 0> (n1, l1, width)
          y = Reshape (b, u) }""",
    "rows and positions in one axis and back": """
        g (float[N,S,4] x) => (y) <float[4,2] w = {1,2,3,4,5,6,7,8}, int64[2] flat = {-1,4},
         int64[2] ends = {0,2}, int64[1] last = {2}>
        { f = Reshape (x, flat)  m = Gemm (f, w)  s = Shape <start = 0, end = 2> (x)
          t = Concat <axis = 0> (s, last)  y = Reshape (m, t) }""",
    "an output with several lines for each row": """
        g (float[N,3,4] x) => (y) <int64[2] flat = {-1,4}> { y = Reshape (x, flat) }""",
    "a rest that is not the batch": """
        g (float[N,4,H,W] x) => (y) <int64[3] t = {0,4,-1}> { y = Reshape (x, t) }""",
    "a part of a product with the batch": """
        g (float[N,4] x) => (y) <int64 zero = {0}, int64 four = {4}, int64[1] z = {0},
         int64[1] two = {2}>
        { s = Shape (x)  n = Gather (s, zero)  k = Mul (n, four)  h = Div (k, four)
          m = Unsqueeze (h, z)  t = Concat <axis = 0> (m, two, two)  y = Reshape (x, t) }""",
    "one token for each row, as PyTorch expands it": """
        g (float[N,2,3] x) => (y) <float[1,1,3] token = {1,2,3}, int64 zero = {0}, int64[1] z = {0},
         int64[2] kept = {-1,-1}, int64[3] minus = {-1,-1,-1}, int64[3] ones = {1,1,1}>
        { s = Shape (x)  n = Gather (s, zero)  m = Unsqueeze (n, z)
          t = Concat <axis = 0> (m, kept)  e = Equal (t, minus)  w = Where (e, ones, t)
          tokens = Expand (token, w)  y = Concat <axis = 1> (tokens, x) }""",
    "zeros for each row": """
        g (float[N,4] x) => (y) { s = Shape (x)  o = ConstantOfShape (s)  y = Add (x, o) }""",
    "the number of each row": """
        g (float[N,4] x) => (y) <int64 zero = {0}, int64 one = {1}, int64[1] last = {1}>
        { s = Shape (x)  n = Gather (s, zero)  r = Range (zero, n, one)  f = Cast <to = 1> (r)
          c = Unsqueeze (f, last)  y = Add (x, c) }""",
    "a row repeated along the batch": """
        g (float[N,4] x) => (y) <float[1,4] w = {1,2,3,4}, int64[1] one = {1}>
        { s = Shape <start = 0, end = 1> (x)  r = Concat <axis = 0> (s, one)
          t = Tile (w, r)  y = Mul (x, t) }""",
    "slices of other axes, and of the whole batch": """
        g (float[N,4] x) => (y) <int64[2] from = {0,1}, int64[2] to = {9223372036854775807,3}>
        { y = Slice (x, from, to) }""",
    "a mask over the sequence": """
        g (int64[N,S] mask, float[N,S,4] x) => (y) <int64[1] last = {-1}, int64[1] over = {1}>
        { f = Cast <to = 1> (mask)  u = Unsqueeze (f, last)  p = Mul (x, u)
          a = ReduceSum <keepdims = 0> (p, over)  c = ReduceSum <keepdims = 0> (u, over)
          y = Div (a, c) }""",
    "a squeezed axis and a put in one": """
        g (float[N,1,4] x) => (y) <int64[1] one = {1}, int64[2] two = {0,3}, int64[1] zero = {0}>
        { q = Squeeze (x, one)  u = Unsqueeze (q, two)  y = Squeeze (u, zero) }""",
    "a resize of images": """
        g (float[N,1,2,2] x) => (y) <float[4] scales = {1,1,2,2}>
        { y = Resize <mode = "nearest"> (x, , scales) }""",
    "a padded sequence": """
        g (float[N,3] x) => (y) <int64[4] pads = {0,1,0,2}> { y = Pad (x, pads) }""",
    "sorted rows": """
        g (float[N,5] x) => (v, i) <int64[1] k = {2}> { v, i = TopK (x, k) }""",
    "a sum along the row": """
        g (float[N,5] x) => (y) <int64 axis = {1}> { y = CumSum (x, axis) }""",
    "an output without rows": """
        g (float[N,2] x) => (y, c) <float[2] w = {1,2}> { y = Neg (x)  c = Exp (w) }""",
    "the lengths of a row": """
        g (float[N,S] x) => (y, c) { y = Neg (x)  c = Shape <start = 1> (x) }""",
    "an input that is not batched": """
        g (float[N,2] x, float[2] w) => (y) { y = Mul (x, w) }""",
    "an open length that has no name": """
        g (float[?,2] x) => (y) { y = Neg (x) }""",
    "a layer that rows go through": """
        g (float[N,4] x) => (y) <float[3,4] w = {1,2,3,4,5,6,7,8,9,1,2,3}, float[3] b = {1,2,3}>
        { y = Gemm <transB = 1> (x, w, b) }""",
    "a norm of the last axis": """
        g (float[N,S,4] x) => (y) <float[4] scale = {1,2,3,4}>
        { y = LayerNormalization <axis = -1> (x, scale) }""",
}
"""By what they show."""

_UNKNOWN = "is not known to keep rows apart"
_OVER = "joins values of different rows"

JOINED = {
    "a mean over the batch": (
        "g (float[N,4] x) => (y) <int64[1] axes = {0}> { y = ReduceMean (x, axes) }",
        rf"ReduceMean \(node .*\): it {_OVER}",
    ),
    "a mean over all": ("g (float[N,4] x) => (y) { y = ReduceMean (x) }", _OVER),
    "a softmax over the batch": (
        "g (float[N,4] x) => (y) { y = Softmax <axis = 0> (x) }",
        rf"Softmax .*{_OVER}",
    ),
    "a softmax over an axis that moved": (
        """g (float[N,4] x) => (y)
        { t = Transpose <perm = [1,0]> (x)  s = Softmax <axis = -1> (t)
          y = Transpose <perm = [1,0]> (s) }""",
        _OVER,
    ),
    "a sum down the batch": (
        "g (float[N,4] x) => (y) <int64 axis = {0}> { y = CumSum (x, axis) }",
        _OVER,
    ),
    "the best rows": (
        "g (float[N,4] x) => (v, i) <int64[1] k = {1}> { v, i = TopK <axis = 0> (x, k) }",
        _OVER,
    ),
    "a normalisation in training": (
        """g (float[N,2] x) => (y) <float[2] w = {1,1}>
        { y, m, v = BatchNormalization <training_mode = 1> (x, w, w, w, w) }""",
        "in training mode",
    ),
    "the places of what is not zero": (
        "g (float[N,4] x) => (y) { y = NonZero (x) }",
        rf"NonZero .*it {_UNKNOWN}",
    ),
    "an operator of somebody else": (
        "g (float[N,4] x) => (float[N,4] y) { y = com.acme.Swirl (x) }",
        rf"com\.acme::Swirl .*it {_UNKNOWN}",
    ),
    "every row with every other": (
        """g (float[N,4] x) => (y)
        { t = Transpose <perm = [1,0]> (x)  y = MatMul (x, t) }""",
        "its input 1 depends on the batch",
    ),
    "a product that sums over rows": (
        "g (float[N,3] x) => (y) <float[2,3] w = {1,2,3,4,5,6}>"
        "{ t = Transpose <perm = [1,0]> (x) z = Gemm <transA = 1> (x, x) y = MatMul (w, z) }",
        "it sums over the rows",
    ),
    "rows beside each other": (
        """g (float[N,4] x) => (y) <int64[1] z = {0}, int64[1] o = {1}>
        { a = Unsqueeze (x, z)  b = Unsqueeze (x, o)  y = Sub (a, b) }""",
        "combines the rows of its inputs with one another",
    ),
    "a length that fits one batch": (
        "g (float[N,4] x) => (y) <float[3,4] w = {1,2,3,4,5,6,7,8,9,1,2,3}> { y = Add (x, w) }",
        "with a tensor that is not one row",
    ),
    "a length that the run brings": (
        "g (float[N,4] x, float[M,4] w) => (y) { y = Add (x, w) }",
        "the first dimensions of 'x', 'w' are not one symbol",
    ),
    "a division by the size of the batch": (
        """g (float[N,4] x) => (y) <int64 zero = {0}>
        { s = Shape (x)  n = Gather (s, zero)  f = Cast <to = 1> (n)  y = Div (x, f) }""",
        r"Cast .*it computes with the size of the batch",
    ),
    "one less than the batch": (
        """g (int64[N] x) => (y) <int64 zero = {0}, int64 one = {1}>
        { s = Shape (x)  n = Gather (s, zero)  m = Sub (n, one)  y = Add (x, m) }""",
        r"Sub .*it computes with the size of the batch",
    ),
    "the last row": (
        "g (float[N,4] x) => (y) <int64 last = {-1}> { y = Gather (x, last) }",
        "it picks some of the rows",
    ),
    "all rows but one": (
        "g (float[N,4] x) => (y) <int64[1] a = {1}, int64[1] b = {99999999999}>"
        "{ y = Slice (x, a, b) }",
        "does not keep every row in its place",
    ),
    "rows backwards": (
        """g (float[N,4] x) => (y) <int64[1] a = {-1}, int64[1] b = {-99999999999},
        int64[1] axis = {0}, int64[1] step = {-1}> { y = Slice (x, a, b, axis, step) }""",
        "does not keep every row in its place",
    ),
    "rows behind one another": (
        "g (float[N,4] x) => (y) { y = Concat <axis = 0> (x, x) }",
        "joins its inputs along the axis of the rows",
    ),
    "halves of the batch": (
        "g (float[N,4] x) => (y, z) { y, z = Split <axis = 0, num_outputs = 2> (x) }",
        "splits the axis of the rows",
    ),
    "columns for rows": (
        "g (float[N,4] x) => (y) <int64[2] t = {4,-1}> { y = Reshape (x, t) }",
        "mixes the rows with what is before them",
    ),
    "lines that cross rows": (
        "g (float[N,6] x) => (y) <int64[2] t = {-1,4}> { y = Reshape (x, t) }",
        "not known to end where a row ends",
    ),
    "a target for one batch": (
        "g (float[N,6] x) => (y) <int64[2] t = {2,6}> { y = Reshape (x, t) }",
        "does not have the batch as one of its lengths",
    ),
    "a target that the run brings": (
        "g (float[N,6] x, int64[2] t) => (y) { y = Reshape (x, t) }",
        "does not have the batch as one of its lengths",
    ),
    "a squeeze of whatever is 1": (
        "g (float[N,1,4] x) => (y) { y = Squeeze (x) }",
        "it would drop a batch of one row",
    ),
    "an output that is the size of the batch": (
        "g (float[N,4] x) => (y) { y = Shape (x) }",
        "output 'y' holds the size of the batch",
    ),
    "rows that are columns of the output": (
        "g (float[N,4] x) => (y) { y = Transpose <perm = [1,0]> (x) }",
        "output 'y' has its rows along axis 1",
    ),
    "a batch within an input": (
        "g (float[N,4] x, float[2,N] h) => (y) { y = Neg (x) }",
        "input 'h' has the batch in another place than first",
    ),
    "a batch that leads and follows": (
        "g (float[N,N] x) => (y) { y = Neg (x) }",
        "input 'x' has the batch in another place than first",
    ),
    "lengths that are all known": (
        "g (float[2,4] x) => (y) { y = Neg (x) }",
        "no input has an open first dimension",
    ),
    "weights for each row": (
        "g (float[N,3,4,4] x, float[N,3,1,1] w) => (y) { y = Conv (x, w) }",
        "its input 1 depends on the batch",
    ),
    "branches": (
        """g (bool b, float[N,4] x) => (y) {
        y = If (b) <then_branch = t () => (p) { p = Neg (x) }, else_branch = e () => (q)
        { q = Exp (x) }> }""",
        rf"If .*it {_UNKNOWN}",
    ),
}
"""By what they show: the graph, and a part of the reason."""
