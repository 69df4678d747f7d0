"""Errors in the paper that were found while building this software, each with evidence in this repository."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Erratum:
    """One error: its place, the printed statement, the correction, and the test or page that proves it."""

    place: str
    said: str
    right: str
    evidence: str  # a test as file::function, or a page of the documentation


ERRATA = (
    Erratum(
        place="Algorithm FSS.PathEval",
        said="Both branches take the left child, s^L and t^L.",
        right="The else branch must take the right child, s^R and t^R; otherwise half of all leaves occur twice and "
        "no item in a right half can be read or written.",
        evidence="tests/unit/test_paths.py::test_the_right_child_is_not_the_left_one",
    ),
    Erratum(
        place="Appendix on differential privacy, clipping",
        said="The gradient is multiplied by max{1, Δ/g}.",
        right="It must be min{1, Δ/‖g‖}: with the maximum a long gradient is not clipped at all, a short one is "
        "scaled up, and the sum has no bounded sensitivity.",
        evidence="tests/property/test_clipping.py::test_with_max_in_place_of_min_a_long_update_would_pass",
    ),
    Erratum(
        place="Appendix on differential privacy, noise",
        said="Each server adds noise with σ = √ln(1.25/δ)·Δ/ε, so that both together reach √(2 ln(1.25/δ))·Δ/ε.",
        right="A server knows its own noise and can subtract it, and the rest is too small by √2. Each server must add "
        "the full noise, as it does here.",
        evidence="tests/unit/test_mechanism.py::"
        "test_half_the_noise_from_each_as_in_the_paper_is_too_little_against_a_server",
    ),
    Erratum(
        place="Discussion, practical considerations",
        said="Limiting the bits of CW^(n+1) restricts the range of values that a user can transmit.",
        right="It restricts nothing: the value is CW^(n+1) plus or minus the difference of two pseudo-random "
        "numbers, so an honest word is uniform in the ring and exceeds the limit, while a word of zero adds a "
        "number that is uniform in the ring. A bound requires a proof about the shared value.",
        evidence="tests/unit/test_paper_errata.py::test_a_word_within_the_limit_adds_any_value",
    ),
    Erratum(
        place="Table 3, sequential recommendation on ML1M",
        said="HR@10 of 0.472 and 0.475, NDCG@10 of 0.268 and 0.270.",
        right="The paper does not say among which items it ranks. If it ranks among 100 strangers, as is usual, "
        "popularity alone, without any model, comes close to these figures, and SASRec far exceeds them.",
        evidence="docs/sequences.md",
    ),
    Erratum(
        place="Table of download cost, NCF on Yelp",
        said="SecEmb downloads 0.44 MB, with a reduction ratio of 91.00.",
        right="14.95 MB / 91.00 is 0.164 MB; 0.44 MB is the upload.",
        evidence="tests/unit/test_paper_errata.py::test_the_download_of_ncf_on_yelp_is_not_what_its_ratio_says",
    ),
    Erratum(
        place="Tables of communication, Secure FedRec",
        said="47.81 MB up for MF on Yelp, but 48.56 MB for the same protocol in the table of sparse aggregation.",
        right="93,386 items of 65 numbers, as in the paper's own table of parameters, are 48.56 MB; 47.81 MB leaves "
        "out the bias of each item.",
        evidence="tests/unit/test_paper_errata.py::test_secure_fedrec_leaves_out_the_bias_of_each_item",
    ),
    Erratum(
        place="Comparison among protocols, secure training",
        said="SVD, Bit8Quant and TernQuant are compatible with secure aggregation.",
        right="Servers that see only a sum of messages cannot read it: the right vectors of SVD and the scales of the "
        "quantisers differ between devices. Of the four, only CoLR, in which all devices share B, can be summed.",
        evidence="tests/unit/test_paper_compressors.py::"
        "test_secure_aggregation_can_add_messages_of_colr_but_not_those_of_svd_or_of_quantisers",
    ),
    Erratum(
        place="Table of utility, TernQuant",
        said="A reduction ratio of 8.",
        right="That is four bits for a number that is minus one, zero or one. Five fit into a byte, and the ratio is "
        "20, more than SecEmb's on ML10M and smaller sets.",
        evidence="tests/unit/test_paper_compressors.py::"
        "test_a_message_has_the_bytes_that_are_counted_and_leaves_untouched_rows_zero",
    ),
    Erratum(
        place="Table of breakpoints, d = 128 on ML10M, ML25M and Yelp",
        said="6408, 37453 and 56031.",
        right="These are 0.6·m; the paper's inequality gives 7496, 41460 and 61275. All other cells agree with it.",
        evidence="tests/unit/test_paper_errata.py::test_three_breakpoints_do_not_follow_from_the_inequality",
    ),
    Erratum(
        place="Appendix on the server's computation",
        said="SecEmb is about 1600 times faster than homomorphic encryption.",
        right="That compares with one ciphertext for each number, for which the time here agrees with the paper's. A "
        "CKKS ciphertext holds thousands of numbers; when packed, little of the difference remains in the paper's "
        "layout: see the table of server computation.",
        evidence="docs/paper.md",
    ),
    Erratum(
        place="Figure of the long tail",
        said="ML10M has 27,278 items.",
        right="The paper's own table of datasets has 10,681, which agrees with its model sizes.",
        evidence="tests/unit/test_paper_errata.py::test_ml10m_has_the_items_that_its_sizes_of_models_have",
    ),
    Erratum(
        place="Table of upload cost, FM on ML100K",
        said="SecEmb sends 0.18 MB, with a reduction ratio of 5.05, but 0.22 MB for the same in the table of sparse "
        "aggregation.",
        right="FM has 6,696 dense numbers more than MF, which sends 0.17 MB: two shares of them are 0.05 MB.",
        evidence="tests/unit/test_paper_errata.py::test_fm_on_ml100k_leaves_out_its_dense_part",
    ),
)
