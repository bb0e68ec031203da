"""Figures: one description (model.py), built from runs and campaigns; matplotlib draws files, uPlot draws pages.

    from analysis.figures.printed import save

    with analysis.open("results") as s:
        save(s["quickstart"].plot("bars"), Path("throughput.pdf"))

docs/plots.md lists the figures.
"""
