"""Supervised fine-tuning of a causal language model, full or LoRA, with the Hugging Face Trainer."""
