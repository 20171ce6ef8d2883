"""The paper fedasync: experiments, claims, figures, theory."""
