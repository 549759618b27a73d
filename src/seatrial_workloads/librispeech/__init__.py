"""LibriSpeech on disk: prepare it, verify it, or create a small synthetic tree of its shape."""
