"""Parts of the model computed the fast way, each beside the plain one it stands for; `choose` decides which are taken."""
