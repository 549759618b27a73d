"""The words that foreign programs take: options of torchrun and deepspeed as their own parsers read them, and ssh's. Pure."""
