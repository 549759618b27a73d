"""Writing that survives a bad disk: `append` tries again, then writes elsewhere (`fallback`), and `merging` brings that back."""
