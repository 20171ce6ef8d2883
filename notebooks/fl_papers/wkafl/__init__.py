"""The paper wkafl: experiments, claims, figures, theory."""
