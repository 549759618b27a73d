"""Where finished runs can be sent: one small module a tracker, imported only when that tracker is chosen."""
