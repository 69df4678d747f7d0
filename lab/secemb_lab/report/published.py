"""Published figures, and the goals of `make quality`."""

REPORTED = ("mf", "ncf", "fm", "deepfm")  # the models of published figures
# RMSE in the paper's table of utility.
PAPER = {
    "ML100K": {"mf": 0.944, "ncf": 0.949, "fm": 0.937, "deepfm": 0.939},
    "ML1M": {"mf": 0.903, "ncf": 0.897, "fm": 0.906, "deepfm": 0.902},
}
# Megabytes of one session in the paper, up and down, and how often each person takes part until the end.
PAPER_MEGABYTES = {
    "ML100K": {"mf": (0.17, 0.10), "ncf": (0.13, 0.05), "fm": (0.18, 0.11), "deepfm": (14.22, 7.12)},
    "ML1M": {"mf": (0.27, 0.15), "ncf": (0.20, 0.08), "fm": (0.28, 0.16), "deepfm": (7.10, 3.57)},
}
PAPER_EPOCHS = 200
# Rounds of 100 devices, and the RMSE that a model must have reached after them.
BARS = {
    "ML100K": {"mf": (100, 0.912), "ncf": (150, 0.931), "fm": (350, 0.905), "deepfm": (125, 0.906)},
    "ML1M": {"mf": (300, 0.864), "ncf": (427, 0.893), "fm": (366, 0.869), "deepfm": (213, 0.879)},
}
BAR_COHORT = 100
# Recall@20 and NDCG@20 over the whole catalogue, by models that are not private (LightGCN, He et al. 2020).
RANKED = {"gowalla": {"BPR-MF": (0.129, 0.111), "LightGCN": (0.183, 0.155)}}
# Recall@20 and NDCG@20 that the default loss must reach.
RANKING_BARS = {"gowalla": (0.10, 0.085)}

# Sequences: HR@10 and NDCG@10 of everybody's last event, by folder of the set and by model. The goals are among 100
# uniform strangers; the paper does not say among what its items are ranked.
SEQUENCE_BARS = {
    "ml-1m": {"sasrec": (0.78, 0.54), "caser": (0.70, 0.45)},
    "amazon-video-games": {"sasrec": (0.66, 0.45), "caser": (0.50, 0.30)},
}
# The paper's second set is all of Amazon, 9,267,503 items, and not the video games alone.
SEQUENCE_PAPER = {
    "ml-1m": {"sasrec": (0.472, 0.268), "caser": (0.475, 0.270)},
    "amazon-video-games": {"sasrec": (0.639, 0.485), "caser": (0.629, 0.483)},
}
# By models that are not private, among 100 uniform strangers.
SEQUENCE_CENTRAL = {
    "ml-1m": {"sasrec": (0.82, 0.59), "caser": (0.79, 0.55)},
    "amazon-video-games": {"sasrec": (0.74, 0.54), "caser": (0.53, 0.32)},
}
# Upload of the whole update as two additive shares, as a multiple of SecEmb's, for all of Amazon.
PAPER_REDUCTION = {"sasrec": 2342, "caser": 2549}
