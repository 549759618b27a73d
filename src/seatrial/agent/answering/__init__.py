"""What a host can be asked before a campaign, one module a subject; agent/answers.py puts the questions to them."""
