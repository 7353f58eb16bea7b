"""Commands that work on recorded runs: replay them, and show the requests that they sent."""
