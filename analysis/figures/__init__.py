"""Figures: one description (model.py), built from runs and campaigns; matplotlib draws files, uPlot draws pages.

    from analysis.figures import campaign
    from analysis.figures.printed import save

    save(campaign.bars(analysis.means("quickstart"), "throughput"), Path("throughput.pdf"))

docs/plots.md lists the figures.
"""
