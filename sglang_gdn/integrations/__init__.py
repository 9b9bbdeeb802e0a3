"""Other projects' models on this package's operators. Nothing here is imported unless asked for."""
