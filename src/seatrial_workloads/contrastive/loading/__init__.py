"""From a LibriSpeech tree to batches: utterances, slices, order, tokens. `contrastive.data` creates the loaders."""
