"""Commands as typer registers them: their options and help. Each calls the file of its name."""
