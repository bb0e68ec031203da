"""The five papers' tables, figures and claims: campaigns that reproduce them, published values, scores.

The campaign files are beside this package, in a folder for each paper (experiments/PAPER). It stands on `analysis.open`
and on the engine, as a package of other people would; nothing below imports it. Runs never read the targets.
"""
