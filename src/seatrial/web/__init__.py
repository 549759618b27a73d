"""The page of a campaign, served live on loopback."""
