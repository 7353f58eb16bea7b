"""Those who look on.  They see records and deltas, and can never change a run."""
