"""The paper's tables and figures, measured with this software and compared with the paper's own numbers."""
