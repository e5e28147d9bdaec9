"""The jobs of `tidelog spark`, each of which is imported when it is called."""
