"""The means that all other packages use: errors, text, files, paths, tables, commands, the control connection. Imports nothing of ours."""
