"""The paper sdfeel: experiments, claims, figures, theory."""
