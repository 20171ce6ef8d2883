"""The paper fedasmu: experiments, claims, figures, theory."""
