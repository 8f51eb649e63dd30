"""The simulated Tecorigin T1 card: values computed for real, one engine instance per SPA."""
