"""What is checked: cases as ``model.yaml`` says them, and what each of them is made of."""
