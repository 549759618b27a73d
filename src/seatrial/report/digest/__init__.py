"""What every report says of a campaign, once: values and sentences that summary.json, summary.md, the terminal and the page then draw."""
