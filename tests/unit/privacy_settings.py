"""Privacy settings for tests: those of a small task with a ring of 12 fraction bits."""

from secemb_shared.messages.privacy import BudgetLine, Privacy

STEPS = 2**12  # of one
TRAINING = BudgetLine(clip=STEPS, multiplier="2", epsilon="20")
SUMS = BudgetLine(clip=100 << 16, multiplier="1.5", epsilon="5")
PRIVACY = Privacy(unit="user", delta="0.00001", train=TRAINING, evaluate=SUMS)
