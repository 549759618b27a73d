"""The view model: everything that a renderer shows of a campaign, computed from CampaignResults in one place."""
