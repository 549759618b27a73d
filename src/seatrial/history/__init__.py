"""What is kept of campaigns beyond their folders: rows that later campaigns are compared with."""
