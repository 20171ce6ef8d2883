"""The paper fedluck: experiments, claims, figures, theory."""
