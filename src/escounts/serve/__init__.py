"""`escounts serve`: a local web page and a REST service over the same counter.

The server process never opens a video: decoding and counting happen in worker processes (`worker`), which
`jobs` feeds, watches and replaces; `database` remembers videos, jobs, results and labels.
"""
