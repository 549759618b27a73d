"""From a LibriSpeech tree to batches: utterances, slices, order, tokens. `contrastive.data` puts them together."""
