"""The paper's statistics: sizes of models, how many items people rate, memory of a device, and what noise costs."""
