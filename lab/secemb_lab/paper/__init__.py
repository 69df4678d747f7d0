"""The paper's tables and figures, measured with this software beside the paper's own numbers."""
