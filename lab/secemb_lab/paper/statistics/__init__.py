"""The paper's statistics: sizes of models, how many items people rate, memory of a device, and the cost of noise."""
