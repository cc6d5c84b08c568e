"""The decision log: what was asked and decided, chained with a key, on disk or on a stream (DESIGN §7).

`log` says what a record holds, `folding` turns floods into counts, `writer` is the thread that chains and writes,
`files` the rotated files or the stream that it writes to.
"""
