"""Contrastive speech–text training: wav2vec2 with attention pooling against a frozen BERT (the Stage 1 workload)."""
