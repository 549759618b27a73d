"""LibriSpeech on disk: prepare it, check it, or make a small tree of its shape without a download."""
