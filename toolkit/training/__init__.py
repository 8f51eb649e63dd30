"""The tools for trainings, one room each: dumps compared, the gate, the profile, and the operators that one needs."""
