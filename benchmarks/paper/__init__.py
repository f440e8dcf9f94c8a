"""The paper's tables, figures and ablations, beside ours."""
